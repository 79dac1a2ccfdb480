"""An answer in words: its figures are those of the prediction, and the threshold decides as it says."""

from __future__ import annotations

import math

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.report.explorable import Answered
from bayesattn.experiments.report.verdict import decision, verdict
from bayesattn.experiments.tasks.portrait import patches, words
from bayesattn.prediction.predictions import CategoricalPrediction

LOGITS = torch.tensor([[[2.0, 0.0, -1.0]], [[0.5, 1.0, 0.0]], [[3.0, 0.0, 0.0]]])
CLASSES = ("<good>", "bad", "neither")


def answer(logits: torch.Tensor = LOGITS) -> Answered:
    return Answered(words(["a", "film"]), CategoricalPrediction(logits), None, ("A remark & more.",))


def test_the_threshold_is_of_the_probability_of_the_answer() -> None:
    highest = LOGITS.softmax(-1).mean(0).max().item()
    assert decision(answer(), highest - 1e-6).answers
    assert not decision(answer(), highest + 1e-6).answers
    assert decision(answer(), 0.9).why == f"its probability {highest:.3f} is below 0.90"


def test_every_figure_is_that_of_the_prediction() -> None:
    shares = LOGITS[:, 0].softmax(-1)
    mean = shares.mean(0)
    entropy = -(mean * mean.log()).sum().item()
    disagreement = entropy + (shares * shares.log()).sum(-1).mean().item()
    shown = verdict(answer(), CLASSES, 0.2)
    lower, upper = torch.quantile(shares[:, 0], torch.tensor([0.05, 0.95])).tolist()
    assert "<strong>&lt;good&gt;</strong>" in shown
    assert f"<td>{mean[0]:.3f}</td><td>{lower:.3f} to {upper:.3f}</td>" in shown
    assert (
        f"Entropy {entropy:.3f}: as open as a choice among {math.exp(entropy):.1f} equally probable classes of 3."
        in shown
    )
    assert f"Mutual information {disagreement:.3f}: {disagreement / entropy:.0%} of the entropy" in shown
    assert '<em class="answers">answers</em>' in shown
    assert '<em class="abstains">abstains</em>' in verdict(answer(), CLASSES, 0.99)
    assert "A remark &amp; more." in shown
    assert "no samples can disagree" in verdict(answer(LOGITS[:1]), CLASSES, 0.2)
    seven = Answered(patches(torch.rand(4, 4), 2), CategoricalPrediction(torch.randn(2, 1, 7)), None)
    assert "2 classes that are less probable are not shown" in verdict(seven, tuple("abcdefg"), 0.2)


def test_a_calibrated_model_abstains_by_risk() -> None:
    inputs = torch.randn(400, 3) * 3
    model = torch.nn.Identity()
    labels = torch.distributions.Categorical(logits=inputs).sample()
    knowing = ba.calibrate(model, (inputs, labels))
    seen = set()
    for row in torch.tensor([[9.0, 0.0, 0.0], [0.1, 0.0, 0.0]]):
        prediction = knowing.predict(row[None])
        answered = Answered(words(["x"]), prediction, None)
        given = prediction.abstain(0.1)
        found = decision(answered, 0.1)
        assert found.answers == bool(given.answered)
        assert f"at most 10% wrong, it answers {given.coverage:.0%}" in found.why
        assert f"p-value {prediction.outlier.item():.3f}" in verdict(answered, CLASSES, 0.1)
        seen.add(found.answers)
    assert seen == {True, False}
    with pytest.raises(ValueError, match="held-out examples even if no answer is wrong"):
        decision(answered, 0.001)
    assert "held-out examples even if no answer is wrong" in verdict(answered, CLASSES, 0.001)
