"""The folder of a run."""

from __future__ import annotations

import fcntl
import logging
import threading
from pathlib import Path

import pytest
import torch

from bayesattn.runs import RunFolder


def test_a_checkpoint_comes_back_and_the_result_ends_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.read_checkpoint() is None
    state = {"epoch": 3, "model": {"weight": torch.randn(2, 2)}, "history": [{"loss": 1.5}]}
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
