"""The folder of a run."""

from __future__ import annotations

import fcntl
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from bayesattn.experiments.runs import RunFolder


def test_a_checkpoint_comes_back_and_the_result_ends_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.read_checkpoint() is None
    state = {"epoch": 3, "model": {"weight": torch.randn(2, 2)}, "history": [{"loss": 1.5}]}
    state |= {"finished": [], "seconds": 2.5}
    folder.write_checkpoint(state)
    back = folder.read_checkpoint()
    assert back is not None
    assert torch.equal(back["model"]["weight"], state["model"]["weight"])
    assert back["history"] == [{"loss": 1.5}]
    assert folder.result() is None
    folder.write_result({"metrics": {}}, {"weight": torch.ones(2)})
    assert folder.read_checkpoint() is None
    assert folder.result() == {"metrics": {}}
    assert torch.equal(folder.read_model()["weight"], torch.ones(2))


def test_a_second_process_waits_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = RunFolder(tmp_path / "run")
    order = []
    with folder.locked():
        pass
    with (folder.path / ".lock").open("w") as other, caplog.at_level(logging.WARNING):
        fcntl.flock(other, fcntl.LOCK_EX)

        def second() -> None:
            with folder.locked():
                order.append("second")

        thread = threading.Thread(target=second)
        thread.start()
        while "Waiting for another process" not in caplog.text:
            assert thread.is_alive()
        order.append("first")
        fcntl.flock(other, fcntl.LOCK_UN)
        thread.join()
    assert order == ["first", "second"]


class Malicious:
    """Unpickled by the ordinary unpickler, it writes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "gotcha"))


def test_a_malicious_checkpoint_is_refused_and_does_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    folder = RunFolder(tmp_path / "run")
    folder.write_checkpoint({"epoch": 0, "finished": [Malicious(victim)], "history": [], "seconds": 0.0})
    with pytest.raises(
        ValueError, match=r"checkpoint.pt is refused: .*Remove it, and the run starts from its beginning"
    ):
        folder.read_checkpoint()
    assert not victim.exists()
    torch.load(folder.path / "checkpoint.pt", weights_only=False)  # the attack is a real one
    assert victim.exists()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_checkpoint({"epoch": 0})
    with pytest.raises(ValueError, match=r"checkpoint.pt is refused: it has no 'finished'"):
        folder.read_checkpoint()
    content = (folder.path / "checkpoint.pt").read_bytes()
    (folder.path / "checkpoint.pt").write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"checkpoint.pt is refused"):
        folder.read_checkpoint()
    for content, message in (
        ('{"metrics": {', "is not JSON"),
        ("[]", "must hold JSON objects"),
        ('{"metrics": {"mse": "small"}}', "holds no metrics of a run: remove it"),
    ):
        (folder.path / "result.json").write_text(content)
        with pytest.raises(ValueError, match=f"result.json {message}"):
            folder.result()
    (folder.path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epo')
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2 is not JSON"):
        folder.history()
    (folder.path / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(ValueError, match=r"model.safetensors holds no model"):
        folder.read_model()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_history([])
    left = folder.path / ".checkpoint.pt-x1y2z3w4"
    left.write_bytes(b"half of a checkp")
    with folder.locked():
        assert not left.exists()
    assert {each.name for each in folder.path.iterdir()} == {".lock", "metrics.jsonl"}
