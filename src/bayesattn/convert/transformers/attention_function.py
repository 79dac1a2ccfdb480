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
from bayesattn.convert.attach import posterior_of
from bayesattn.convert.transformers.latent import read_latent
from bayesattn.convert.transformers.packing import add_to_examples
from bayesattn.convert.transformers.surroundings import (
    examples_of_model,
    has_shifted_windows,
    padding_of_queries,
)
from bayesattn.nvib.projected import ReadsLatent
from bayesattn.posteriors import Posterior
from bayesattn.scopes.recording import examples, kl_is_wanted, record
from bayesattn.scopes.variable import PerThread

NAME = "bayesattn"
"""`config._attn_implementation` of a converted model."""

BEFORE = "_attention_before"
"""Where an attention layer keeps the name of the implementation that it had before."""

ARGUMENTS = "_bayesattn_arguments"
"""Where a converted layer keeps the names of its forward's arguments."""

KIND = "_bayesattn_kind"
"""Where a converted layer keeps what its batch is made of: "windows", a "packed" row of images, or None for examples."""

LOWEST_BIAS = -5000.0
"""What is added to scores and is not above this is a mask, whatever its dtype: -1e4 is how some models of transformers write one."""
LOWEST_BIAS_IN_WINDOWS = -50.0
"""The same for shifted windows, whose masks are -100: the other summand, a bias of positions, is far from this."""

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
_ONLY_FLASH = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "indices"}


_OWN_STATES = ("hidden_states", "query", "input")
_OTHER_STATES = ("key_value_states", "encoder_hidden_states", "context", "kv", "key")


class Passage:
    """What is known of one forward pass of a converted layer, from its arguments."""

    def __init__(self, given: dict[str, Any]) -> None:
        own = next((states for name in _OWN_STATES if (states := given.get(name)) is not None), None)
        others = [states for name in _OTHER_STATES if isinstance(states := given.get(name), Tensor)]
        others = [states for states in others if states is not own]
        self.given = given
        self.reached = False
        self.is_cross_attention = bool(others)
        self.states: Tensor | None = others[0] if others else own
        """What keys and values are made of."""


