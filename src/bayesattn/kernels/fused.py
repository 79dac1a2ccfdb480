"""Attention through the operator: masks as the kernels want them, and the KL of each row from its sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesattn.kernels.operator import attention_directly
from bayesattn.numerics.counter_noise import CounterNoise
from bayesattn.numerics.precision import compute_dtype
from bayesattn.posteriors.fused_form import FusedForm, RowSums
from bayesattn.support.annotations import Bool, Float


class Masks(NamedTuple):
    """Which pairs are allowed, without a tensor of all pairs unless the caller brought one."""

    allowed: Bool[Tensor, "#batch #heads #query #key"] | None
    key_lengths: Tensor | None
    causal: bool
    queries: int
    keys: int

    @property
    def depends_on_query(self) -> bool:
        """Whether queries differ otherwise than by the causal mask."""
        return self.allowed is not None and self.allowed.shape[2] > 1

    def _of_keys(self, device: torch.device) -> Tensor | None:
        """The allowed keys of every query, [batch, heads, key], where there is a mask of that kind; not `causal`."""
        of_keys = None
        if self.allowed is not None:
            of_keys = self.allowed[:, :, 0].expand(-1, -1, self.keys)
        if self.key_lengths is not None:
            inside = torch.arange(self.keys, device=device) < self.key_lengths.view(-1, 1, 1)
            of_keys = inside if of_keys is None else of_keys & inside
        return of_keys

    def pairs(self, device: torch.device) -> Tensor:
        """All masks as one."""
        pairs = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device) if self.allowed is None else self.allowed
        column = torch.arange(self.keys, device=device)
        if self.key_lengths is not None:
            pairs = pairs & (column < self.key_lengths.view(-1, 1, 1, 1))
        if self.causal:
            pairs = pairs & (column <= torch.arange(self.queries, device=device).unsqueeze(-1))
        return pairs

    def sizes(self, like: Tensor) -> Float[Tensor, "#batch #heads #query"]:
        """How many keys each row has."""
        if self.depends_on_query:
            pairs = self.pairs(like.device)
            return pairs.expand(*pairs.shape[:3], self.keys).sum(-1).to(like.dtype)
        of_keys = self._of_keys(like.device)
        if of_keys is None and not self.causal:
            return like.new_full((1, 1, 1), self.keys)
        if of_keys is None:
            of_keys = torch.ones(1, 1, self.keys, dtype=torch.bool, device=like.device)
        if self.causal:
            return of_keys.cumsum(-1)[..., self._last_key(like.device)].to(like.dtype)
        return of_keys.sum(-1, keepdim=True).to(like.dtype)

    def log_totals(self, logits: Float[Tensor, "batch heads key"]) -> Float[Tensor, "batch heads #query"]:
        """log Σ exp of the keys' logits over the keys of each row; 0 in an empty row."""
        if self.depends_on_query:
            return _MaskedLogTotal.apply(logits, self.pairs(logits.device))
        of_keys = self._of_keys(logits.device)
        # a number and not -inf: the gradient of an empty row must be 0, not NaN
        filled = logits if of_keys is None else logits.masked_fill(~of_keys, -1e30)
        totals = filled.logcumsumexp(-1) if self.causal else filled.logsumexp(-1, keepdim=True)
        if self.causal:
            totals = totals[..., self._last_key(logits.device)]
        return totals if of_keys is None else totals.masked_fill(totals < -1e29, 0.0)

    def _last_key(self, device: torch.device) -> Tensor:
        return torch.arange(self.queries, device=device).clamp_max(self.keys - 1)


class FusedAttention(NamedTuple):
    """The output, and where the KL was wanted, it and its numbers of elements and rows, one for each example."""

    output: Float[Tensor, "batch heads query value"]
    recorded: tuple[Float[Tensor, " batch"], Float[Tensor, " batch"], Float[Tensor, " batch"]] | None = None


def attend_fused(
    query: Float[Tensor, "batch heads query features"],
    key: Float[Tensor, "batch key_heads key features"],
    value: Float[Tensor, "batch key_heads key value"],
    form: FusedForm,
    masks: Masks,
    bias: Tensor | None,
    *,
    backend: str,
    scale: float,
    noise: CounterNoise | None,
    with_noise: bool,
    with_kl: bool,
    dropout_p: float,
    counted: Bool[Tensor, "batch query"] | None,
) -> FusedAttention:
    """Attention with the posterior of this form, in float32 or float64; `key` and `value` may have fewer heads than `query`.

    `native` takes numbers of 16 bits as they are.
    """
    dtype = compute_dtype(query.dtype)
    batch, heads, queries, _ = query.shape
    rows = (batch, heads, queries)
    noisy = with_noise and form.noise != "none"
    prior_logits = prior_total = None
    if with_kl and form.prior_logits is not None:
        groups = heads // key.shape[1]
        prior_logits = form.prior_logits if groups == 1 else form.prior_logits.repeat_interleave(groups, 1)
        prior_total = masks.log_totals(prior_logits).expand(rows)
    noise_scale = None
    of_gamma = (noisy and form.noise == "gamma") or (with_kl and form.statistics == "gamma")
    if noisy or of_gamma:
        noise_scale = torch.as_tensor(form.scale, dtype=dtype, device=query.device).expand(rows)
    output, _, statistics = attention_directly(
        query,
        key,
        value,
        masks.allowed,
        bias,
        masks.key_lengths,
        None if noise is None else noise.seed,
        noise_scale,
        prior_logits,
        prior_total,
        scale,
        masks.causal,
        form.noise if noisy else "none",
        "philox" if noise is None else noise.generator,
        dropout_p,
        form.statistics if with_kl else "nothing",
        (form.wants_total and with_kl) or of_gamma,
        form.wants_exponentials and with_kl,
        form.log_concentration,
        1,
        backend,
    )
    if not with_kl:
        return FusedAttention(output)
    size = masks.sizes(statistics)
    filled = size.clamp_max(1.0)
    of_total, first, second, exponentials = statistics.unbind(0)
    kl = form.kl(RowSums(size, filled, of_total, first, second, exponentials, prior_total))

    def total(of_rows: Tensor) -> Tensor:
        of_rows = of_rows.expand(rows)
        return (of_rows if counted is None else of_rows.masked_fill(~counted.unsqueeze(1), 0.0)).flatten(1).sum(1)

    return FusedAttention(output, (total(kl), total(size), total(filled)))


class _MaskedLogTotal(torch.autograd.Function):
    """`Masks.log_totals` for a mask of all pairs, in chunks of queries: the mask itself stays the largest tensor."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, pairs: Tensor) -> Tensor:
        totals = [
            logits.unsqueeze(2).masked_fill(~part, float("-inf")).logsumexp(-1) for part in pairs.split(_CHUNK, 2)
        ]
        result = torch.cat(totals, 2)
        result = result.masked_fill(result == float("-inf"), 0.0)
        ctx.save_for_backward(logits, pairs, result)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        logits, pairs, result = ctx.saved_tensors
        gradient = torch.zeros_like(logits)
        parts = (pairs.split(_CHUNK, 2), result.split(_CHUNK, 2), upstream[0].split(_CHUNK, 2))
        for part, total, of_total in zip(*parts, strict=True):
            shares = (logits.unsqueeze(2) - total.unsqueeze(-1)).masked_fill(~part, float("-inf")).exp()
            gradient += (of_total.unsqueeze(-2) @ shares).squeeze(-2)
        return gradient, None


_CHUNK = 64
