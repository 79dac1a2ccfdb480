"""A scope in which the softmax of an attention layer, wherever its own code calls it, is our drawing of weights.

The layer's code runs as it is: it makes the scores, adds its masks and biases, calls softmax over the keys, drops out, averages the
values. Inside the scope, three calls are ours: a softmax over the last dimension of scores [batch, heads, query, key] or
[batch · heads, query, key]; `F.scaled_dot_product_attention`; and `F.multi_head_attention_forward`. Everything else goes through.

What is added to the scores cannot be told from what they were. So a pair is blocked if it lies `DISTANCE` below the largest score of
its row, where the softmax is exactly 0 in every dtype, or if it is as low as no score is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesattn.attention import attend
from bayesattn.attention.functional import weights_of_scores
from bayesattn.attention.masks import may_attend
from bayesattn.convert.transformers.attention_function import (
    LOWEST_BIAS_IN_WINDOWS,
    Passage,
    with_low_values_blocked,
)
from bayesattn.convert.transformers.surroundings import has_shifted_windows, padding_of_model
from bayesattn.posteriors import Posterior
from bayesattn.scopes.recording import kl_is_wanted
from bayesattn.support.annotations import Bool, Float

DISTANCE = 5000.0
_LOWEST_SCORE = -1e9
_SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
_WITH_SUMMAND = {torch.baddbmm, Tensor.baddbmm}
_PRODUCTS = {
    *_WITH_SUMMAND,
    torch.matmul,
    Tensor.matmul,
    Tensor.__matmul__,
    torch.bmm,
    Tensor.bmm,
    torch.einsum,
}


class Redirection(TorchFunctionMode):
    """Inside this block, the attention of one layer is drawn from its posterior."""

    def __init__(self, layer: nn.Module, posterior: Posterior, heads: int, passage: Passage):
        super().__init__()
        self.layer = layer
        self.posterior = posterior
        self.heads = heads
        self.passage = passage
        self.calls = 0
        self.products: list[tuple[torch.Size, Callable[[], Tensor | None]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SOFTMAX:
            return self._softmax(func, *args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self._count()
            return self._dot_product_attention(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            self._count()
            return self._multi_head_attention(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in _PRODUCTS and not self.calls:
            self.products.append((result.shape, _keys_of_product(func, args, kwargs)))
        return result

    def _count(self) -> None:
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError(_wrong_number(self.layer, "more than one"))

    def check(self) -> None:
        """Raise unless the layer's forward went through our attention."""
        if self.calls != 1:
            raise RuntimeError(_wrong_number(self.layer, "no"))

    def _softmax(self, func: Any, scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The signatures of torch's three softmax functions."""
        dim = kwargs["dim"] if "dim" in kwargs else args[0] if args else None
        shape = self._shape(scores) if dim in (-1, scores.dim() - 1) else None
        if shape is None:
            return func(scores, *args, **kwargs)
        self._count()
        dtype = kwargs.get("dtype") or next((each for each in args if isinstance(each, torch.dtype)), scores.dtype)
        seen = scores.view(shape) if scores.is_contiguous() else scores.reshape(shape)
        weights = self._draw(seen, self._keys(scores, shape))
        return weights.reshape(scores.shape).to(dtype)

    def _shape(self, scores: Tensor) -> tuple[int, int, int, int] | None:
        """[batch, heads, query, key] of what a softmax was asked for; None if it is no attention."""
        if scores.dim() == 4 and scores.shape[1] == self.heads:
            return tuple(scores.shape)  # pyright: ignore[reportReturnType]
        if scores.dim() == 3 and scores.shape[0] % self.heads == 0:
            return (scores.shape[0] // self.heads, self.heads, scores.shape[1], scores.shape[2])
        return None

    def _keys(self, scores: Tensor, shape: tuple[int, int, int, int]) -> Float[Tensor, "batch heads key features"]:
        """Of the first product of queries and keys."""
        for product, keys_of in self.products:
            if product[-2:] == scores.shape[-2:] and product.numel() == scores.numel():
                keys = keys_of()
                if keys is not None:
                    batch, heads, _, length = shape
                    if keys.dim() == 3:
                        keys = keys.unflatten(0, (batch, heads))
                    return keys.expand(batch, heads, length, keys.shape[-1])
        raise RuntimeError(
            f"{type(self.layer).__name__} makes its scores in a way that Bayesian attention cannot follow: no product of queries and keys "
            f"has the shape {tuple(scores.shape)} of what it takes the softmax of. Revert the model, or leave this layer out with where=."
        )

    def _draw(self, scores: Tensor, keys: Tensor) -> Tensor:
        allowed = _allowed(scores)
        if has_shifted_windows(self.layer):
            allowed = allowed & _allowed_in_windows(self.passage, scores)
        counted = self._counted(allowed) if kl_is_wanted() else None
        return weights_of_scores(scores, keys, self.posterior, allowed, query_mask=counted)

    def _counted(self, allowed: Bool[Tensor, "batch heads query key"]) -> Bool[Tensor, "batch query"] | None:
        """False for queries that are padding: they get no KL.

        In self-attention that is a position to which nobody attends; or, where padding attends to itself, nobody else, and the
        model's own mask says so.
        """
        batch, _, queries, keys = allowed.shape
        padding = padding_of_model()
        if queries == keys and not self.passage.is_cross_attention:
            attended = allowed.flatten(1, 2).any(1)
            if padding is None or padding.shape != (batch, queries):
                return attended
            itself = torch.eye(queries, dtype=torch.bool, device=allowed.device)
            return attended & (padding | (allowed & ~itself).flatten(1, 2).any(1))
        if type(self.layer).__name__.endswith("FunnelRelMultiheadAttention"):
            return _not_pooled_from_padding(self.layer, self.passage, queries)
        length = queries if self.passage.is_cross_attention else keys
        return padding[:, length - queries :] if padding is not None and padding.shape == (batch, length) else None

    def _dot_product_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """The signature of `F.scaled_dot_product_attention`."""
        batch, _, queries, _ = query.shape
        mask = with_low_values_blocked(attn_mask, has_shifted_windows(self.layer))
        counted = None
        if kl_is_wanted():
            allowed = query.new_ones((1, 1), dtype=torch.bool) if mask is None else may_attend(mask)
            allowed = allowed.view((1,) * (4 - allowed.dim()) + allowed.shape)
            counted = self._counted(allowed.expand(batch, allowed.shape[1], queries, key.shape[2]))
        return attend(
            query,
            key,
            value,
            self.posterior,
            mask,
            is_causal,
            scale,
            dropout_p=dropout_p,
            enable_gqa=True,
            query_mask=counted,
        )

    def _multi_head_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        embed_dim_to_check: int,
        num_heads: int,
        in_proj_weight: Tensor | None,
        in_proj_bias: Tensor | None,
        bias_k: Tensor | None,
        bias_v: Tensor | None,
        add_zero_attn: bool,
        dropout_p: float,
        out_proj_weight: Tensor,
        out_proj_bias: Tensor | None,
        training: bool = True,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        use_separate_proj_weight: bool = False,
        q_proj_weight: Tensor | None = None,
        k_proj_weight: Tensor | None = None,
        v_proj_weight: Tensor | None = None,
        static_k: Tensor | None = None,
        static_v: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The signature of `F.multi_head_attention_forward`, [length, batch, features], for what WavLM asks of it."""
        unknown = (bias_k, bias_v, static_k, static_v)
        if any(each is not None for each in unknown) or add_zero_attn or is_causal or not use_separate_proj_weight:
            raise RuntimeError(
                f"{type(self.layer).__name__} calls F.multi_head_attention_forward with options that Bayesian attention does not know."
            )
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (
            F.linear(states, weight, bias).unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)  # pyright: ignore[reportArgumentType]
            for states, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if attn_mask is not None:
            mask = attn_mask.view(scores.shape) if attn_mask.dim() == 3 else attn_mask
            is_blocked = mask.dtype == torch.bool  # True means so here
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min) if is_blocked else scores + mask
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], torch.finfo(scores.dtype).min)
        drawn = self._draw(scores, k).to(v.dtype)
        output = F.dropout(drawn, dropout_p, training) @ v
        output = F.linear(output.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
        if not need_weights:
            return output, None
        return output, drawn.mean(1) if average_attn_weights else drawn


def _allowed(scores: Float[Tensor, "batch heads query key"]) -> Bool[Tensor, "batch heads query key"]:
    """True where a score is one, and not a mask. NaN is a score like any other."""
    scores = scores.detach()
    lowest = max(torch.finfo(scores.dtype).min / 2, _LOWEST_SCORE)
    largest = scores.amax(-1, keepdim=True)
    return ~((scores <= lowest) | (largest - scores >= DISTANCE))


def _allowed_in_windows(passage: Passage, scores: Tensor) -> Bool[Tensor, "#batch 1 #query #key"]:
    """What the mask of shifted windows says, [windows, query, key], the same for every example: -100 where it blocks."""
    mask = passage.given.get("attention_mask")
    if not isinstance(mask, Tensor):
        return scores.new_ones((1, 1, 1, 1), dtype=torch.bool)
    return (mask > LOWEST_BIAS_IN_WINDOWS).repeat(scores.shape[0] // mask.shape[0], 1, 1).unsqueeze(1)


def _not_pooled_from_padding(layer: Any, passage: Passage, queries: int) -> Bool[Tensor, "batch query"] | None:
    """Of Funnel's queries that are pooled from the keys, those with real keys alone: the mask that the next layer has."""
    mask = passage.given["attention_inputs"][2]
    if mask is None:
        return None
    if layer.config.separate_cls:
        mask = torch.cat([mask[:, :1], mask[:, :-1] if layer.config.truncate_seq else mask], 1)
    pooled = F.max_pool1d(1.0 - mask[:, None].float(), 2, ceil_mode=True)[:, 0] == 0
    return pooled if pooled.shape[1] == queries else None


def _keys_of_product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Tensor | None]:
    """Takes the keys, [..., key, features], out of the operands of a product of queries and keys."""
    if func is torch.einsum:
        return lambda: _keys_of_einsum(*args)
    position, names = (2, ("batch2",)) if func in _WITH_SUMMAND else (1, ("other", "mat2"))
    given = args[position] if len(args) > position else next((kwargs[name] for name in names if name in kwargs), None)
    return lambda: given.transpose(-2, -1) if isinstance(given, Tensor) and given.dim() > 2 else None


def _keys_of_einsum(equation: Any, *operands: Any) -> Tensor | None:
    """[batch, heads, key, features] of the second operand, if the equation is one of queries and keys."""
    if not isinstance(equation, str) or len(operands) != 2 or "..." in equation or "->" not in equation:
        return None
    sources, result = equation.replace(" ", "").split("->")
    labels = sources.split(",")[1]
    summed = set(labels) - set(result)
    wanted = [*result[:2], result[-1], *summed] if len(result) == 4 else [result[0], result[-1], *summed]
    if len(summed) != 1 or set(wanted) != set(labels) or len(wanted) != len(labels):
        return None
    return operands[1].permute([labels.index(label) for label in wanted])


def _wrong_number(layer: nn.Module, number: str) -> str:
    return (
        f"The forward of {type(layer).__name__} made {number} softmax over the keys of all its heads that Bayesian attention can take "
        "over, and exactly one is needed: this layer cannot be Bayesian. Revert it, and choose others with where=. What does not need "
        "attention: ba.weight_space (random weights, ensembles) and ba.calibrate."
    )
