"""Maximum likelihood, MC dropout, ensembles."""

from __future__ import annotations

import pytest
import torch

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.methods.baselines import DropoutOptions, EnsembleOptions
from bayesattn.experiments.tasks import TASKS
from bayesattn.scopes.recording import Latents

TASK = TASKS.create("digits")


def test_the_objective_of_maximum_likelihood_is_the_nll() -> None:
    nll = torch.rand(4)
    assert METHODS.create("mle").objective(nll, Latents(), Progress(1, 2), 100).loss == nll.mean()


def test_maximum_likelihood_predicts_once_and_the_same() -> None:
    method = METHODS.create("mle")
    model, images = method.build(TASK), TASK.load().test[0][:4]
    first, second = (method.predict([model], TASK, images, samples=7).samples for _ in range(2))
    assert first.shape[0] == 1
    assert torch.equal(first, second)


def test_dropout_stays_on_in_prediction() -> None:
    method = METHODS.create("mc-dropout", DropoutOptions(dropout=0.3))
    model, images = method.build(TASK), TASK.load().test[0][:4]
    samples = method.predict([model], TASK, images, samples=7).samples
    assert samples.shape[0] == 7
    assert (samples.std(0) > 1e-4).all()


def test_an_ensemble_has_members_that_each_predict_once() -> None:
    method = METHODS.create("ensemble", EnsembleOptions(members=3))
    assert method.members == 3
    models = [method.build(TASK) for _ in range(3)]
    images = TASK.load().test[0][:4]
    samples = method.predict(models, TASK, images, samples=7).samples
    torch.testing.assert_close(samples, torch.stack([model.eval()(images) for model in models]).detach())


@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_a_dropout_of_nothing_or_everything_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match="dropout must"):
        METHODS.create("mc-dropout", DropoutOptions(dropout=dropout))
