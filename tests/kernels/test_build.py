"""Compiling: no compiler, a broken one, a cache that cannot be written, several processes at once, a fork. It still works, and says so."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from bayesattn.kernels import build
from bayesattn.support.files import replacing

ATTEND = """
import warnings
import torch, bayesattn as ba
torch.set_num_threads(1)
q = torch.linspace(-1, 1, 2 * 100 * 16).view(1, 2, 100, 16)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.manual_seed(0)
    output = ba.attend(q, q, q, ba.Weibull(1.0))
    ba.attend(q, q, q, ba.Weibull(1.0))
print(float(output.square().sum()))
print(ba.kernels.explain(q, q, q, ba.Weibull(1.0)))
print([str(one.message) for one in told if "bayesattn" in str(one.message)])
"""


def run(code: str, **environment: str) -> list[str]:
    """The lines that a fresh process prints."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@pytest.fixture(scope="module")
def expected() -> float:
    """What `reference` gives for the attention of `ATTEND`."""
    return float(run(ATTEND.replace("ba.Weibull(1.0))", "ba.Weibull(1.0), backend='reference')"))[0])


@pytest.fixture
def failing_compiler(tmp_path: Path) -> Path:
    return script(tmp_path / "failing", "echo 'internal error 42' >&2; exit 1")


