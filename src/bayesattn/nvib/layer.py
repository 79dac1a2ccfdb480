"""The NVIB layer: vectors in, a latent mixture out, two KLs on the side."""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.numerics.precision import linear_in_dtype_of, to_compute
from bayesattn.nvib.attention import Compat, check_compat
from bayesattn.nvib.divergence import Normalisation, gaussian_kl, pseudo_count_kl
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.prior import ComponentPrior
from bayesattn.scopes import modes, recording
from bayesattn.support import checks
from bayesattn.support.annotations import Bool, Float
from bayesattn.support.configurable import Configurable, register

AlphaForm = Literal["relu", "exp", "quadratic"]

_SMALLEST_ALPHA = math.exp(-20.0)


@register
class NVIB(Configurable, nn.Module):
    """A nonparametric variational information bottleneck: each vector becomes a component of a random mixture.

        μ_i = W_μ x_i + b,   log σ_i² = W_σ x_i + b,   π ~ Dir(α_0 … α_n),   z_i ~ N(μ_i, diag σ_i²),

    where component 0 is the prior's (μ = m_p, σ² = s_p², α = α_p), and the pseudo-count α_i is, by `alpha`,

        "relu"        max(0, w·x_i + b)                 exact zeros: a vector may be dropped (ICLR 2023)
        "exp"         exp(w·x_i + b)                    (EMNLP Findings 2023)
        "quadratic"   exp(w_q·x_i² + w·x_i + b)         can be ordinary attention (COLM 2024); starts at w_q = 1 / 2 sqrt(d), w = b = 0

    In training and inside `sampling()` it returns drawn points, else the Gaussians and pseudo-counts themselves; both are read by
    `DenoisingMultiheadAttention`. Two KLs are recorded, those of `pseudo_count_kl` and `gaussian_kl` times their λ, apart:
    `Latents.by_layer` has them under `dirichlet` and `gaussian`.

    Args:
        dim: features. None makes a template without parameters, for `ba.convert`.
        num_heads: heads of the attention that reads it: "quadratic" and `identity` depend on d = dim / num_heads.
        alpha: form of the pseudo-counts.
        kappa: points drawn from each component.
        delta: α^Δ, pseudo-count that the conditional prior adds for each token.
        prior_mean, prior_variance, prior_alpha: m_p, s_p² and α_p at the start; buffers, under `prior`.
        lambda_dirichlet, lambda_gaussian: weights of the two KLs. Published: 1 and 1e-3 (ICLR), 1 and 1e-2 (EMNLP).
        normalisation: "paper" divides the KLs by the number of components and averages over dimensions; "sum" does not.
        threshold: without sampling, pseudo-counts at or below it count as 0. The code of "exp" and "quadratic" has 0.1.
        compat: evaluation of the released versions, see `denoising_attention`; for the layers that `ba.convert` makes.

    >>> import torch, bayesattn as ba
    >>> nvib = ba.nvib.NVIB(16, alpha="relu", delta=0.3, lambda_gaussian=1e-3)
    >>> with ba.record() as recorded:
    ...     latent = nvib(torch.randn(2, 5, 16))
    >>> latent.mean.shape, sorted(recorded.by_layer(nvib))
    (torch.Size([2, 6, 16]), ['dirichlet', 'gaussian'])
    """

    def __init__(
        self,
        dim: int | None = None,
        *,
        num_heads: int = 1,
        alpha: AlphaForm = "exp",
        kappa: int = 1,
        delta: float = 0.0,
        prior_mean: float = 0.0,
        prior_variance: float = 1.0,
        prior_alpha: float = 1.0,
        lambda_dirichlet: float = 1.0,
        lambda_gaussian: float = 1.0,
        normalisation: Normalisation = "paper",
        threshold: float = 0.0,
        compat: Compat | None = None,
    ):
        super().__init__()
        self.dim = dim
        self.num_heads = checks.whole("num_heads", num_heads)
        self.alpha: AlphaForm = checks.one_of("alpha", alpha, ("relu", "exp", "quadratic"))
        self.kappa = checks.whole("kappa", kappa)
        self.delta = _not_negative("delta", delta)
        self.prior_mean = checks.finite("prior_mean", prior_mean)
        self.prior_variance = checks.positive("prior_variance", prior_variance)
        self.prior_alpha = checks.positive("prior_alpha", prior_alpha)
        self.lambda_dirichlet = _not_negative("lambda_dirichlet", lambda_dirichlet)
        self.lambda_gaussian = _not_negative("lambda_gaussian", lambda_gaussian)
        self.normalisation: Normalisation = checks.one_of("normalisation", normalisation, ("paper", "sum"))
        self.threshold = _not_negative("threshold", threshold)
        self.compat: Compat | None = check_compat(compat)
        if dim is not None:
            self._make_parameters(checks.whole("dim", dim))

    def bind(self, *, dim: int, num_heads: int) -> NVIB:
        """A copy with fresh parameters for one layer."""
        if self.dim not in (None, dim):
            raise ValueError(f"This NVIB has dim={self.dim}, the layer {dim}: leave dim out to make a template.")
        bound = copy.deepcopy(self)
        bound.num_heads, bound.dim = checks.whole("num_heads", num_heads), checks.whole("dim", dim)
        bound._make_parameters(dim)
        return bound

    def _make_parameters(self, dim: int) -> None:
        if dim % self.num_heads:
            raise ValueError(f"dim={dim} must be a multiple of num_heads={self.num_heads}.")
        self.mean = nn.Linear(dim, dim)
        self.log_variance = nn.Linear(dim, dim)
        self.log_alpha = nn.Linear(dim, 1)
        if self.alpha == "quadratic":
            self.log_alpha_of_square = nn.Linear(dim, 1, bias=False)
            nn.init.constant_(self.log_alpha_of_square.weight, 0.5 / math.sqrt(self.head_dim))
            nn.init.zeros_(self.log_alpha.weight)
            nn.init.zeros_(self.log_alpha.bias)
        self.prior = ComponentPrior(dim, self.prior_mean, self.prior_variance, self.prior_alpha)
        self.dirichlet = _Term(self.lambda_dirichlet)
        self.gaussian = _Term(self.lambda_gaussian)

    @property
    def head_dim(self) -> int:
        """d, the features of one head."""
        if self.dim is None:
            raise ValueError("This NVIB is a template: make it with dim=, or give it to ba.convert, which does so.")
        return self.dim // self.num_heads

    def forward(
        self,
        x: Float[Tensor, "batch tokens dim"],
        padding_mask: Bool[Tensor, "batch tokens"] | None = None,
        previous_log_alpha: Float[Tensor, "batch tokens"] | None = None,
    ) -> Mixture:
        """The latent of `x`: κ (1 + tokens) drawn points, or 1 + tokens Gaussians; the prior's component is the first.

        `padding_mask` is torch's: True = padding. `previous_log_alpha` is the `log_weight[:, 1:]` of the `posterior` of an NVIB layer
        below: its pseudo-counts multiply this layer's (the alpha skip of stacked layers).
        """
        tokens = self.components(x, padding_mask, previous_log_alpha)
        if recording.kl_is_wanted():
            self._record(self.prior.component(x).append(tokens))
        return self.prior_latent(x).append(self.latent(tokens))

    def posterior(
        self,
        x: Float[Tensor, "batch tokens dim"],
        padding_mask: Bool[Tensor, "batch tokens"] | None = None,
        previous_log_alpha: Float[Tensor, "batch tokens"] | None = None,
    ) -> Mixture:
        """The Gaussians and pseudo-counts, the prior's first."""
        return self.prior.component(x).append(self.components(x, padding_mask, previous_log_alpha))

    def components(
        self,
        x: Float[Tensor, "batch tokens dim"],
        padding_mask: Bool[Tensor, "batch tokens"] | None = None,
        previous_log_alpha: Float[Tensor, "batch tokens"] | None = None,
    ) -> Mixture:
        """The Gaussians and pseudo-counts of the tokens alone, without the prior's."""
        self._check_input(x, padding_mask)
        with torch.autocast(x.device.type, enabled=False):
            log_alpha = self._log_alpha(to_compute(x))
        if previous_log_alpha is not None:
            log_alpha = log_alpha + previous_log_alpha
        mask = torch.ones_like(log_alpha, dtype=torch.bool) if padding_mask is None else ~padding_mask
        return Mixture(to_compute(self.mean(x)), to_compute(self.log_variance(x)), log_alpha, mask)

    def latent(self, tokens: Mixture) -> Mixture:
        """What attention reads of tokens' components in the present mode: drawn points, or all but the smallest of the Gaussians."""
        if modes.draws_now(self):
            return tokens.sample(self.kappa, modes.current_generator())
        if self.threshold == 0:
            return tokens
        log_weight = tokens.log_weight.masked_fill(tokens.log_weight <= math.log(self.threshold), -math.inf)
        return Mixture(tokens.mean, tokens.log_variance, log_weight, tokens.mask)

    def prior_latent(self, x: Float[Tensor, "batch tokens dim"]) -> Mixture:
        """What attention reads of the prior's component in the present mode."""
        component = self.prior.component(x)
        return component.sample(self.kappa, modes.current_generator()) if modes.draws_now(self) else component

    def sample_prior(self, lengths: Tensor, generator: torch.Generator | None = None) -> Mixture:
        """Points from the prior for sequences of these `lengths` (whole numbers, one for each example), ready to decode from.

        A sequence of n tokens has N = n + 1 components of κ points, z ~ N(m_p, s_p²), with weights from Dir((α_p + δ n) / κN each).
        """
        if lengths.dim() != 1 or lengths.is_floating_point() or bool((lengths < 0).any()):
            raise ValueError(f"lengths must be a tensor of whole numbers, one for each example, got {lengths!r}.")
        return self.prior.sample(lengths, self.delta, self.kappa, generator)

    @torch.no_grad()
    def set_identity(self, tau_mu: float = 1.0, tau_sigma: float = 0.0, tau_alpha: float = 10.0) -> None:
        """Set the parameters so that denoising attention is ordinary attention, or that as far as the τ say; see `identity`.

        W_μ = τ_μ I, b = (1 - τ_μ) m_p;   W_σ = 0, b = log (τ_σ s_p)²;   log α_i = ‖x_i‖² / 2 sqrt(d) + τ_α · spread
        """
        if self.alpha != "quadratic":
            raise ValueError(
                f'alpha={self.alpha!r} cannot be ordinary attention: make it with NVIB(alpha="quadratic").'
            )
        checks.finite("tau_mu", tau_mu)
        _not_negative("tau_sigma", tau_sigma)
        checks.finite("tau_alpha", tau_alpha)
        nn.init.eye_(self.mean.weight).mul_(tau_mu)
        self.mean.bias.copy_((1.0 - tau_mu) * self.prior.mean)
        nn.init.zeros_(self.log_variance.weight)
        variance = to_compute(self.prior.log_variance).exp() * tau_sigma**2
        self.log_variance.bias.copy_((variance + torch.finfo(variance.dtype).tiny).log())
        nn.init.constant_(self.log_alpha_of_square.weight, 0.5 / math.sqrt(self.head_dim))
        nn.init.zeros_(self.log_alpha.weight)
        self.log_alpha.bias.copy_(tau_alpha * self.prior.log_alpha_spread)

    def _log_alpha(self, x: Tensor) -> Tensor:
        linear = linear_in_dtype_of(x, self.log_alpha).squeeze(-1)
        if self.alpha == "relu":
            return linear.clamp_min(_SMALLEST_ALPHA).log().masked_fill(linear <= 0, -math.inf)
        if self.alpha == "quadratic":
            return linear + F.linear(x.square(), to_compute(self.log_alpha_of_square.weight, x.dtype)).squeeze(-1)
        return linear

    def _record(self, posterior: Mixture) -> None:
        with torch.autocast(posterior.mean.device.type, enabled=False):
            options = {"kappa": self.kappa, "normalisation": self.normalisation}
            weights = pseudo_count_kl(posterior, self.prior.log_alpha, delta=self.delta, **options)
            vectors = gaussian_kl(
                posterior, to_compute(self.prior.mean), to_compute(self.prior.log_variance), **options
            )
        self.dirichlet.record(weights, posterior)
        self.gaussian.record(vectors, posterior)

    def _check_input(self, x: Tensor, padding_mask: Tensor | None) -> None:
        width = self.head_dim * self.num_heads
        if x.dim() != 3 or x.shape[-1] != width:
            raise ValueError(f"x must have shape (batch, tokens, dim={width}), got {tuple(x.shape)}.")
        if padding_mask is not None and (padding_mask.dtype != torch.bool or padding_mask.shape != x.shape[:2]):
            raise ValueError(
                f"padding_mask must be boolean of shape (batch, tokens) = {tuple(x.shape[:2])}, True at padding; "
                f"got {padding_mask.dtype} of shape {tuple(padding_mask.shape)}."
            )


class _Term(nn.Module):
    """What a KL is recorded under, with its weight: a module, so that it has a name in the model."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight = weight

    def record(self, kl: Float[Tensor, " batch"], posterior: Mixture) -> None:
        count = posterior.mask.sum(-1).to(kl.dtype)
        recording.add_local(
            self.weight * kl, elements=count, rows=torch.ones_like(count), tokens=count - 1.0, source=self
        )


def _not_negative(name: str, value: float) -> float:
    number = checks.finite(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}.")
    return number