def passage_of(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Passage:
    """The passage of a call of a converted layer."""
    return Passage({**dict(zip(layer.__dict__[ARGUMENTS], args, strict=False)), **kwargs})


_passage = PerThread(None)


class Converted(nn.Module):
    """Put before an attention layer's class: its forward, and proof that it went through our attention."""

    config: Any
    part: ClassVar[str]
    """The attribute that holds what the layer was converted to."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        passage = passage_of(self, args, kwargs)
        outer, outer_examples = _passage.value, examples.value
        _passage.value = passage
        parts = self.__dict__[KIND]
        examples.value = examples_of_model() if parts == "windows" else None
        try:
            if parts == "packed" and kl_is_wanted():
                with record() as of_images:
                    output = super().forward(*args, **kwargs)
                add_to_examples(of_images, passage.given["cu_seqlens"])
            else:
                output = super().forward(*args, **kwargs)
        finally:
            _passage.value, examples.value = outer, outer_examples
        if not passage.reached:
            raise RuntimeError(
                f"The forward of {type(self).__name__} did not go through Bayesian attention: its config._attn_implementation is "
                f"{self.config._attn_implementation!r}, not {NAME!r}. "
                "Call set_attn_implementation before ba.convert, not after."
            )
        return output


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
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The signature of transformers' attention functions; [batch, heads, length, features] in, [batch, length, heads, features] out."""
    if not isinstance(module, Converted):
        given = {"is_causal": is_causal, "softcap": softcap, "position_bias": position_bias, "s_aux": s_aux, **others}
        given = {name: argument for name, argument in given.items() if argument is not None}
        return _original(module)(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **given)
    passage: Passage = _passage.value or Passage({})  # nothing is known where somebody calls this directly
    passage.reached = True
    _refuse_unknown(module, others)
    if is_causal is None:
        is_causal = bool(getattr(module, "is_causal", False))  # a mask says it, made as for eager attention
    is_causal = is_causal and attention_mask is None and query.shape[2] > 1
    asked = any(given.get("output_attentions") for given in (others, passage.given))
    wants_weights = asked or module.config.output_attentions or _attentions_are_collected()
    if isinstance(module, ReadsLatent):
        if s_aux is not None:
            _refuse_unknown(module, {"s_aux": s_aux})
        output, weights = read_latent(
            module, passage.states, query, key, attention_mask, is_causal, dropout, need_weights=bool(wants_weights)
        )
        return output.transpose(1, 2).contiguous(), weights
    in_windows = module.__dict__[KIND] == "windows" and has_shifted_windows(module)
    attention_mask = with_low_values_blocked(attention_mask, in_windows)
    mask = _with_bias(attention_mask, position_bias)
    query_mask = _query_mask(module, passage, attention_mask, query, key) if kl_is_wanted() else None
    if s_aux is not None:
        key, value, mask, is_causal = _with_sink(s_aux, query, key, value, mask, is_causal)
    posterior = module._modules["posterior"]
    if not isinstance(posterior, Posterior):
        posterior = posterior_of(module)  # PEFT has wrapped it
    call: Callable[..., Any] = partial(
        attend,  # pyright: ignore
        query,
        key,
        value,
        posterior,
        mask,
        is_causal,
        scaling,
        softcap=softcap,
        dropout_p=dropout,
        enable_gqa=True,
        query_mask=query_mask,
    )
    output, weights = call(need_weights=True) if wants_weights else (call(), None)
    if s_aux is not None and weights is not None:
        weights = weights[..., :-1]
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


def with_low_values_blocked(mask: Tensor | None, in_shifted_windows: bool) -> Tensor | None:
    """An additive mask whose blocked places have the lowest value of its dtype."""
    if mask is None or mask.dtype == torch.bool:
        return mask
    lowest = LOWEST_BIAS_IN_WINDOWS if in_shifted_windows else LOWEST_BIAS
    return mask.masked_fill(mask <= lowest, torch.finfo(mask.dtype).min)


def _attentions_are_collected() -> bool:
    """Whether the model that is running returns what its attention layers return as weights; many do not tell them."""
    collector: Any = getattr(sys.modules.get("transformers.utils.output_capturing"), "_active_collector", None)
    if collector is None:
        return False
    collected = collector.global_var if torch.compiler.is_compiling() else collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def _with_sink(
    sinks: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """An attention sink (GPT-OSS): a learned score of each head, as that of one more key, whose value is 0."""
    batch, heads, queries, _ = query.shape
    shape = (batch, heads, queries, key.shape[2])
    added = query.new_zeros(()).expand(shape)
    if mask is not None:
        lowest = torch.finfo(query.dtype).min
        added = added.masked_fill(~mask, lowest) if mask.dtype == torch.bool else mask.to(query.dtype).expand(shape)
    if is_causal:
        future = torch.ones(shape[2:], dtype=torch.bool, device=query.device).triu(1)
        added = added.masked_fill(future, torch.finfo(query.dtype).min)
    of_sink = sinks.to(query.dtype).view(1, -1, 1, 1).expand(batch, heads, queries, 1)
    key, value = (torch.cat([states, torch.zeros_like(states[:, :, :1])], 2) for states in (key, value))
    return key, value, torch.cat([added, of_sink], -1), False


def _query_mask(layer: nn.Module, passage: Passage, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """False for padded queries, so that they do not count in the KL: [batch, query].

    In self-attention the mask says it: a position that no query may attend to is padding. In cross-attention and with a cache,
    the padding of the model's own input says it.
    """
    batch, _, queries, _ = query.shape
    if mask is not None and not passage.is_cross_attention and queries == key.shape[2]:
        return may_attend(mask).flatten(1, 2).any(1).expand(batch, -1)
    return padding_of_queries(layer, batch, queries)
