"""Priors of the unnormalised attention weights: fixed, or computed from the keys.

A prior of BAM says what a weight is before the query is seen. The contextual ones give every key a share,

    Psi = softmax over keys of F2(activation(F1(key))),     F1: head_dim → hidden,  F2: hidden → 1,

one network for all heads, which is trained through the KL alone. The softmax runs over the keys that the query may attend to
(over="row", the default), or over all keys of the example (over="all": the released graph code of BAM, where a node's
neighbours then share far less than one).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.numerics.formulas import log_gamma_function
from bayesattn.numerics.precision import compute_dtype, linear_in_dtype_of, to_compute
from bayesattn.posteriors.fused_form import RowSums, Statistics
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.support.configurable import Configurable, register

Activation = Literal["relu", "leaky_relu", "tanh", "none"]
Over = Literal["row", "all"]

_ACTIVATIONS = {
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "tanh": torch.tanh,
    "none": lambda x: x,
}


class KeyNetwork(nn.Module):
    """log Psi: the log share of each key, from the keys alone, for every row."""

    def __init__(self, head_dim: int, hidden: int, activation: Activation = "relu", over: Over = "row"):
        super().__init__()
        self.inner = nn.Linear(head_dim, hidden)
        self.outer = nn.Linear(hidden, 1)
        self.activation = activation
        self.over = over
        for layer in (self.inner, self.outer):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, keys: Float[Tensor, "..."], rows: Rows) -> Tensor:
        if self.over == "all":
            return rows.keys_to_pairs(self.of_all_keys(keys, rows))
        return rows.log_softmax(rows.keys_to_pairs(self.logits(keys)))

    def of_all_keys(self, keys: Float[Tensor, "..."], rows: Rows) -> Tensor:
        """log Psi of each key, where it is shared among all keys of the example."""
        return rows.log_softmax_of_all_keys(self.logits(keys))

    def logits(self, keys: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape"]:
        """One number for each key: log Psi up to a constant for each row."""
        if keys.shape[-1] != self.inner.in_features:
            raise ValueError(
                f"The contextual prior was bound with head_dim={self.inner.in_features}, the keys have {keys.shape[-1]} "
                "features: bind the posterior again with the head_dim of this layer."
            )
        keys = to_compute(keys)
        with torch.autocast(keys.device.type, enabled=False):  # the kernels ask for it outside of the block that draws
            inner = linear_in_dtype_of(keys, self.inner)
            return linear_in_dtype_of(_ACTIVATIONS[self.activation](inner), self.outer).squeeze(-1)


class Prior(Configurable, nn.Module, ABC):
    """A prior of the unnormalised weights. `bind` makes the parameters that depend on the layer's sizes."""

    def bind(self, head_dim: int) -> None:
        """Make the parameters of this prior for a layer whose heads have `head_dim` features."""

    @property
    def needs_binding(self) -> bool:
        """Whether parameters are still to be made."""
        return False

    @property
    def fusable(self) -> bool:
        """Whether the posterior's `fused_form` knows this prior."""
        return False

    def share_logits(self, keys: Tensor) -> Tensor | None:
        """log Psi of each key up to a constant for each row, where the prior depends on the keys."""
        return None


class _Contextual(Prior):
    """What the contextual priors share: the network on the keys."""

    hidden: int
    activation: Activation
    over: Over
    network: KeyNetwork | None

    def bind(self, head_dim: int) -> None:
        self.network = KeyNetwork(head_dim, self.hidden, self.activation, self.over)

    @property
    def needs_binding(self) -> bool:
        return self.network is None

    def share_logits(self, keys: Tensor) -> Tensor:
        assert self.network is not None  # check_posterior() has said so
        return self.network.logits(keys)

    def log_shares(self, keys: Tensor, rows: Rows) -> Tensor:
        """log Psi for every pair."""
        assert self.network is not None  # check_posterior() has said so
        return self.network(keys, rows)


