"""Noise after training: the scale of highest held-out likelihood, or none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.experiments.runs import configure, load_run, run


def _model() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3))
    with torch.no_grad():
        layer.self_attn.in_proj_weight *= 3.0
        model[2].weight *= 15.0  # much too sure of itself: any disagreement of samples helps
    return model.eval()


def test_the_scale_is_that_of_lowest_held_out_nll_and_the_model_is_converted() -> None:
    model, x, y = _model(), torch.randn(200, 3, 8), torch.randint(3, (200,))
    plain = model(x).detach()
    fit = ba.fit_noise(model, (x, y), shapes=(1.0, 10.0, 1000.0), samples=16)
    assert fit.moved
    assert fit.k == min((1.0, 10.0, 1000.0), key=fit.nll.__getitem__) == 1.0
    expected = -plain.log_softmax(-1)[range(200), y].double().mean().item()
    assert fit.nll[math.inf] == pytest.approx(expected, rel=1e-5)
    again = -ba.predict(model, x, samples=16, generator=torch.Generator().manual_seed(0)).log_prob(y).mean().item()
    assert fit.nll[1.0] == pytest.approx(again, rel=1e-5)
    assert fit.gain == pytest.approx(fit.nll[math.inf] - fit.nll[1.0], rel=1e-4)
    torch.testing.assert_close(model(x), plain, rtol=1e-4, atol=1e-4)  # the point estimate stays


def test_without_a_gain_above_its_error_the_model_stays_as_it_is() -> None:
    model = _model()
    with torch.no_grad():
        model[2].weight.zero_()  # attention says nothing
    before = {name: type(module) for name, module in model.named_modules()}
    fit = ba.fit_noise(model, (torch.randn(50, 3, 8), torch.randint(3, (50,))), shapes=(1.0, 10.0))
    assert not fit.moved
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_labels_that_do_not_count_do_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)).eval()
    x, y = torch.randn(20, 4, 8), torch.randint(3, (20, 4))
    half = y.clone()
    half[:, 2:] = -100
    fit = ba.fit_noise(model, (x, half), shapes=(5.0,), samples=2)
    wanted = -model(x).log_softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)[:, :2].sum(1).mean().item()
    assert fit.nll[math.inf] == pytest.approx(wanted, rel=1e-5)


def test_refused() -> None:
    data = (torch.randn(10, 3, 8), torch.randint(3, (10,)))
    with pytest.raises(ValueError, match="is converted already"):
        ba.fit_noise(ba.convert(_model(), ba.Weibull(k=2.0)), data)
    with pytest.raises(ValueError, match="at least one k"):
        ba.fit_noise(_model(), data, shapes=())
    with pytest.raises(ValueError, match="no likelihood to fit noise by"):
        ba.fit_noise(_model(), (data[0], torch.randn(10, 3)), likelihood="values")
    with pytest.raises(ValueError, match="no attention layer"):
        ba.fit_noise(nn.Linear(2, 2), (torch.randn(4, 2), torch.zeros(4).long()))


def test_as_a_method(tmp_path: Path) -> None:
    small = {"training": {"epochs": 2, "samples": 4}, "task_options": {"hidden": 8, "feedforward": 8}}
    plain = run(configure("digits", "mle", **small), tmp_path)
    config = configure("digits", "noise-after", method_options={"fit_samples": 2}, **small)
    result = run(config, tmp_path)
    assert result["first_model_taken_over"] is not None
    loaded = load_run(tmp_path / config.name)
    images, labels = loaded.task.load().test
    found = loaded.predict(images, samples=4).log_prob(labels).mean().item()
    assert found == pytest.approx(result["metrics"]["log_likelihood"], abs=0.1)
    assert result["metrics"]["log_likelihood"] == pytest.approx(plain["metrics"]["log_likelihood"], abs=0.2)
