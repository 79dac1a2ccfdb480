"""Compiling the native kernel on first use, into the user's cache.

A library in the cache is named by what it was made of (the sources, the compiler and its flags, and the CPU) and by the SHA-256 of its
bytes: one whose bytes have another is damaged, and is never loaded. It is compiled under a name of its own, flushed to the disk and then
renamed, so that any number of processes may do it at once, with no lock that a fork or a kill could leave locked.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bayesattn.support.files import remove_unfinished, replacing, user_cache, write_atomically

SOURCE = Path(__file__).parent / "source"
MAIN = "attention.cpp"
# No -ffast-math: it folds away the rounding in exp, and the results are wrong by 0.1.
FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-shared")
PLAIN_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared")
"""For compilers that know neither this CPU nor OpenMP: one thread, narrow vectors, the same numbers."""
COMPILERS = ("g++", "c++", "clang++")
COMPILE_SECONDS = 600
FAILURES_ARE_REMEMBERED = 24 * 3600
"""Seconds after which a compiler that failed is tried again."""
TRANSIENT = (
    "no space left",
    "disk quota",
    "out of memory",
    "cannot allocate",
    "memory exhausted",
    "killed",
    "terminated",
    "input/output error",
    "temporarily unavailable",
    "too many open files",
    "read-only file system",
)
"""Messages of compilers about the machine, and not about the source: next time it may work."""


@dataclass(frozen=True)
class Built:
    """The library, or None, and what happened, in a sentence."""

    path: Path | None
    message: str
    is_news: bool = False
    """Whether something happened just now that the user should be told."""


@dataclass(frozen=True)
class Failure:
    """Why a compiler made no library."""

    messages: str
    is_transient: bool

    def __str__(self) -> str:
        lines = self.messages.strip().splitlines()
        return lines[-1] if lines else "no message"


def find_compiler() -> str | None:
    """The C++ compiler: the environment's CXX, else the first that is found."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def cache_directory() -> Path:
    """Where compiled kernels are kept."""
    return user_cache() / "kernels"


def build(compiler: str | None, cache: Path, source: Path = SOURCE) -> Built:
    """The compiled kernel from the cache, or compiled now; where the cache cannot be used, in a directory of this process."""
    if compiler is None:
        wanted = os.environ.get("CXX")
        reason = f"CXX={wanted} was not found" if wanted else f"no C++ compiler was found ({', '.join(COMPILERS)})"
        return Built(None, f"{reason}; install g++ or set CXX to have it", is_news=True)
    name = f"attention-{fingerprint(compiler, source)}"
    failure, remarks = cache / f"{name}.failed", list[str]()
    unusable = _distrust_folder(cache)
    if unusable is None:
        for library in sorted(cache.glob(f"{name}-*.so")):
            wrong = _what_is_wrong(library)
            if wrong is None:
                return Built(library, f"compiled earlier, in {library}")
            remarks.append(f"{library} was not loaded: {wrong}")
            _set_aside(library)
        if _is_remembered(failure):
            return Built(None, f"{compiler} failed earlier, see {failure}; delete that file to try again")
        unusable = _make_ready(cache)
    if unusable is None:
        made = compile_to(compiler, source, cache, name)
        if isinstance(made, Path) or not made.is_transient:
            if isinstance(made, Failure):
                _remember(failure, made)
            return _told(compiler, made, remarks)
        unusable = f"nothing could be put into the cache {cache} ({made})"
    remarks.append(f"{unusable}; this process alone has it: BAYESATTN_CACHE can name another directory")
    return _told(compiler, compile_to(compiler, source, _private_directory(), name), remarks)


def _told(compiler: str, made: Path | Failure, remarks: list[str]) -> Built:
    if isinstance(made, Path):
        return Built(made, "; ".join([f"compiled with {compiler} into {made}", *remarks]), is_news=bool(remarks))
    return Built(None, "; ".join([f"{compiler} could not compile it: {made}", *remarks]), is_news=True)


def fingerprint(compiler: str, source: Path) -> str:
    """A name for what the library is made of."""
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    status = os.stat(compiler)
    digest.update(repr((FLAGS, PLAIN_FLAGS, compiler, status.st_size, status.st_mtime_ns, _cpu())).encode())
    return digest.hexdigest()[:16]


