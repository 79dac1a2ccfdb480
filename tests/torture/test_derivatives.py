"""A short form of `make torture`: generated cases of other derivatives."""

from __future__ import annotations

import pytest
import torch

from bayesattn.numerics.counter_gamma import _Moved
from torture.derivative_cases import KINDS, DerivativeCase, Wrong, check, torture


def test_generated_cases_behave() -> None:
    tally = torture(range(80))
    assert tally.wrong == {}
    assert {DerivativeCase.of(number).kind for number in range(80)} == set(KINDS)


def test_a_derivative_that_is_dropped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torture can fail: Gamma draws that stand still are caught."""
    cases = map(DerivativeCase.of, range(1000))
    case = next(each for each in cases if each.kind == "jvp" and each.draws_gammas and each.call.keys > 4)
    monkeypatch.setattr(_Moved, "jvp", staticmethod(lambda ctx, *tangents: torch.zeros_like(tangents[0])))
    with pytest.raises(Wrong, match="jvp is off by"):
        check(case)
