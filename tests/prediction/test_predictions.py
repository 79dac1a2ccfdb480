"""What predictions say, against distributions of torch and numpy."""

import math

import numpy
import pytest
import torch

import bayesattn as ba


def test_labels_that_may_hold_together() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 4, 3, dtype=torch.float64)
    labels = torch.randint(2, (4, 3))
    prediction = ba.BernoulliPrediction(logits)
    coins = torch.distributions.Bernoulli(logits=logits)
    expected = coins.log_prob(labels.double()).sum(-1).exp().mean(0).log()
    torch.testing.assert_close(prediction.log_prob(labels), expected)
    mean = torch.distributions.Bernoulli(probs=coins.probs.mean(0))
    torch.testing.assert_close(prediction.entropy, mean.entropy())
    torch.testing.assert_close(prediction.expected_entropy, coins.entropy().mean(0))
    torch.testing.assert_close(prediction.mutual_information, mean.entropy() - coins.entropy().mean(0))
    assert torch.equal(prediction.label, coins.probs.mean(0) > 0.5)
    sure = ba.BernoulliPrediction(torch.full((1, 1, 1), 200.0))
    assert sure.entropy.item() == 0.0
    assert math.isclose(sure.log_prob(torch.zeros(1, 1)).item(), -200.0)


@pytest.mark.parametrize("level", [0.01, 0.25, 0.5, 0.9])
def test_quantiles_are_numpys_in_the_dtype_of_the_samples(level: float) -> None:
    samples = 1e8 + torch.randn(11, 5, dtype=torch.float64)  # float32 has steps of 8 there
    expected = numpy.quantile(samples.numpy(), level, axis=0)
    torch.testing.assert_close(ba.Prediction(samples).quantile(level), torch.from_numpy(expected))


def test_quantiles_of_more_numbers_than_torch_takes() -> None:
    samples = torch.arange(3.0).view(3, 1, 1).expand(3, 1, 6_000_000)
    assert (ba.Prediction(samples).quantile(0.5) == 1.0).all()
