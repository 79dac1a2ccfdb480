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
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, got 0"):
        Hard(samples=0)
