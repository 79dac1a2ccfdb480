"""Dropout from the counters in place of torch's, of plain tensors and of torch's own attention, where no gradients are wanted."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesattn.attention.masks import split_mask
from bayesattn.kernels.choice import noise_generator
from bayesattn.kernels.dropping import dropout, is_native
from bayesattn.kernels.operator import attention_directly
from bayesattn.numerics.counter_noise import draw_seed
from bayesattn.numerics.precision import compute_dtype


class CountedDropout(TorchFunctionMode):
    """In this block, in this thread alone, and while gradients are off, `F.dropout` and the dropout of torch's attention draw from the
    counters: several times faster than torch's draws on a processor. The probability, and what it means, are torch's.

    >>> with torch.no_grad(), CountedDropout():
    ...     F.dropout(torch.ones(1000), 0.5).unique().tolist()
    [0.0, 2.0]
    """

    def __init__(self, generator: torch.Generator | None = None):
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not torch.is_grad_enabled():
            if func is F.dropout and (dropped := self._dropout(*args, **kwargs)) is not None:
                return dropped
            if func is F.scaled_dot_product_attention and (attended := self._attention(*args, **kwargs)) is not None:
                return attended
        return func(*args, **kwargs)

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
        """None where it is left to torch."""
        if not training or inplace or not 0.0 < p < 1.0 or not is_native(input):
            return None
        return dropout(input, draw_seed(self.generator), noise_generator(), p)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor | None:
        tensors = (query, key, value)
        usual = all(
            each.dim() == 4 and is_native(each) and each.numel() and each.dtype == query.dtype for each in tensors
        )
        if not usual or not 0.0 < dropout_p < 1.0 or (is_causal and attn_mask is not None):
            return None  # torch has words for the last
        agree = (
            query.shape[0] == key.shape[0] and query.shape[-1] == key.shape[-1] and key.shape[:-1] == value.shape[:-1]
        )
        if not agree or query.shape[1] % key.shape[1] or (query.shape[1] != key.shape[1] and not enable_gqa):
            return None  # torch says what is wrong
        pairs = query.new_empty((), dtype=compute_dtype(query.dtype)).expand(*query.shape[:3], key.shape[2])
        allowed, bias = split_mask(attn_mask, False, pairs)
        return attention_directly(
            query, key, value, allowed, bias, None, draw_seed(self.generator), None, None, None,
            query.shape[-1] ** -0.5 if scale is None else scale, is_causal, "none", noise_generator(), dropout_p,
            "nothing", False, False, 0.0, 1, "native",
        )[0]  # fmt: skip
