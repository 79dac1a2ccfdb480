"""VT: every vector of the encoder is a Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.experiments.models.autoencoders.base import Bottleneck, Vectors
from bayesattn.scopes import modes, recording
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float, Int


class GaussianVectors(Bottleneck):
    """μ_i = W_μ x_i + b, log σ_i² = W_σ x_i + b, z_i ~ N(μ_i, diag σ_i²), against N(0, 1).

    The KL is λ / 2 Σ_i mean_p [σ² + μ² - 1 - log σ²]: a sum over vectors and a mean over dimensions, as in the released code. Without
    sampling z = μ.
    """

    def __init__(self, dim: int, lambda_gaussian: float = 1e-3):
        super().__init__()
        self.lambda_gaussian = checks.finite("lambda_gaussian", lambda_gaussian)
        self.mean = nn.Linear(checks.whole("dim", dim), dim)
        self.log_variance = nn.Linear(dim, dim)

    def forward(self, vectors: Tensor, padding: Tensor) -> Vectors:
        return self.latent(vectors, ~padding)

    def latent(self, vectors: Float[Tensor, "batch components dim"], mask: Bool[Tensor, "batch components"]) -> Vectors:
        """What is read of `vectors` where `mask` is True."""
        mean, log_variance = self.mean(vectors), self.log_variance(vectors)
        if recording.kl_is_wanted():
            each = 0.5 * (log_variance.exp() + mean.square() - 1.0 - log_variance).mean(-1)
            count = mask.sum(-1).to(each.dtype)
            kl = self.lambda_gaussian * (each * mask).sum(-1)
            recording.add_local(kl, elements=count, rows=count, tokens=count, source=self)
        if self.training or modes.is_sampling():
            noise = torch.empty_like(mean).normal_(generator=modes.current_generator())
            mean = mean + noise * (0.5 * log_variance).exp()
        return Vectors(mean, mask)

    def sample_prior(self, lengths: Int[Tensor, " batch"], generator: torch.Generator | None = None) -> Vectors:
        mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
        values = self.mean.weight.new_empty(*mask.shape, self.mean.out_features).normal_(generator=generator)
        return Vectors(values, self.kept(mask))

    def kept(self, there: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch components"]:
        """Of the vectors that are no padding, those that the decoder sees."""
        return there
