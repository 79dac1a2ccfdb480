"""Compiling the native kernel on first use, into the user's cache.

A library in the cache is named by what it was made of: the sources, the compiler and its flags, and the CPU. It is compiled under a name
of its own and then renamed, so that any number of processes may do it at once, with no lock that a fork could leave locked.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
MAIN = "attention.cpp"
# No -ffast-math: it folds away the rounding in exp, and the results are wrong by 0.1.
FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-shared")
PLAIN_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared")
"""For compilers that know neither this CPU nor OpenMP: one thread, narrow vectors, the same numbers."""
COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True)
class Built:
    """The library, or None, and what happened, in a sentence."""

    path: Path | None
    message: str
    is_news: bool = False
    """Whether it happened just now, so that the user should be told if it is a failure."""


def find_compiler() -> str | None:
    """The C++ compiler: the environment's CXX, else the first that is found."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def cache_directory() -> Path:
    """Where compiled kernels are kept: BAYESATTN_CACHE, else bayesattn in XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("BAYESATTN_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bayesattn"


def build(compiler: str | None, cache: Path, source: Path = SOURCE) -> Built:
    """The compiled kernel from the cache, or compiled now; where the cache cannot be written, in a directory of this process."""
    if compiler is None:
        wanted = os.environ.get("CXX")
        reason = f"CXX={wanted} was not found" if wanted else f"no C++ compiler was found ({', '.join(COMPILERS)})"
        return Built(None, f"{reason}; install g++ or set CXX to have it", is_news=True)
    name = f"attention-{fingerprint(compiler, source)}"
    library, failure = cache / f"{name}.so", cache / f"{name}.failed"
    if library.exists():
        return Built(library, f"compiled earlier, in {library}")
    if failure.exists():
        return Built(None, f"{compiler} failed earlier, see {failure}; delete that file to try again")
    place, remark = cache, ""
    if not _is_writable(cache):
        place, remark = _private_directory(), f" (the cache {cache} cannot be written: this process alone has it)"
    errors = compile_to(compiler, source, place / library.name)
    if errors is None:
        return Built(
            place / library.name, f"compiled with {compiler} into {place / library.name}{remark}", is_news=bool(remark)
        )
    if place == cache:
        _write_atomically(failure, errors)
    last = errors.strip().splitlines()[-1] if errors.strip() else "no message"
    return Built(None, f"{compiler} could not compile it: {last}", is_news=True)


def fingerprint(compiler: str, source: Path) -> str:
    """A name for what the library is made of."""
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    status = os.stat(compiler)
    digest.update(repr((FLAGS, PLAIN_FLAGS, compiler, status.st_size, status.st_mtime_ns, _cpu())).encode())
    return digest.hexdigest()[:16]


def compile_to(compiler: str, source: Path, library: Path) -> str | None:
    """Compile to a name of its own, then rename; the compiler's messages if it fails."""
    errors = ""
    for flags in (FLAGS, PLAIN_FLAGS):
        unfinished = library.with_name(f".{library.stem}-{os.getpid()}-{uuid.uuid4().hex}.so")
        command = [compiler, *flags, str(source / MAIN), "-o", str(unfinished)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if result.returncode == 0 and unfinished.exists():
                os.replace(unfinished, library)
                return None
            errors += f"{' '.join(command)}\n{result.stderr}\n"
        except (OSError, subprocess.TimeoutExpired) as error:
            errors += f"{' '.join(command)}\n{error}\n"
        finally:
            unfinished.unlink(missing_ok=True)
    return errors


def _cpu() -> str:
    """What distinguishes one CPU from another for -march=native."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(
            sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
        )
    except OSError:
        return f"{platform.machine()} {platform.processor()}"


def _is_writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _private_directory() -> Path:
    directory = tempfile.mkdtemp(prefix="bayesattn-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def _write_atomically(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}-{os.getpid()}-{uuid.uuid4().hex}")
    unfinished.write_text(text)
    os.replace(unfinished, path)
