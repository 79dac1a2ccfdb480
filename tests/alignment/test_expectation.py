"""What hard and variational share: options, the baseline, the modes."""

from __future__ import annotations

import pytest
import torch

import bayesattn as ba
from bayesattn.alignment import Hard, Variational
from helpers.alignment_problems import problem


def test_the_soft_baseline_reduces_the_variance() -> None:
    for kind, leaf in ((Variational, "posterior"), (Hard, "prior")):
        variances = {}
        for baseline in ("soft", "none"):
            many = problem(20_000)
            loss, _ = many.run(kind(samples=1, baseline=baseline))
            variances[baseline] = float(many.gradients(loss)[leaf].var(0).sum())
        assert variances["soft"] < 0.5 * variances["none"], variances


def test_the_baseline_of_the_other_draws_is_unbiased_and_reduces_the_variance() -> None:
    """Four draws: each is compared with the mean of the other three."""
    for kind, leaf in ((Variational, "posterior"), (Hard, "prior")):
        exact = problem()
        wanted = exact.gradients(exact.run(kind())[0])[leaf][0]
        found = {}
        for baseline in ("others", "none"):
            many = problem(20_000)
            found[baseline] = many.gradients(many.run(kind(samples=4, baseline=baseline))[0])[leaf]
        error = found["others"].std(0) / 20_000**0.5
        assert ((found["others"].mean(0) - wanted).abs() < 5 * error + 1e-7).all()
        assert found["others"].var(0).sum() < 0.5 * found["none"].var(0).sum()


def test_eval_mode_enumerates_and_sampling_samples_there() -> None:
    small, objective = problem(), Variational(samples=1).eval()
    enumerated = small.run(Variational())[0]
    assert torch.equal(small.run(objective)[0], enumerated)
    with ba.sampling(torch.Generator().manual_seed(3)):
        drawn = small.run(objective)[0]
    assert torch.isclose(-drawn, small.every_log_f()).any()
    assert not torch.isclose(drawn, enumerated)


def test_a_trained_baseline_adds_the_soft_gradient_and_no_value() -> None:
    results = []
    for train_baseline in (True, False):
        small = problem()
        torch.manual_seed(0)
        loss, _ = small.run(Hard(samples=3, train_baseline=train_baseline))
        results.append((loss, small.gradients(loss)["theta"]))
    small = problem()
    soft = small.gradients(small.run(ba.alignment.Soft())[0])["theta"]
    assert torch.equal(results[0][0], results[1][0])
    assert torch.allclose(results[0][1] - results[1][1], soft)


def test_options_that_cannot_act_are_refused(unchecked: None) -> None:
    with pytest.raises(ValueError, match="train_baseline=True needs samples=1"):
        Variational(train_baseline=True)
    with pytest.raises(ValueError, match=r"baseline='sof' is not known\. Did you mean 'soft'"):
        Hard(samples=1, baseline="sof")
    with pytest.raises(ValueError, match="baseline='others' needs samples=2 or more, got samples=1"):
        Variational(samples=1, baseline="others")
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, got 0"):
        Hard(samples=0)
