"""What a prediction says: samples of a model's outputs, and what they say together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn import metrics
from bayesattn.numerics.precision import to_compute
from bayesattn.support.annotations import Float


@dataclass(frozen=True)
class Prediction:
    """Sampled outputs, [samples, batch, ...], and their summary. `interval` holds for the quantity that was predicted."""

    samples: Float[Tensor, "samples batch *event"]

    @property
    def mean(self) -> Tensor:
        """Mean of the predictive distribution."""
        return self.samples.mean(0)

    @property
    def variance(self) -> Tensor:
        """Variance of the predictive distribution."""
        return self.samples.var(0, correction=0)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Central interval that holds `level` of the predictive distribution."""
        lower, upper = self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)
        return lower, upper

    def quantile(self, level: float) -> Tensor:
        """Quantile of the predictive distribution."""
        _check_level(level)
        ordered = to_compute(self.samples).sort(0).values  # torch.quantile refuses large tensors
        place = level * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return torch.lerp(ordered[below], ordered[above], place - below)


@dataclass(frozen=True)
class CategoricalPrediction(Prediction):
    """Sampled logits, [samples, batch, ..., classes]; `mean` holds the predictive probabilities."""

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities of each sample."""
        return to_compute(self.samples).softmax(-1)

    @property
    def mean(self) -> Tensor:
        return self.probabilities.mean(0)

    @property
    def variance(self) -> Tensor:
        """Variance of each class probability over the samples."""
        return self.probabilities.var(0, correction=0)

    @property
    def label(self) -> Tensor:
        """The class of highest predictive probability."""
        return self.mean.argmax(-1)

    @property
    def entropy(self) -> Tensor:
        """Entropy of the predictive distribution: all that is uncertain."""
        return metrics.predictive_entropy(self.probabilities)

    @property
    def expected_entropy(self) -> Tensor:
        """Mean entropy of the samples: what stays uncertain when the latents are known."""
        return metrics.expected_entropy(self.probabilities)

    @property
    def mutual_information(self) -> Tensor:
        """What knowing the latents would tell: `entropy - expected_entropy`."""
        return metrics.mutual_information(self.probabilities)

    def log_prob(self, labels: Tensor) -> Tensor:
        """log of the predictive probability of `labels`, averaged over samples before the logarithm."""
        per_sample = to_compute(self.samples).log_softmax(-1)
        picked = per_sample.gather(-1, labels.expand(per_sample.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return picked.logsumexp(0) - math.log(len(picked))

    def quantile(self, level: float) -> Tensor:
        """Quantile of each class probability over the samples."""
        return Prediction(self.probabilities).quantile(level)


@dataclass(frozen=True)
class BernoulliPrediction(Prediction):
    """Sampled logits of labels that may hold together, [samples, batch, ..., labels]; `mean` holds the probability of each label."""

    @property
    def probabilities(self) -> Tensor:
        """Probability of each label in each sample."""
        return to_compute(self.samples).sigmoid()

    @property
    def mean(self) -> Tensor:
        return self.probabilities.mean(0)

    @property
    def variance(self) -> Tensor:
        """Variance of each label's probability over the samples."""
        return self.probabilities.var(0, correction=0)

    @property
    def label(self) -> Tensor:
        """Which labels are more probable than not, as booleans."""
        return self.mean > 0.5

    @property
    def entropy(self) -> Tensor:
        """Entropy of each label's predictive distribution."""
        return metrics.predictive_entropy(self._of_coins())

    @property
    def expected_entropy(self) -> Tensor:
        """Mean entropy of each label over the samples."""
        return metrics.expected_entropy(self._of_coins())

    @property
    def mutual_information(self) -> Tensor:
        """What knowing the latents would tell about each label: `entropy - expected_entropy`."""
        return metrics.mutual_information(self._of_coins())

    def log_prob(self, labels: Tensor) -> Tensor:
        """log probability of all `labels` (0 or 1) of an example together, averaged over samples before the logarithm."""
        signs = 2.0 * labels.to(self.samples.dtype) - 1.0
        per_sample = torch.nn.functional.logsigmoid(to_compute(self.samples) * signs).sum(-1)
        return per_sample.logsumexp(0) - math.log(len(per_sample))

    def quantile(self, level: float) -> Tensor:
        """Quantile of each label's probability over the samples."""
        return Prediction(self.probabilities).quantile(level)

    def _of_coins(self) -> Tensor:
        """[..., labels, 2]: the probabilities that it does not hold and that it does."""
        return torch.stack([to_compute(-self.samples).sigmoid(), self.probabilities], -1)


@dataclass(frozen=True)
class GaussianPrediction(Prediction):
    """A mixture of Gaussians: `samples` are the means, `scales` the standard deviations of each sample."""

    scales: Float[Tensor, "samples batch *event"]

    @property
    def aleatoric_variance(self) -> Tensor:
        """Mean of the samples' variances."""
        return self.scales.square().mean(0)

    @property
    def epistemic_variance(self) -> Tensor:
        """Variance of the samples' means."""
        return self.samples.var(0, correction=0)

    @property
    def variance(self) -> Tensor:
        return self.aleatoric_variance + self.epistemic_variance

    def log_prob(self, values: Tensor) -> Tensor:
        """log density of `values` under the mixture."""
        per_sample = torch.distributions.Normal(self.samples, self.scales).log_prob(values)
        return per_sample.logsumexp(0) - math.log(len(per_sample))

    def quantile(self, level: float) -> Tensor:
        """Quantile of the mixture, by bisection of its distribution function."""
        _check_level(level)
        components = torch.distributions.Normal(self.samples.double(), self.scales.double())
        each = components.icdf(torch.tensor(level, dtype=torch.float64, device=self.samples.device))
        lower, upper = each.amin(0), each.amax(0)  # the mixture's quantile lies between its components'
        for _ in range(60):
            middle = (lower + upper) / 2
            below = components.cdf(middle).mean(0) < level
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        return ((lower + upper) / 2).to(self.samples.dtype)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}.")
