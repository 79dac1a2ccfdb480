"""Damages of the cache of compiled kernels: a process that meets one must live, compute rightly, and leave a whole library.

Every case is a process of its own, forked from this one, because a damaged library would kill it. The compiler is a script that copies
a library that was compiled once: what is tried is the cache.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import bayesattn as ba
from bayesattn.kernels import build, native
from torture.attention_cases import Tally, Wrong, expect, tally_of


def _truncate(library: Path, pick: random.Random) -> None:
    os.truncate(library, pick.randrange(library.stat().st_size))


def _flip(library: Path, pick: random.Random) -> None:
    content = bytearray(library.read_bytes())
    for _ in range(pick.choice((1, 10, 1000))):
        content[pick.randrange(len(content))] ^= pick.randrange(1, 256)
    library.write_bytes(content)


def _zeros(library: Path, pick: random.Random) -> None:
    """Pages that never came to the disk, as after a power cut."""
    content = bytearray(library.read_bytes())
    begin = pick.randrange(len(content)) // 4096 * 4096
    content[begin:] = bytes(len(content) - begin)
    library.write_bytes(content)


def _lengthen(library: Path, pick: random.Random) -> None:
    library.write_bytes(library.read_bytes() + pick.randbytes(pick.randrange(1, 5000)))


def _empty(library: Path, pick: random.Random) -> None:
    library.write_bytes(b"")


def _folder(library: Path, pick: random.Random) -> None:
    library.unlink()
    library.mkdir()
    if pick.random() < 0.5:
        (library / "file").touch()


def _link(library: Path, pick: random.Random) -> None:
    target = library.with_name("elsewhere")
    library.rename(target)
    if pick.random() < 0.5:
        target.write_bytes(b"")
    library.symlink_to(target)


def _dangling(library: Path, pick: random.Random) -> None:
    library.unlink()
    library.symlink_to(library.with_name("nowhere"))


def _open_to_others(library: Path, pick: random.Random) -> None:
    library.chmod(pick.choice((0o720, 0o702, 0o777)))


def _folder_open_to_others(library: Path, pick: random.Random) -> None:
    library.parent.chmod(pick.choice((0o770, 0o777)))


def _another_library(library: Path, pick: random.Random) -> None:
    """Of another program, or another version of ours, under the name of this one."""
    shutil.copy(pick.choice(sorted(Path(torch.__file__).parent.glob("_C*.so"))), library)


def _left_over(library: Path, pick: random.Random) -> None:
    """By a process that was killed: old enough to be removed."""
    library.unlink()
    for left in (library.parent / f".{library.name}-abcd1234", library.parent / ".attention-0.build-x"):
        left.mkdir() if left.suffix == ".build-x" else left.write_bytes(b"half")
        os.utime(left, (0, 0))


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    function.__name__.strip("_"): function
    for function in (
        _truncate,
        _flip,
        _zeros,
        _lengthen,
        _empty,
        _folder,
        _link,
        _dangling,
        _open_to_others,
        _folder_open_to_others,
        _another_library,
        _left_over,
    )
}


@dataclass(frozen=True)
class CacheCase:
    """One damage, decided by its number."""

    number: int
    damage: str

    @classmethod
    def of(cls, number: int) -> CacheCase:
        return cls(number, list(DAMAGES)[number % len(DAMAGES)])


@cache
def _compiled_once() -> bytes:
    """A library that works."""
    compiler = build.find_compiler()
    expect(compiler is not None, "there is no compiler")
    built = build.build(compiler, build.cache_directory())
    assert built.path is not None, built.message
    return built.path.read_bytes()


def check(case: CacheCase) -> None:
    """Damage a cache; a process that uses it must end well, and so must the next one, without a word."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "compiled").write_bytes(_compiled_once())
        compiler = folder / "compiler"
        compiler.write_text(f'#!/bin/sh\nfor last; do :; done\ncp {folder / "compiled"} "$last"\n')
        compiler.chmod(0o700)
        where = folder / "cache" / "kernels"
        built = build.build(str(compiler), where)
        assert built.path is not None
        DAMAGES[case.damage](built.path, random.Random(case.number))
        _in_a_process(lambda: _attend(compiler, where.parent))
        if case.damage == "folder_open_to_others":
            where.chmod(0o700)
        _in_a_process(lambda: _attend(compiler, where.parent, compiled_earlier=True))
        whole = [each for each in where.iterdir() if each.is_file() and each.suffix == ".so" and not each.is_symlink()]
        expect([each.read_bytes() for each in whole] == [_compiled_once()], "there is no whole library in the cache")
        left = [each.name for each in where.glob(".*")]
        expect(left == [], f"{left} is left in the cache")


def _attend(compiler: Path, directory: Path, compiled_earlier: bool = False) -> None:
    os.environ |= {"CXX": str(compiler), "BAYESATTN_CACHE": str(directory)}
    native.library.cache_clear()
    query = torch.linspace(-1, 1, 2 * 100 * 16).view(1, 2, 100, 16)
    outputs = []
    for backend in ("native", "reference"):
        torch.default_generator.manual_seed(1)
        outputs.append(ba.attend(query, query, query, ba.Weibull(1.0), backend=backend))  # pyright: ignore[reportArgumentType]
    expect(native.is_available(), f"there is no kernel: {native.how_it_was_made()}")
    expect(torch.allclose(*outputs, rtol=1e-4, atol=1e-4), "the output is wrong")
    earlier = native.how_it_was_made().startswith("compiled earlier")
    expect(earlier or not compiled_earlier, f"it was compiled again: {native.how_it_was_made()}")


def _in_a_process(task: Callable[[], None]) -> None:
    """Run it in a fork of this process; raise `Wrong` with what it raised, or died of."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            warnings.simplefilter("ignore")
            task()
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc()[-2000:].encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        words = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status:
        died = f"it died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "it failed"
        raise Wrong(f"{died}: {words}")


def torture(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Check all these cases."""
    sys.stdout.flush()
    return tally_of(cases, CacheCase.of, check, tick)
