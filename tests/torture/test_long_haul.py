"""Short forms of `make torture`: memory stays flat over training steps and predictions."""

from __future__ import annotations

import mmap

import pytest
import torch

from torture.long_haul import _repeated, torture_predictions, torture_steps


@pytest.mark.slow
def test_memory_stays_flat() -> None:
    for torture, times in ((torture_steps, 1000), (torture_predictions, 300)):
        tally = torture(range(times))
        assert tally.wrong == {}
        assert tally.tried == times
        assert tally.measured["tensors at the end"] == tally.measured["tensors after warm-up"]


def test_a_leak_is_found() -> None:
    """The torture can fail: kept tensors are noticed by their number, kept memory by its size."""
    kept: list[object] = []

    def keeps_tensors() -> torch.Tensor:
        kept.append(torch.ones(1))
        return torch.ones(1)

    assert "tensors are alive" in _repeated(keeps_tensors, 150, lambda: None).wrong[0]

    def keeps_memory() -> torch.Tensor:
        pages = mmap.mmap(-1, 200_000)  # of the system: an allocator's may be pages that the process has already
        pages.write(b"x" * 200_000)
        kept.append(pages)
        return torch.ones(1)

    assert "memory grew from" in _repeated(keeps_memory, 150, lambda: None).wrong[0]
