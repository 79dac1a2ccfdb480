"""A short form of `make torture`: generated cases of attention, no NaN, no leak, no wrong shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import bayesattn as ba
from torture.attention_cases import Case, Wrong, check, torture


def test_generated_cases_behave() -> None:
    tally = torture(range(200))
    assert tally.wrong == {}
    assert tally.tried == 200


@pytest.mark.parametrize("number", [514760, 520056, 521477])
def test_a_sharpness_too_small_for_its_inverse_has_gradients(number: int) -> None:
    """Scores in the millions take a computed sharpness below 1e-20, whose inverse times a weight's is beyond float32."""
    check(Case.of(number))


def test_every_axis_is_varied() -> None:
    cases = [Case.of(number) for number in range(3000)]
    for axis in ("way", "mode", "mask", "dtype", "backend", "posterior", "keys", "queries"):
        values = {getattr(case, axis) for case in cases}
        assert len(values) > 2, axis
    assert len({case.posterior for case in cases}) > 50


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torture can fail: attention that ignores its mask is caught."""
    case = next(c for c in map(Case.of, range(1000)) if c.way == "attend" and c.mask == "lengths" and c.keys > 4)
    original = ba.attend

    def leaky(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args, **kwargs):
        output = original(query, key, value, *args, **kwargs)
        return output + value.mean()

    monkeypatch.setattr(ba, "attend", leaky)
    with pytest.raises(Wrong, match="what is masked changes the output"):
        check(replace(case, dtype=torch.float32))
