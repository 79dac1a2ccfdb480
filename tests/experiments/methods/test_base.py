"""How members are pooled."""

from __future__ import annotations

import torch

import bayesattn as ba
from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.tasks import TASKS


def test_the_prediction_of_several_members_is_their_mixture() -> None:
    task, method = TASKS.create("toy-m1"), Method()
    models = [method.build(task).eval() for _ in range(3)]
    inputs, targets = (tensor[:4] for tensor in task.load().test)
    together = method.predict(models, task, inputs, samples=1)
    assert isinstance(together, ba.GaussianPrediction)
    parts = [method.predict([model], task, inputs, samples=1) for model in models]
    expected = torch.stack([part.log_prob(targets).exp() for part in parts]).mean(0).log()
    torch.testing.assert_close(together.log_prob(targets), expected)


def test_probabilities_are_averaged_and_not_logits() -> None:
    task, method = TASKS.create("digits"), Method()
    models = [method.build(task).eval() for _ in range(2)]
    images = task.load().test[0][:4]
    logits = torch.stack([model(images) for model in models]).detach()
    torch.testing.assert_close(method.predict(models, task, images, samples=1).mean, logits.softmax(-1).mean(0))