def _owned_by_another(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    original = os.stat

    def status(of: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = original(of, follow_symlinks=follow_symlinks)
        return os.stat_result((*found[:4], 4242, *found[5:])) if of == path else found

    monkeypatch.setattr(Path, "stat", status)
    monkeypatch.setattr(Path, "lstat", lambda of: status(of, follow_symlinks=False))


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_without_a_compiler_it_falls_back_and_says_so_once(expected: float, tmp_path: Path) -> None:
    total, explanation, told = run(ATTEND, CXX="no-such-compiler", BAYESATTN_CACHE=str(tmp_path))
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert explanation.startswith("reference: native is not there: CXX=no-such-compiler was not found")
    assert told.count("runs without its native kernel") == 1


def test_a_failed_compile_is_remembered_and_told_once(expected: float, tmp_path: Path, failing_compiler: Path) -> None:
    cache = tmp_path / "cache"
    environment = {"CXX": str(failing_compiler), "BAYESATTN_CACHE": str(cache)}
    total, explanation, told = run(ATTEND, **environment)
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert "internal error 42" in explanation
    assert told.count("internal error 42") == 1
    (failure,) = cache.glob("kernels/*.failed")
    assert "internal error 42" in failure.read_text()
    total, explanation, told = run(ATTEND, **environment)
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert "failed earlier" in explanation
    assert told == "[]"


@pytest.mark.slow
def test_a_wrong_library_fails_its_check(expected: float, tmp_path: Path) -> None:
    """-ffast-math folds the rounding of exp away: the library checks itself when it is loaded."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("no compiler")
    wrong = script(tmp_path / "wrong", f'exec {compiler} "$@" -ffast-math -O1')
    total, explanation, _ = run(ATTEND, CXX=str(wrong), BAYESATTN_CACHE=str(tmp_path / "cache"))
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert "fails its check" in explanation


@pytest.mark.skipif(build.find_compiler() is None, reason="no compiler")
class TestWithACompiler:
    """A compiler that only copies stands in where the compiled code is not run: it takes no time."""

    @pytest.fixture
    def copying(self, tmp_path: Path) -> str:
        return str(script(tmp_path / "copying", 'for last; do :; done; sleep 0.3; echo library > "$last"'))

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, copying: str) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        built = build.build(copying, blocked / "cache")
        assert built.path is not None
        assert built.path.read_text() == "library\n"
        assert "cannot be written" in built.message
        assert built.is_news

    def test_the_second_time_it_is_there(self, tmp_path: Path, copying: str) -> None:
        first, second = (build.build(copying, tmp_path / "cache") for _ in range(2))
        assert first.path == second.path
        assert "compiled earlier" in second.message

    def test_many_at_once_leave_one_library_and_nothing_else(self, tmp_path: Path, copying: str) -> None:
        cache = tmp_path / "cache"
        found: list[build.Built] = []
        threads = [threading.Thread(target=lambda: found.append(build.build(copying, cache))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {one.path for one in found} == set(cache.iterdir())
        assert len(found) == 4

    def test_a_fork_while_compiling(self, tmp_path: Path, copying: str) -> None:
        lines = run(
            f"""
            import os, threading, time
            from pathlib import Path
            from bayesattn.kernels import build
            cache = Path({str(tmp_path / "cache")!r})
            thread = threading.Thread(target=build.build, args=({copying!r}, cache))
            thread.start()
            time.sleep(0.1)
            child = os.fork()
            built = build.build({copying!r}, cache)
            assert built.path.read_text() == "library\\n"
            if child == 0:
                os._exit(0)
            thread.join()
            print(os.waitpid(child, 0)[1], len(list(cache.iterdir())))
            """
        )
        assert lines == ["0 1"]

    def test_the_folder_is_the_users_alone(self, tmp_path: Path, copying: str) -> None:
        built = build.build(copying, tmp_path / "new" / "kernels")
        assert built.path is not None
        assert stat.S_IMODE(built.path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(built.path.stat().st_mode) == 0o700

    @pytest.mark.parametrize("what", ["library", "folder", "parent"])
    def test_what_another_user_owns_is_refused_in_words(
        self, tmp_path: Path, copying: str, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        cache = tmp_path / "cache" / "kernels"
        first = build.build(copying, cache).path
        assert first is not None
        planted = {"library": first, "folder": cache, "parent": cache.parent}[what]
        _owned_by_another(monkeypatch, planted)
        second = build.build(copying, cache)
        assert f"{planted}" in second.message
        assert "belongs to another user (number 4242)" in second.message
        assert second.is_news
        assert second.path is not None
        assert second.path.read_text() == "library\n"
        assert (second.path.parent == cache) == (what == "library")

    @pytest.mark.parametrize(("what", "mode"), [("library", 0o720), ("folder", 0o770), ("parent", 0o757)])
    def test_what_others_can_write_is_refused_in_words(
        self, tmp_path: Path, copying: str, what: str, mode: int
    ) -> None:
        cache = tmp_path / "cache" / "kernels"
        first = build.build(copying, cache).path
        assert first is not None
        {"library": first, "folder": cache, "parent": cache.parent}[what].chmod(mode)
        second = build.build(copying, cache)
        assert f"can be written by others (mode {mode:04o}" in second.message
        assert second.is_news
        assert second.path is not None
        assert (second.path.parent == cache) == (what == "library")

    @pytest.mark.parametrize(
        "body",
        [
            "echo 'cannot write: No space left on device' >&2; exit 1",
            "echo 'virtual memory exhausted: Cannot allocate memory' >&2; exit 1",
            "echo 'fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
            "kill -9 $$",
        ],
        ids=["disk", "memory", "its child killed", "killed"],
    )
    def test_a_transient_failure_is_told_and_not_remembered(self, tmp_path: Path, body: str) -> None:
        compiler, cache = script(tmp_path / "compiler", body), tmp_path / "cache"
        built = build.build(str(compiler), cache)
        assert built.path is None
        assert built.is_news
        assert list(cache.iterdir()) == []
        text = compiler.read_text()
        status = compiler.stat()
        compiler.write_text('#!/bin/sh\nfor last; do :; done; echo library > "$last"'.ljust(len(text)))
        os.utime(compiler, ns=(status.st_atime_ns, status.st_mtime_ns))  # the same compiler, to the cache
        again = build.build(str(compiler), cache)
        assert again.path is not None

    def test_a_failure_is_forgotten_after_a_day(self, tmp_path: Path) -> None:
        compiler, cache = script(tmp_path / "failing", "echo 'error 42' >&2; exit 1"), tmp_path / "cache"
        build.build(str(compiler), cache)
        assert "failed earlier" in build.build(str(compiler), cache).message
        (failure,) = cache.glob("*.failed")
        os.utime(failure, (0, 0))
        assert "could not compile" in build.build(str(compiler), cache).message

    def test_a_full_disk_of_the_cache_is_told_and_the_library_made_elsewhere(
        self, tmp_path: Path, copying: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = tmp_path / "cache"

        def fail(path: Path, mode: int) -> None:
            if path.parent == cache:
                raise OSError(errno.ENOSPC, "No space left on device")
            return replacing(path, mode)  # pyright: ignore[reportReturnType]

        monkeypatch.setattr(build, "replacing", fail)
        built = build.build(copying, cache)
        assert "No space left on device" in built.message
        assert "this process alone has it" in built.message
        assert built.path is not None
        assert built.path.read_text() == "library\n"

    def test_what_dead_processes_left_is_removed(self, tmp_path: Path, copying: str) -> None:
        cache = tmp_path / "cache"
        cache.mkdir(mode=0o700)
        old, young = cache / ".attention-0.so-abcd1234", cache / ".attention-1.so-abcd1234"
        for path in (old, young):
            path.touch()
        os.utime(old, (0, 0))
        build.build(copying, cache)
        assert not old.exists()
        assert young.exists()

    def test_another_source_or_compiler_is_another_library(self, tmp_path: Path, copying: str) -> None:
        source = tmp_path / "source"
        source.mkdir()
        (source / build.MAIN).write_text("int a;")
        one = build.fingerprint(copying, source)
        (source / build.MAIN).write_text("int b;")
        assert build.fingerprint(copying, source) != one
        assert build.fingerprint(sys.executable, source) != build.fingerprint(copying, source)


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BAYESATTN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_directory() == tmp_path / "bayesattn" / "kernels"
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "mine"))
    assert build.cache_directory() == tmp_path / "mine" / "kernels"


COMPARE = """
import torch, bayesattn as ba
torch.set_num_threads(1)
torch.manual_seed(0)
q = torch.randn(1, 2, 90, 20)
k, v = torch.randn(1, 2, 150, 20), torch.randn(1, 2, 150, 24)
contextual, dirichlet = ba.Weibull(3.0, ba.ContextualGamma(0.5)), ba.Dirichlet(initial_sharpness=20.0)
for posterior in (ba.Weibull(2.0), contextual, ba.LogNormal(0.5), dirichlet):
    posterior = posterior.bind(num_heads=2, head_dim=20)
    found = []
    for backend, dtype in (("reference", torch.float64), ("native", torch.float32)):
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        torch.manual_seed(4)
        with ba.record() as latents:
            output = ba.attend(*leaves, posterior.to(dtype), is_causal=True, dropout_p=0.2, backend=backend)
        loss = output.square().sum() + 0.01 * latents.local_kl.sum()
        found.append([output, latents.local_kl, *torch.autograd.grad(loss, leaves)])
    print(max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found)))
