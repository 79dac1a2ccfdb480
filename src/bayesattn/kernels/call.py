"""One call of a fused kernel: its inputs, in the order of the operator's schema."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.numerics.precision import compute_dtype

# What the tiles of native and triton are written for, as in source/ordinary.h; `chunked` computes all else as `reference` does.
LARGEST_SCORE, LARGEST_VALUE, LARGEST_NOISE_SCALE = 1e18, 1e25, 1e36

SCHEMA = (
    "Tensor query, Tensor key, Tensor value, Tensor? allowed, Tensor? bias, Tensor? key_lengths, Tensor? seed, Tensor? noise_scale, "
    "Tensor? prior_logits, Tensor? prior_total, float scale, bool causal, str noise, str generator, float dropout_p, str statistics, "
    "bool wants_total, bool wants_exponentials, float log_concentration, int samples, str backend"
)


class Call(NamedTuple):
    """Everything that attention depends on; the gradients it has are those of `DIFFERENTIABLE`.

    Shapes: query [batch, heads, query, features], key and value [batch, key_heads, key, ...]; allowed and bias broadcast to [batch, heads,
    query, key]; key_lengths [batch]; noise_scale and prior_total [batch, heads, query], prior_logits [batch, heads, key].
    """

    query: Tensor
    key: Tensor
    value: Tensor
    allowed: Tensor | None
    bias: Tensor | None
    key_lengths: Tensor | None
    seed: Tensor | None
    noise_scale: Tensor | None
    prior_logits: Tensor | None
    prior_total: Tensor | None
    scale: float
    causal: bool
    noise: str
    generator: str
    dropout_p: float
    statistics: str
    wants_total: bool
    wants_exponentials: bool
    log_concentration: float
    samples: int
    backend: str

    def is_ordinary(self, *upstream: Tensor) -> bool:
        """Whether no number is NaN, infinite, or so large that a sum or a product might overflow in float32."""
        largest_score = _largest(self.query) * _largest(self.key) * abs(self.scale) * self.query.shape[-1]
        return (
            _largest(self.prior_logits) < LARGEST_SCORE
            and _largest(self.prior_total) < LARGEST_SCORE
            and largest_score < LARGEST_SCORE
            and self.has_ordinary_bias()
            and _largest(self.value) < LARGEST_VALUE
            and _largest(self.noise_scale) < LARGEST_NOISE_SCALE
            and all(_largest(tensor) < math.inf for tensor in upstream)
        )

    def has_ordinary_bias(self) -> bool:
        """The part of `is_ordinary` that native leaves to us, because it sees the bias expanded to all pairs."""
        return _largest(self.bias) < LARGEST_SCORE

    @property
    def uses_gamma(self) -> bool:
        """Whether anything depends on Gamma concentrations, and so on the totals of the rows."""
        return "gamma" in (self.noise, self.statistics)

    @property
    def groups(self) -> int:
        """How many query heads share a key head."""
        return self.query.shape[1] // self.key.shape[1]

    def empty_results(self) -> tuple[Tensor, Tensor, Tensor]:
        """Room for the output, the log total of each row's weights, and the rows' statistics [4, batch, heads, query].

        The output has the dtype of the queries, what belongs to rows is float32 or better.
        """
        batch, heads, queries, _ = self.query.shape
        rows, dtype = (self.samples * batch, heads, queries), compute_dtype(self.query.dtype)
        return (
            self.query.new_empty(*rows, self.value.shape[-1]),
            self.query.new_empty(rows, dtype=dtype),
            self.query.new_empty(4, batch, heads, queries, dtype=dtype),
        )

    def zero_gradients(self) -> tuple[Tensor, ...]:
        """Zeros for the gradients of `DIFFERENTIABLE`; of size 0 for what the call does not have."""
        tensors = [getattr(self, name) for name in DIFFERENTIABLE]
        return tuple(
            self.query.new_zeros(0) if tensor is None else tensor.new_zeros(tensor.shape) for tensor in tensors
        )


def _largest(tensor: Tensor | None) -> float:
    """The largest |x|; NaN if there is one."""
    if tensor is None or not tensor.numel():
        return 0.0
    lowest, highest = torch.stack(torch.aminmax(tensor)).tolist()
    return max(-lowest, highest) if lowest == lowest else math.nan


DIFFERENTIABLE = ("query", "key", "value", "noise_scale", "prior_logits", "prior_total")


class Saved(NamedTuple):
    """What the backward pass gets: the gradients of the results, and the results."""

    grad_output: Tensor
    grad_statistics: Tensor
    output: Tensor
    log_total: Tensor
    statistics: Tensor
