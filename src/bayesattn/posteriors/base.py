"""The contract of a posterior: scores in, random log weights out, a KL on the side."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from bayesattn.numerics.counter_noise import Noise
from bayesattn.posteriors.fused_form import FusedForm
from bayesattn.posteriors.rows import Rows
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.support.configurable import Configurable

Bound = TypeVar("Bound", bound="Posterior")


class Posterior(Configurable, nn.Module, ABC):
    """A distribution q(S | scores) of unnormalised attention weights S; the attention is W = S / Σ S over the keys.

    A posterior is written once and works everywhere. It implements

        log_sample(scores, rows) → log S    differentiable; a constant for each row may be left out, W does not change
        kl(scores, keys, rows)   → [batch]  the KL to its prior, summed over everything that `rows` counts

    and inherits `log_mean(scores) → scores`, the point estimate of the papers, E[S] ∝ exp(scores).
    Scores come in float32 or better, finite, with additive masks already added and 0 at masked places; `rows` has the sums.

    A `log_sample(scores, rows, generator, keys)` is given the keys too, by that name.

    Two more things may be said, both for speed alone. `counter_noise = True` if `log_sample` passes its `generator` on to
    `counter_noise.log_exponential` or `counter_noise.standard_normal` and draws in no other way: `attend` may then give it a
    `CounterNoise` in place of a torch.Generator. And `fused_form`, for the kernels: without it, a posterior runs on
    `reference`; one that has a form for some of its options alone says for which in `has_fused_form`.

    An instance is a template: its constructor takes hyper-parameters only. `bind(num_heads, head_dim)` gives a copy with the
    learned parameters of one layer; `ba.convert` and the modules of `ba.nn` do that. One without parameters needs no binding.
    """

    counter_noise: ClassVar[bool] = False
    samples_from_keys: ClassVar[bool] = False
    """Whether `log_sample` has an argument `keys`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.samples_from_keys = "keys" in inspect.signature(cls.log_sample).parameters

    def __init__(self) -> None:
        super().__init__()
        self.num_heads: int | None = None

    def bind(self: Bound, *, num_heads: int, head_dim: int) -> Bound:
        """A copy with fresh parameters for one layer."""
        checks.whole("num_heads", num_heads)
        checks.whole("head_dim", head_dim)
        bound = copy.deepcopy(self)
        bound.num_heads = num_heads
        bound._make_parameters(num_heads, head_dim)
        return bound

    def _make_parameters(self, num_heads: int, head_dim: int) -> None:
        """Make what depends on the layer's sizes."""

    @property
    def needs_binding(self) -> bool:
        """Whether parameters are still to be made."""
        return False

    @abstractmethod
    def log_sample(self, scores: Float[Tensor, "..."], rows: Rows, generator: Noise = None) -> Tensor:
        """log S, up to a constant for each row."""

    def log_mean(self, scores: Float[Tensor, "..."]) -> Tensor:
        """log E[S], up to a constant for each row."""
        return scores

    def log_prior(self, scores: Float[Tensor, "..."], keys: Tensor, rows: Rows) -> Tensor:
        """log of what the prior expects of S, up to a constant for each row; something that broadcasts against pairs.

        The same for all keys unless a posterior says otherwise."""
        return scores.new_zeros(())

    @property
    def has_fused_form(self) -> bool:
        """Whether there is a `fused_form`. Asked on every call, so it must be cheap; without one, attention runs on `reference`."""
        return type(self).fused_form is not Posterior.fused_form

    def fused_form(self, keys: Float[Tensor, "batch key_heads key features"], queries: int, with_kl: bool) -> FusedForm:
        """This posterior in the form that the kernels know, for so many queries; what only its KL needs is left out unless `with_kl`."""
        raise NotImplementedError(f"{type(self).__name__} has no fused form.")

    @abstractmethod
    def kl(self, scores: Float[Tensor, "..."], keys: Tensor, rows: Rows) -> Float[Tensor, " batch"]:
        """KL(q ‖ prior) of each example."""
