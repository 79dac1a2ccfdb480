"""The autoencoders of Henderson and Fehr (2023): what stands between encoder and decoder."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from bayesattn.experiments.methods.base import Method, Progress
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.models.autoencoders.base import Autoencoder, Bottleneck
from bayesattn.experiments.models.autoencoders.gaussian_pool import GaussianPool, Pooling
from bayesattn.experiments.models.autoencoders.gaussian_stride import GaussianStride
from bayesattn.experiments.models.autoencoders.gaussian_vectors import GaussianVectors
from bayesattn.experiments.models.autoencoders.no_bottleneck import NoBottleneck
from bayesattn.experiments.models.autoencoders.nonparametric import NonparametricBottleneck
from bayesattn.experiments.tasks.base import Task
from bayesattn.nvib.layer import AlphaForm
from bayesattn.objective import Elbo, elbo
from bayesattn.scopes.recording import Latents
from bayesattn.support import checks

Annealing = Literal["constant", "monotonic", "cyclic"]


@dataclass(frozen=True)
class AutoencoderOptions:
    """A transformer autoencoder."""

    dropout: float = 0.1
    """Dropout of the transformer."""


@dataclass(frozen=True)
class GaussianOptions(AutoencoderOptions):
    """An autoencoder with Gaussian vectors."""

    lambda_gaussian: float = 1e-3
    """Weight of the KL of the vectors, a mean over dimensions."""
    annealing: Annealing = "constant"
    """The factor of the KL: 1; or from 0 to 1 along a cosine in the first quarter ("monotonic"); or in four cycles ("cyclic")."""
    initial_log_variance: float = 0.0
    """Where log σ² starts."""


class BottleneckMethod(Method):
    """The task's autoencoder with a bottleneck. As published, the likelihood is a mean over `max_len` positions, padding too."""

    def __init__(self, options: AutoencoderOptions):
        self.dropout = checks.fraction("dropout", options.dropout)
        annealing = options.annealing if isinstance(options, GaussianOptions) else "constant"
        self.annealing: Annealing = checks.one_of("annealing", annealing, ("constant", "monotonic", "cyclic"))

    @abstractmethod
    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        """What the decoder reads through."""

    def build(self, task: Task) -> nn.Module:
        model = super().build(task)
        if not isinstance(model, Autoencoder):
            raise ValueError(
                f"This method is for tasks whose model is an autoencoder (nvae-wikitext2, nvae-toy), not for {type(task).__name__}."
            )
        model.set_bottleneck(self.bottleneck(model.dim, model.heads))
        self._positions = model.max_len
        return model

    def objective(self, nll: Tensor, latents: Latents, progress: Progress, dataset_size: int) -> Elbo:
        factor = kl_factor(self.annealing, progress.share)
        return elbo(nll / self._positions, latents if len(latents) else None, kl_weight=factor)


def kl_factor(annealing: Annealing, progress: float) -> float:
    """The factor of the KL when the share `progress` of the training is done.

    >>> [kl_factor("monotonic", share) for share in (0.0, 0.125, 0.25, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    >>> [kl_factor("cyclic", share) for share in (0.0, 0.0625, 0.125, 0.25)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if annealing == "monotonic":
        return round(0.5 - 0.5 * math.cos(math.pi * min(1.0, 4.0 * progress)), 12)
    return min(1.0, 2.0 * (4.0 * progress % 1.0)) if annealing == "cyclic" else 1.0


class TransformerAutoencoder(BottleneckMethod):
    """T: no bottleneck, no KL."""

    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        return NoBottleneck()


class VariationalTransformer(BottleneckMethod):
    """VT: every vector is a Gaussian."""

    def __init__(self, options: GaussianOptions):
        super().__init__(options)
        self.options = options

    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        return self._started(GaussianVectors(dim, self.options.lambda_gaussian))

    def _started(self, vectors: GaussianVectors) -> GaussianVectors:
        nn.init.constant_(vectors.log_variance.bias, self.options.initial_log_variance)
        return vectors


@dataclass(frozen=True)
class PooledOptions(GaussianOptions):
    """An autoencoder with one Gaussian vector for a text."""

    pooling: Pooling = "mean"
    """How the vectors become one."""


class PooledTransformer(VariationalTransformer):
    """VTP."""

    options: PooledOptions

    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        return self._started(GaussianPool(dim, self.options.pooling, self.options.lambda_gaussian))


@dataclass(frozen=True)
class StrideOptions(GaussianOptions):
    """An autoencoder with Gaussian vectors, of which fixed places are dropped."""

    dropped: float = 0.5
    """Share of the vectors that is dropped."""


class StrideTransformer(VariationalTransformer):
    """VTS."""

    options: StrideOptions

    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        return self._started(GaussianStride(dim, self.options.dropped, self.options.lambda_gaussian))


@dataclass(frozen=True)
class NonparametricOptions(GaussianOptions):
    """The nonparametric variational autoencoder."""

    delta: float = 0.3
    """α^Δ: pseudo-count of the prior for each token; the larger, the more vectors are kept."""
    lambda_dirichlet: float = 1.0
    """Weight of the KL of the weights."""
    alpha: AlphaForm = "relu"
    """Form of the pseudo-counts."""
    kappa: int = 1
    """Points drawn from each component in training."""


class Nonparametric(BottleneckMethod):
    """NVAE."""

    def __init__(self, options: NonparametricOptions):
        super().__init__(options)
        self.options = options

    def bottleneck(self, dim: int, heads: int) -> Bottleneck:
        options = self.options
        bottleneck = NonparametricBottleneck(
            dim,
            num_heads=heads,
            delta=options.delta,
            alpha=options.alpha,
            kappa=options.kappa,
            lambda_dirichlet=options.lambda_dirichlet,
            lambda_gaussian=options.lambda_gaussian,
        )
        nn.init.constant_(bottleneck.nvib.log_variance.bias, options.initial_log_variance)
        return bottleneck


METHODS.add("t", "autoencoder without a bottleneck", AutoencoderOptions(), TransformerAutoencoder)
METHODS.add("vt", "autoencoder, every vector a Gaussian", GaussianOptions(), VariationalTransformer)
METHODS.add("vtp", "autoencoder, one Gaussian vector (mean or max)", PooledOptions(), PooledTransformer)
METHODS.add("vts", "autoencoder, Gaussian vectors at fixed places", StrideOptions(), StrideTransformer)
METHODS.add("nvae", "autoencoder, nonparametric bottleneck (NVIB)", NonparametricOptions(), Nonparametric)
