"""The methods of the autoencoding tasks."""

from __future__ import annotations

import math

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.methods.base import Progress
from bayesattn.experiments.methods.bottlenecks import (
    GaussianOptions,
    NonparametricOptions,
    PooledOptions,
    StrideOptions,
)
from bayesattn.experiments.models.autoencoders.base import Autoencoder
from bayesattn.experiments.models.autoencoders.gaussian_pool import GaussianPool
from bayesattn.experiments.models.autoencoders.gaussian_stride import GaussianStride
from bayesattn.experiments.models.autoencoders.nonparametric import NonparametricBottleneck
from bayesattn.experiments.tasks import TASKS
from bayesattn.nvib import DenoisingMultiheadAttention


def built(method: str, options: object) -> Autoencoder:
    model = METHODS.create(method, options).build(TASKS.create("nvae-toy"))
    assert isinstance(model, Autoencoder)
    return model


def test_options_arrive_where_they_belong() -> None:
    nvae = built("nvae", NonparametricOptions(delta=0.07, kappa=2, lambda_dirichlet=0.5, initial_log_variance=-3.0))
    assert isinstance(nvae.bottleneck, NonparametricBottleneck)
    nvib = nvae.bottleneck.nvib
    assert (nvib.delta, nvib.kappa, nvib.lambda_dirichlet, nvib.lambda_gaussian) == (0.07, 2, 0.5, 1e-3)
    assert (nvib.log_variance.bias == -3.0).all()
    assert all(isinstance(layer.multihead_attn, DenoisingMultiheadAttention) for layer in nvae.decoder.layers)
    vtp = built("vtp", PooledOptions(pooling="max", lambda_gaussian=0.2))
    assert isinstance(vtp.bottleneck, GaussianPool)
    assert (vtp.bottleneck.pooling, vtp.bottleneck.lambda_gaussian) == ("max", 0.2)
    vts = built("vts", StrideOptions(dropped=0.75, dropout=0.3))
    assert isinstance(vts.bottleneck, GaussianStride)
    assert vts.bottleneck.dropped == 0.75
    assert vts.dropout.p == 0.3


@pytest.mark.parametrize(("annealing", "factor"), [("constant", 1.0), ("monotonic", 0.5), ("cyclic", 1.0)])
def test_the_loss_is_the_mean_over_positions_and_the_annealed_kl(annealing: str, factor: float) -> None:
    options = NonparametricOptions(annealing=annealing)  # pyright: ignore
    method, task = METHODS.create("nvae", options), TASKS.create("nvae-toy")
    model = method.build(task)
    tokens = task.load().train[0][:4]
    with ba.record() as latents:
        nll = task.nll(model, (tokens,))
    objective = method.objective(nll, latents, Progress(1, 8), 1000)
    expected = nll.mean() / 51 + factor * latents.local_kl.mean()
    assert objective.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_larger_delta_makes_more_pseudo_counts_cheap() -> None:
    """The KL of the weights is least where their total is the prior's: 1 + δ tokens."""
    tokens = TASKS.create("nvae-toy").load().train[0][:8]
    for delta, better in ((0.01, -2.0), (3.0, 2.0)):
        model = built("nvae", NonparametricOptions(delta=delta, alpha="exp"))
        assert isinstance(model.bottleneck, NonparametricBottleneck)
        kl = {}
        for level in (-2.0, 2.0):
            torch.nn.init.zeros_(model.bottleneck.nvib.log_alpha.weight)
            torch.nn.init.constant_(model.bottleneck.nvib.log_alpha.bias, level)
            with ba.record() as latents:
                model(tokens)
            kl[level] = latents.by_layer(model)["bottleneck.nvib.dirichlet"].mean().item()
        assert kl[better] < kl[-better]
        assert math.isfinite(kl[-better])


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    with pytest.raises(ValueError, match="for tasks whose model is an autoencoder"):
        METHODS.create("vt", GaussianOptions()).build(TASKS.create("toy-m1"))
    with pytest.raises(ValueError, match="annealing='linear' is not known"):
        METHODS.create("vt", GaussianOptions(annealing="linear"))  # pyright: ignore
