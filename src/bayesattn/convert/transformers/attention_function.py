"""The attention function that transformers calls for a converted model.

It is registered with transformers' `AttentionInterface`, and a function that builds masks with its `AttentionMaskInterface`,
both under one name: a name that is missing from the second gets no mask at all, so that causality and padding are silently lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesattn.attention import attend
from bayesattn.attention.masks import may_attend
from bayesattn.convert.transformers.latent import read_latent
from bayesattn.nvib.projected import ReadsLatent
from bayesattn.scopes.modes import as_in_first_run
from bayesattn.scopes.recording import kl_is_wanted
from bayesattn.scopes.variable import PerThread

NAME = "bayesattn"
"""`config._attn_implementation` of a converted model."""

BEFORE = "_attention_before"
"""Where an attention layer keeps the name of the implementation that it had before."""

ARGUMENTS = "_bayesattn_arguments"
"""Where a converted layer keeps the names of its forward's arguments."""

_WITHOUT_EFFECT = {
    "cache_position",
    "deterministic",
    "logits_to_keep",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "sliding_window",  # it is in the mask
    "use_cache",
}
_OTHER_STATES = ("key_value_states", "encoder_hidden_states")
_ONLY_FLASH = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "indices"}


class Passage:
    """What a converted layer and the attention function tell each other about one forward pass of the layer."""

    def __init__(self, given: dict[str, Any]) -> None:
        others = [states for name in _OTHER_STATES if (states := given.get(name)) is not None]
        self.reached = False
        self.is_cross_attention = bool(others)
        self.states: Tensor | None = others[0] if others else given.get("hidden_states")
        """What keys and values are made of."""


class Padding:
    """Which positions of a decoder's own input are padding, while it runs; known to the layers in it."""

    def __init__(self, hook: PassesOnPadding, mask: Tensor | None, outer: Padding | None) -> None:
        self.hook = hook
        self.mask = mask
        self.outer = outer


_passage = PerThread(None)
_paddings = PerThread(None)


class Converted(nn.Module):
    """Put before an attention layer's class: its forward, and proof that it went through our attention."""

    config: Any
    part: ClassVar[str]
    """The attribute that holds what the layer was converted to."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        names: list[str] = self.__dict__[ARGUMENTS]
        passage = Passage({**dict(zip(names, args, strict=False)), **kwargs})
        outer = _passage.value
        _passage.value = passage
        try:
            output = super().forward(*args, **kwargs)
        finally:
            _passage.value = outer
        if not passage.reached:
            raise RuntimeError(
                f"The forward of {type(self).__name__} did not go through Bayesian attention: its config._attn_implementation is "
                f"{self.config._attn_implementation!r}, not {NAME!r}. "
                "Call set_attn_implementation before ba.convert, not after."
            )
        return output


class PassesOnPadding:
    """Hooks around a decoder's forward: tell its attention layers which of its own positions are padding.

    Its cross-attention cannot know. `parameters` are the names of the forward's arguments.
    """

    def __init__(self, parameters: list[str]) -> None:
        self.parameters = parameters

    def before(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before the forward."""
        given = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        mask = given.get("attention_mask")
        padding = mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None
        _paddings.value = Padding(self, padding, _paddings.value)

    def after(self, model: nn.Module, args: Any, output: Any) -> None:
        """After it, also when it failed."""
        padding: Padding | None = _paddings.value
        while padding is not None and padding.hook is not self:  # of a part that failed
            padding = padding.outer
        _paddings.value = None if padding is None else padding.outer


def register() -> None:
    """Make the name known to transformers; once is enough, more do no harm."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(NAME, attention)
    # the additive mask: eager, sdpa and our attention all read it, so that layers left as they are can share it
    AttentionMaskInterface.register(NAME, eager_mask)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The signature of transformers' attention functions; [batch, heads, length, features] in, [batch, length, heads, features] out."""
    if not isinstance(module, Converted):
        given = {"is_causal": is_causal, "softcap": softcap, "position_bias": position_bias, **others}
        given = {name: argument for name, argument in given.items() if argument is not None}
        return _original(module)(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **given)
    passage: Passage = _passage.value or Passage({})  # nothing is known where somebody calls this directly
    passage.reached = True
    _refuse_unknown(module, others)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", True))
    is_causal = is_causal and attention_mask is None and query.shape[2] > 1
    wants_weights = others.get("output_attentions") or module.config.output_attentions  # pyright: ignore
    if isinstance(module, ReadsLatent):
        output, weights = read_latent(
            module, passage.states, query, key, attention_mask, is_causal, dropout, need_weights=bool(wants_weights)
        )
        return output.transpose(1, 2).contiguous(), weights
    mask = _with_bias(attention_mask, position_bias)
    query_mask = _query_mask(passage, attention_mask, query, key) if kl_is_wanted() else None
    call: Callable[..., Any] = partial(
        attend,  # pyright: ignore
        query,
        key,
        value,
        module.posterior,  # pyright: ignore[reportArgumentType]
        mask,
        is_causal,
        scaling,
        softcap=softcap,
        dropout_p=dropout,
        enable_gqa=True,
        query_mask=query_mask,
    )
    output, weights = call(need_weights=True) if wants_weights else (call(), None)
    return output.transpose(1, 2).contiguous(), weights


def _original(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The attention function of a layer that was left as it is."""
    name = module.__dict__.get(BEFORE, "eager")
    if name == "eager":
        return sys.modules[type(module).__module__].eager_attention_forward
    if name == "sdpa":
        from transformers import AttentionInterface

        return AttentionInterface()[name]
    raise ValueError(
        f"{type(module).__name__} was not converted and would run {name!r}, which cannot share a mask with the converted layers: "
        "ba.revert(model), model.set_attn_implementation('sdpa'), and convert again."
    )


def _refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    for name, argument in others.items():
        if argument is None or name in _WITHOUT_EFFECT:
            continue
        if name in _ONLY_FLASH:
            raise TypeError(
                f"{type(module).__name__} was given {name}=, which packs several sequences into one row for flash attention; "
                "Bayesian attention does not read it. Pass padded batches with attention_mask=."
            )
        raise TypeError(
            f"{type(module).__name__} passes {name}= to its attention. Bayesian attention does not know this argument, and would "
            "compute something else than the model without it. Revert the model, or leave this layer out with where=."
        )


def _with_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One additive mask of a mask and T5's position bias."""
    if bias is None or mask is None:
        return bias if mask is None else mask
    if mask.dtype == torch.bool:
        return bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    return mask + bias


def _query_mask(passage: Passage, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """False for padded queries, so that they do not count in the KL: [batch, query].

    In self-attention the mask says it: a position that no query may attend to is padding. In cross-attention and with a cache,
    the padding of the model's own input says it.
    """
    batch, _, queries, _ = query.shape
    if mask is not None and not passage.is_cross_attention and queries == key.shape[2]:
        return may_attend(mask).flatten(1, 2).any(1).expand(batch, -1)
    padding = _padding()
    if padding is not None and padding.shape[0] == batch and padding.shape[1] >= queries:
        return padding[:, -queries:]
    return None


def _padding() -> Tensor | None:
    """The padding of the decoder that is running; when gradient checkpointing runs a layer again, that of its first run."""
    padding: Padding | None = _paddings.value
    return as_in_first_run("padding", None if padding is None else padding.mask)
