"""A short form of `make torture`: layers and whole models of every converter."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")
pytest.importorskip("torch_geometric", reason="needs the graphs extra: pip install 'bayesattn[graphs]'")

from torch import nn

from torture import model_cases
from torture.attention_cases import Wrong
from torture.model_cases import SUBJECTS, ModelCase, Subject, check, torture


def test_generated_cases_behave() -> None:
    tally = torture(range(60))
    assert tally.wrong == {}
    assert tally.tried == 60


def test_every_architecture_comes_up_with_every_mode() -> None:
    cases = [ModelCase.of(number) for number in range(3000)]
    found = Counter((case.library, case.name, case.mode) for case in cases)
    assert len(found) == 3 * len(SUBJECTS)
    assert len({case.posterior for case in cases}) > 50


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torture can fail: a layer that looks at everything is caught."""
    case = next(
        c for c in map(ModelCase.of, range(1000)) if (c.name, c.mode) == ("AdditiveAttention", "eval") and c.length > 6
    )
    make = model_cases._MAKE["bayesattn.nn"]

    def leaky(case: ModelCase) -> Subject:
        subject = make(case)
        output = subject.output

        def all_seen(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            return output(model, inputs) + inputs["keys"].mean()

        subject.output = all_seen
        return subject

    check(case)
    monkeypatch.setitem(model_cases._MAKE, "bayesattn.nn", leaky)
    with pytest.raises(Wrong, match="what may not be seen changes the output"):
        check(case)
