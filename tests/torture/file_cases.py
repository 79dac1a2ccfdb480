"""Damaged files: each is refused with words that name it, or read rightly; nothing else happens, and no code in it runs."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from transformers.utils.logging import disable_progress_bar

from bayesattn.experiments.data.files import DataError
from torture.attention_cases import Tally, Wrong, expect
from torture.file_formats import CANARY, DATA_FORMATS, Format
from torture.saved_formats import SAVED_FORMATS

FORMATS = DATA_FORMATS | SAVED_FORMATS
SECONDS = 20
"""Reading a small file takes no longer."""
MEMORY = 2**31
"""Nor more bytes."""


def torture_files(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """So many damaged files of one format, the next one for the next `cases`, in a process that may not have much memory."""
    number = cases.start // len(cases)
    name = list(FORMATS)[number % len(FORMATS)]
    made(name)
    disable_progress_bar()  # transformers' would write into ours
    receiver, sender = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiver)
        code = 0
        try:
            _limit_memory()
            torture_format(name, number, len(cases), lambda: os.write(sender, b"."))
        except BaseException as problem:
            os.write(sender, f"{type(problem).__name__}: {problem}"[:4000].encode(errors="replace"))
            code = 1
        finally:
            os._exit(code)
    os.close(sender)
    said = b""
    while part := os.read(receiver, 4096):
        said += part
        for _ in part:
            tick()
    os.close(receiver)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == 0:
        return Tally(len(cases))
    words = said.lstrip(b".").decode(errors="replace") or f"its process ended with {code}"
    return Tally(len(said) - len(said.lstrip(b".")), {number: f"{name}, seed {number}: {words}"})


def _limit_memory() -> None:
    """What a small file makes us ask for is little: asking for more is an error, and does not bring the machine down."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def torture_format(name: str, number: int, examples: int, tick: Callable[[], object] = lambda: None) -> None:
    """Read so many damaged files of a format; `number` decides which. Raises `Wrong` for the smallest one that went wrong."""
    form = made(name)
    with workplace(form) as folder:

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @given(st.data())
        def read_damaged(data: Any) -> None:
            tick()
            file = data.draw(st.sampled_from(sorted(form.damages)))
            content = data.draw(form.damages[file](form.files[file]))
            check_damaged(name, form, folder, file, content)

        read_damaged()


@cache
def made(name: str) -> Format:
    """The format of this name, made once."""
    return FORMATS[name]()


@contextmanager
def workplace(form: Format) -> Iterator[Path]:
    """A data folder with the valid files, which is also the working directory."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {
            "BAYESATTN_DATA": name,
            "BAYESATTN_CACHE": str(folder / "cache"),
            "BAYESATTN_DATA_CHECK": "off",
        }
        for file, content in form.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        os.chdir(folder)
        try:
            form.check(form.load(folder))  # the valid files are read
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def check_damaged(name: str, form: Format, folder: Path, file: str, content: bytes) -> None:
    """Read the format with one of its files damaged; raise `Wrong` if anything happens that should not."""
    (folder / file).write_bytes(content)
    where = f"{name}, {file} = {content[:300]!r}"
    try:
        with _at_most(SECONDS):
            result = form.load(folder)
        form.check(result)
    except Wrong as problem:
        raise Wrong(f"{where}: {problem}") from None
    except Exception as problem:
        unclear = _unclear(problem, form)
        if unclear:
            raise Wrong(f"{where}: {unclear}: {type(problem).__name__}: {str(problem)[:300]}") from problem
    finally:
        (folder / file).write_bytes(form.files[file])
        shutil.rmtree(folder / "cache", ignore_errors=True)
    expect(not (folder / CANARY).exists(), f"{where}: code in it was run")


def _unclear(problem: Exception, form: Format) -> str | None:
    """What is not clear about an error; None if it is."""
    words = str(problem)
    if type(problem) not in (DataError, ValueError, FileNotFoundError, OSError):
        return "another exception"
    if not any(Path(file).name in words for file in form.files) and not any(
        str(Path(file).parent) in words for file in form.files if Path(file).parent != Path(".")
    ):
        return "it does not name the file"
    if not 20 <= len(words) <= 2000:
        return f"{len(words)} characters are not words for a person"
    try:
        words.encode()
    except UnicodeEncodeError:
        return "it cannot be printed"
    return None


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise Wrong(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
