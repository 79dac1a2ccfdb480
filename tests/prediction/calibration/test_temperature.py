"""The temperature: found where it is known, kept at 1 where the data cannot tell, never a loss on held-out data."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.prediction.calibration.temperature import Temperature, TemperatureFit, tempered
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction


def fit(likelihood: Likelihood, labels: Tensor, *outputs: Tensor) -> Temperature:
    fitting = TemperatureFit(likelihood)
    for start in range(0, len(labels), 1000):
        fitting.add([each[:, start : start + 1000] for each in outputs], labels[start : start + 1000])
    return fitting.fitted()


def test_the_temperature_that_made_the_labels_is_found() -> None:
    logits = 2.0 * torch.randn(4000, 5)
    labels = torch.distributions.Categorical(logits=logits).sample()
    for true in (0.3, 2.5):
        found = fit("categorical", labels, true * logits.unsqueeze(0))
        assert found.value == pytest.approx(true, rel=0.1)
        best = min(F.cross_entropy(logits * true / t, labels).item() for t in torch.linspace(0.1, 4, 400).tolist())
        assert F.cross_entropy(logits * true / found.value, labels).item() == pytest.approx(best, abs=1e-3)
    coins = torch.bernoulli(logits.sigmoid())
    assert fit("bernoulli", coins, 2.0 * logits.unsqueeze(0)).value == pytest.approx(2.0, rel=0.1)
    values = logits + 3.0 * torch.randn(4000, 5)
    assert fit("gaussian", values, logits.unsqueeze(0), torch.ones(1, 4000, 5)).value == pytest.approx(3.0, rel=0.05)


def test_of_samples_it_is_the_mixtures_likelihood() -> None:
    samples, labels = 3.0 * torch.randn(4, 500, 3), torch.randint(3, (500,))
    found = fit("categorical", labels, samples)
    nll = [-(samples / t).softmax(-1).mean(0)[torch.arange(500), labels].log().mean() for t in (1.0, found.value)]
    assert found.gain == pytest.approx((nll[0] - nll[1]).item(), rel=1e-3)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "gaussian"])
def test_held_out_likelihood_never_falls_and_little_gain_moves_nothing(likelihood: Likelihood) -> None:
    generator = torch.Generator().manual_seed(4)
    moved = 0
    for size in (1, 2, 20, 60):
        for _ in range(6):
            outputs = [torch.randn(2, size, 3, generator=generator)]
            labels = torch.randint(3, (size,), generator=generator)
            if likelihood == "bernoulli":
                labels = torch.randint(2, (size, 3), generator=generator).float()
            elif likelihood == "gaussian":
                labels = torch.randn(size, 3, generator=generator)
                outputs.append(torch.rand(2, size, 3, generator=generator) + 0.5)
            found = fit(likelihood, labels, *outputs)
            kind = {
                "categorical": CategoricalPrediction,
                "bernoulli": BernoulliPrediction,
                "gaussian": GaussianPrediction,
            }[likelihood]
            before, after = (
                -kind(*tempered(outputs, likelihood, t)).log_prob(labels).reshape(size, -1).sum(1).double()
                for t in (1.0, found.value)
            )
            assert after.mean() <= before.mean()
            if found.moved:
                gains = before - after
                assert gains.mean() > gains.std() / size**0.5
                moved += 1
            else:
                assert found.value == 1.0
                assert found.gain <= found.error
    assert 0 < moved < 24


def test_positions_of_one_example_are_not_counted_as_independent() -> None:
    """The same tokens a hundred times over tell nothing new: the error stays that of the examples."""
    logits, labels = 2.0 * torch.randn(1, 30, 1, 3), torch.randint(3, (30, 1))
    one = fit("categorical", labels, logits)
    repeated = fit("categorical", labels.expand(30, 100), logits.expand(1, 30, 100, 3))
    assert (repeated.value, repeated.gain) == pytest.approx((one.value, one.gain), rel=1e-5)
    assert repeated.error == pytest.approx(one.error, rel=1e-5)


def test_ignored_positions_do_not_count() -> None:
    logits, labels = torch.randn(1, 40, 2, 3), torch.randint(3, (40, 2))
    labels[:, 1] = -100
    assert fit("categorical", labels, logits) == fit("categorical", labels[:, 0], logits[:, :, 0])


def test_a_label_that_is_ruled_out_is_named() -> None:
    logits = torch.zeros(1, 10, 3)
    logits[0, 4, 1] = -torch.inf
    with pytest.raises(ValueError, match="labels of 1 of 10 examples no probability"):
        fit("categorical", torch.ones(10, dtype=torch.long), logits)
