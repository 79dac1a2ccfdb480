"""A short form of `make torture`: predictions at once."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

from torture.concurrency_cases import ConcurrentCase, Wrong, check_threads, torture_tasks, torture_threads


def test_generated_cases_behave() -> None:
    assert torture_threads(range(8), lambda: None).wrong == {}
    assert torture_tasks(range(8), lambda: None).wrong == {}


class Careless(nn.Module):
    """Keeps its input in itself while others run."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        time.sleep(0.01)
        return self.kept + torch.zeros(3, dtype=x.dtype).view(3, 1, 1)[:1]


def test_threads_that_see_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConcurrentCase, "model", lambda self: Careless().eval())
    case = ConcurrentCase(0, "careless", 1, True)
    with pytest.raises((Wrong, ValueError), match=r"got another result than alone|batch"):
        check_threads(case)