class GammaFamily(Prior):
    """A Gamma prior: the log of its concentration alpha for each pair, and its rate beta."""

    beta: float
    log_alpha_of_whole: float = 0.0
    """For a contextual prior: the log of the sum of a row's alphas."""

    @abstractmethod
    def log_alpha(self, keys: Tensor, rows: Rows) -> Tensor: ...

    def concentration(self, keys: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """alpha and lgamma(alpha) for each pair."""
        log_alpha = self.log_alpha(keys, rows)
        return log_alpha.exp(), log_gamma_function(log_alpha)

    def log_alpha_of_all(self, like: Tensor) -> Tensor:
        """For a fixed prior: the log alpha of all pairs, in the dtype of `like`."""
        raise NotImplementedError(f"{type(self).__name__} says that it is fusable, but has no log_alpha_of_all.")


class LogNormalFamily(Prior):
    """A lognormal prior: the mean of its logarithm for each pair, and the scale of its logarithm."""

    sigma: float | None
    statistics: Statistics = "squares"
    """Which sums of the scores the KL to this prior needs; see `RowSums`."""

    @abstractmethod
    def log_location(self, keys: Tensor, rows: Rows) -> Tensor: ...

    def scale(self, posterior_sigma: float) -> float | Tensor:
        """The scale: `sigma`, or where that is None, 1 or the posterior's scale if it is larger."""
        return max(1.0, posterior_sigma) if self.sigma is None else self.sigma

    def offset(self, sums: RowSums) -> float | Tensor:
        """What `statistics` leaves out of the location, the same for a whole row."""
        return 0.0


@register
class GammaPrior(GammaFamily):
    """Gamma(alpha, rate beta) for every pair, the same everywhere: BAM-WF.

    Args:
        alpha: concentration; as small as 1e-15 works.
        beta: rate; the prior's mean is alpha / beta.
        learnable: train one alpha for the layer (the released code's "parameter" prior), kept positive by its logarithm.
    """

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, learnable: bool = False):
        super().__init__()
        self.alpha = checks.positive("alpha", alpha, "It is the concentration of the Gamma prior.")
        self.beta = checks.positive("beta", beta, "It is the rate of the Gamma prior.")
        self.learnable = learnable
        if learnable:
            self._log_alpha = nn.Parameter(torch.tensor(math.log(self.alpha)))

    def log_alpha(self, keys: Tensor, rows: Rows) -> Tensor:
        return self.log_alpha_of_all(keys)

    @property
    def fusable(self) -> bool:
        return True

    def log_alpha_of_all(self, like: Tensor) -> Tensor:
        dtype = compute_dtype(like.dtype)
        if self.learnable:
            return to_compute(self._log_alpha, dtype)
        return torch.full((), math.log(self.alpha), dtype=dtype, device=like.device)


