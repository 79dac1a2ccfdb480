"""A short form of `make torture`: two launches of one run at once, two processes each."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from bayesattn.experiments.runs import RunFolder
from torture.attention_cases import Wrong
from torture.launch_cases import LaunchCase, check

TWICE = LaunchCase(0, moment=0.0, killed=(), twice=True)


@pytest.mark.slow
def test_two_launches_at_once_compute_a_run_once() -> None:
    check(TWICE)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [(0,), (1,)], ids=["first", "second"])
def test_a_killed_launch_goes_on(killed: tuple[int, ...]) -> None:
    check(LaunchCase(1, moment=0.6, killed=killed, twice=False))


@pytest.mark.slow
def test_launches_that_do_not_lock_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torture can fail: without the lock both write the history of the run."""

    def unlocked(folder: RunFolder, *args: Any) -> Any:
        folder.path.mkdir(parents=True, exist_ok=True)
        return nullcontext()

    monkeypatch.setattr(RunFolder, "locked", unlocked)
    with pytest.raises(Wrong):
        check(TWICE)