def compile_to(compiler: str, source: Path, directory: Path, name: str) -> Path | Failure:
    """Compile to a name of its own, then give it the name that says what it is made of, and what its bytes are."""
    messages, transient = "", False
    for flags in (FLAGS, PLAIN_FLAGS):
        command = [compiler, *flags, str(source / MAIN), "-o"]
        try:
            with tempfile.TemporaryDirectory(dir=directory, prefix=f".{name}.build-") as room:
                made = Path(room) / "library.so"
                result = subprocess.run(
                    [*command, str(made)],
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_SECONDS,
                    check=False,
                    env={**os.environ, "TMPDIR": room, "LC_ALL": "C"},
                )
                if result.returncode == 0 and made.exists():
                    content = made.read_bytes()
                    library = directory / f"{name}-{hashlib.sha256(content).hexdigest()}.so"
                    with replacing(library, mode=0o700) as unfinished:
                        unfinished.write_bytes(content)
                    return library
            messages += f"{' '.join(command)}\n{result.stderr}\n"
            transient |= result.returncode < 0 or any(each in result.stderr.lower() for each in TRANSIENT)
        except (OSError, subprocess.TimeoutExpired) as error:
            messages += f"{' '.join(command)}\n{error}\n"
            transient = True
    return Failure(messages, transient)


def _cpu() -> str:
    """What distinguishes one CPU from another for -march=native."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(
            sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
        )
    except OSError:
        return f"{platform.machine()} {platform.processor()}"


def _distrust_folder(cache: Path) -> str | None:
    """Why what is in this folder may be another's; None also if there is none yet."""
    try:
        for folder in (cache, cache.parent):
            status = folder.stat()
            # a parent that its group can write is what some systems make by default, and a folder put there by another is seen as such
            others = stat.S_IWOTH if folder == cache.parent else stat.S_IWOTH | stat.S_IWGRP
            reason = _distrust(status, 0 if status.st_mode & stat.S_ISVTX else others)
            if reason is not None:
                return f"the cache {cache} is not used, because {folder} {reason}"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return f"the cache {cache} cannot be read ({problem.strerror})"
    return None


def _make_ready(cache: Path) -> str | None:
    """Make the cache's folder, for this user alone, and clear it of what dead processes left; why it cannot be used, if so."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
        _clear(cache)
    except OSError as problem:
        return f"the cache {cache} cannot be written ({problem.strerror})"
    return _distrust_folder(cache)


def _clear(cache: Path) -> None:
    """Remove what compilers that were killed have left."""
    longest = 4.0 * COMPILE_SECONDS
    remove_unfinished(cache, older_than=longest)
    for room in cache.glob(".attention-*.build-*"):
        if time.time() - room.lstat().st_mtime > longest:
            shutil.rmtree(room, ignore_errors=True)


def _distrust(status: os.stat_result, others: int = stat.S_IWOTH | stat.S_IWGRP) -> str | None:
    """Why code in a file or folder of this status is not run: others could have put it there."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (number {status.st_uid})"
    if status.st_mode & others:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o}; chmod go-w mends that)"
    return None


def _what_is_wrong(library: Path) -> str | None:
    """Why a file of the cache must not be loaded."""
    try:
        status = library.lstat()
        if not stat.S_ISREG(status.st_mode):
            return "it is not a file"
        whose = _distrust(status)
        if whose is not None:
            return f"it {whose}"
        found = hashlib.sha256(library.read_bytes()).hexdigest()
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    if found != library.stem.rpartition("-")[2]:
        return f"it is damaged (the SHA-256 of its {status.st_size} bytes is {found})"
    return None


def _set_aside(library: Path) -> None:
    """Out of the way of a new one: a file is removed, anything else keeps a name that nobody looks for."""
    with contextlib.suppress(OSError):  # then a new one cannot be put there, which is told
        if library.is_dir() and not library.is_symlink():
            library.rename(library.with_name(f"{library.name}.not-a-library-{time.time_ns()}"))
        else:
            library.unlink()


def _is_remembered(failure: Path) -> bool:
    try:
        return time.time() - failure.stat().st_mtime < FAILURES_ARE_REMEMBERED
    except OSError:
        return False


def _remember(path: Path, failure: Failure) -> None:
    with contextlib.suppress(OSError):  # then it is tried again next time
        write_atomically(path, failure.messages)


def _private_directory() -> Path:
    directory = tempfile.mkdtemp(prefix="bayesattn-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
