"""A Laplace posterior, saved and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesattn as ba


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).eval()


@pytest.mark.parametrize(("structure", "where"), [("diagonal", None), ("full", "last"), ("full", ["0"])])
def test_samples_are_the_same_after_loading(tmp_path: Path, structure: Any, where: Any) -> None:
    x = torch.randn(40, 3)
    model = ba.weight_space.laplace(network(), x, "categorical", where=where, structure=structure)
    assert ba.weight_space.save_laplace(model, tmp_path) == tmp_path / "laplace.pt"
    again = ba.weight_space.load_laplace(network(), tmp_path)
    one, other = (
        ba.predict(each, x, samples=5, generator=torch.Generator().manual_seed(1)).samples for each in (model, again)
    )
    assert one.std(0).max() > 1e-3
    assert torch.equal(one, other)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    x = torch.randn(40, 3)
    model = ba.weight_space.laplace(network(), x, "categorical", where="last")
    ba.weight_space.save_laplace(model, tmp_path / "posterior.pt")
    with pytest.raises(ValueError, match="has a Laplace approximation already"):
        ba.weight_space.load_laplace(model, tmp_path / "posterior.pt")
    with pytest.raises(TypeError, match="has no Laplace approximation"):
        ba.weight_space.save_laplace(network(), tmp_path)
    other = network()
    with torch.no_grad():
        other[0].weight.add_(1e-3)
    with pytest.raises(ValueError, match="fitted to other weights"):
        ba.weight_space.load_laplace(other, tmp_path / "posterior.pt")
    ba.calibrate(network(), (x, torch.randint(2, (40,)))).save(tmp_path / "calibration.pt")
    with pytest.raises(ValueError, match="holds no bayesattn Laplace posterior"):
        ba.weight_space.load_laplace(network(), tmp_path / "calibration.pt")