@register
class ContextualGamma(_Contextual, GammaFamily):
    """Gamma(alpha_j, rate beta) with alpha_j from key j: BAM-WC.

    Args:
        beta: rate of the prior.
        hidden: width of the network on the keys (the paper: 1 to 20).
        alpha_scale: "beta" (default): alpha_j = beta · Psi_j, as in the released code, so that the prior's mean is Psi_j, on
            the scale of attention weights. "one": alpha_j = Psi_j, as the paper prints it; the prior's mean is then Psi_j / beta.
        activation: between the two layers of the network.
        over: the keys among which Psi is shared: "row", those that the query may attend to, or "all" of the example.
    """

    def __init__(
        self,
        beta: float = 1e-2,
        hidden: int = 5,
        alpha_scale: Literal["beta", "one"] = "beta",
        activation: Activation = "relu",
        over: Over = "row",
    ):
        super().__init__()
        self.beta = checks.positive("beta", beta, "It is the rate of the Gamma prior.")
        self.hidden = checks.whole("hidden", hidden)
        self.alpha_scale = checks.one_of("alpha_scale", alpha_scale, ("beta", "one"))
        self.activation = checks.one_of("activation", activation, _ACTIVATIONS)
        self.over = checks.one_of("over", over, ("row", "all"))
        self.network = None
        self.log_alpha_of_whole = math.log(self.beta) if alpha_scale == "beta" else 0.0

    def log_alpha(self, keys: Tensor, rows: Rows) -> Tensor:
        return self.log_shares(keys, rows) + self.log_alpha_of_whole

    def concentration(self, keys: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        if self.over == "row":
            return super().concentration(keys, rows)
        assert self.network is not None  # check_posterior() has said so
        # one value for each key: lgamma and its gradient are dear, and there are more pairs than keys
        log_alpha = self.network.of_all_keys(keys, rows) + self.log_alpha_of_whole
        return rows.keys_to_pairs(log_alpha.exp()), rows.keys_to_pairs(log_gamma_function(log_alpha))

    @property
    def fusable(self) -> bool:
        # the kernels normalise over each row, and their log-gamma function goes no further
        return self.over == "row" and self.log_alpha_of_whole < math.log(1e6)


@register
class LogNormalPrior(LogNormalFamily):
    """LogNormal(mean, sigma²) for every pair, the same everywhere: BAM-LF.

    Args:
        mean: mean of the logarithm (the paper: 0).
        sigma: scale of the logarithm. None takes 1, or the posterior's sigma if that is larger: the KL then stays representable
            for every posterior sigma.
        learnable: train one sigma for the layer (the released code's "parameter" prior), starting from `sigma`.
    """

    def __init__(self, mean: float = 0.0, sigma: float | None = None, learnable: bool = False):
        super().__init__()
        self.mean = checks.finite("mean", mean)
        self.sigma = (
            None if sigma is None else checks.positive("sigma", sigma, "It is the scale of the lognormal prior.")
        )
        if learnable and sigma is None:
            raise ValueError("learnable=True needs sigma=, the value that training starts from; got None.")
        self.learnable = learnable
        if learnable:
            self._log_sigma = nn.Parameter(torch.tensor(self.sigma).log())

    def scale(self, posterior_sigma: float) -> float | Tensor:
        return to_compute(self._log_sigma).exp() if self.learnable else super().scale(posterior_sigma)

    @property
    def fusable(self) -> bool:
        return True

    def offset(self, sums: RowSums) -> float:
        return self.mean

    def log_location(self, keys: Tensor, rows: Rows) -> Tensor:
        return torch.full((), self.mean, dtype=compute_dtype(keys.dtype), device=keys.device)


@register
class ContextualLogNormal(_Contextual, LogNormalFamily):
    """LogNormal(m_j, sigma²) with m_j from key j: BAM-LC.

    Args:
        sigma: scale of the logarithm; None as in `LogNormalPrior`.
        hidden: width of the network on the keys.
        location: "log" (default): m_j = log Psi_j, as in the released code: the prior's median is Psi_j, on the scale of attention
            weights. "share": m_j = Psi_j itself, as the paper prints it.
        activation: between the two layers of the network.
        over: the keys among which Psi is shared: "row", those that the query may attend to, or "all" of the example.
    """

    def __init__(
        self,
        sigma: float | None = None,
        hidden: int = 5,
        location: Literal["log", "share"] = "log",
        activation: Activation = "relu",
        over: Over = "row",
    ):
        super().__init__()
        self.sigma = (
            None if sigma is None else checks.positive("sigma", sigma, "It is the scale of the lognormal prior.")
        )
        self.hidden = checks.whole("hidden", hidden)
        self.location = checks.one_of("location", location, ("log", "share"))
        self.activation = checks.one_of("activation", activation, _ACTIVATIONS)
        self.over = checks.one_of("over", over, ("row", "all"))
        self.network = None
        self.statistics = "squares_log" if location == "log" else "squares_share"

    @property
    def fusable(self) -> bool:
        return self.over == "row"  # the kernels normalise over each row

    def offset(self, sums: RowSums) -> float | Tensor:
        assert sums.prior_total is not None
        return -sums.prior_total if self.location == "log" else 0.0

    def log_location(self, keys: Tensor, rows: Rows) -> Tensor:
        shares = self.log_shares(keys, rows)
        return shares if self.location == "log" else shares.exp()