for dtype in (torch.bfloat16, torch.float16):  # in units in which one bound does for all
    tolerance = torch.finfo(dtype).eps * 1e4
    found = []
    for backend, of in (("reference", torch.float64), ("native", dtype)):
        leaves = [x.detach().to(dtype).to(of).requires_grad_() for x in (q, k, v)]
        torch.manual_seed(4)
        with ba.record() as latents:
            output = ba.attend(*leaves, ba.Weibull(2.0), dropout_p=0.2, backend=backend)
        loss = output.double().square().sum() + 0.01 * latents.local_kl.sum()
        found.append([output, *torch.autograd.grad(loss, leaves)])
    print(max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found)) / tolerance)
q, k, v = (x.detach().clone() for x in (q, k, v))
k[0, 1, 100, 3] = float("nan")
ours, reference = (ba.attend(q, k, v, ba.Softmax(), backend=backend) for backend in ("native", "reference"))
print(float(not torch.equal(ours.isnan(), reference.isnan())))
print(ba.kernels.explain(q, k, v, ba.Weibull(2.0), backend="native"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-mavx2 -mfma", ""], ids=["avx2", "plain"])
def test_other_instruction_sets_give_the_same(tmp_path: Path, flags: str) -> None:
    """AVX2, and C++ that knows nothing of the CPU, through a compiler that is given those flags instead of its own choice."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("no compiler")
    body = f'exec {compiler} $(echo "$@" | sed "s/-march=native/{flags}/")'
    ours = script(tmp_path / "compiler", body)
    *differences, explanation = run(COMPARE, CXX=str(ours), BAYESATTN_CACHE=str(tmp_path / "cache"))
    assert explanation == "native: asked for"
    assert max(map(float, differences)) < 1e-4
