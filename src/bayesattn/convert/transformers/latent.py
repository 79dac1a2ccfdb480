"""A Hugging Face attention layer that reads the latent of an NVIB layer in place of keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.attention.masks import may_attend
from bayesattn.nvib.projected import Projections, ReadsLatent, mask_of_components
from bayesattn.support.annotations import Bool, Float

_KEYS = ("key", "k_proj", "k_lin")
_VALUES = ("value", "v_proj", "v_lin")


def projection(layer: nn.Module, names: tuple[str, ...]) -> nn.Linear | None:
    """The linear map of this layer that has one of these names."""
    return next((found for name in names if isinstance(found := getattr(layer, name, None), nn.Linear)), None)


def key_and_value(layer: nn.Module) -> tuple[nn.Linear, nn.Linear] | None:
    """The maps from what is attended to, to keys and to values; None if they are not two linear maps."""
    key, value = projection(layer, _KEYS), projection(layer, _VALUES)
    return None if key is None or value is None else (key, value)


def read_latent(
    layer: ReadsLatent,
    states: Float[Tensor, "batch tokens dim"] | None,
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads keys head_dim"],
    attention_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    need_weights: bool,
) -> tuple[Float[Tensor, "batch heads query head_dim"], Tensor | None]:
    """What the queries read of the latent of `states`, from which the model itself has made `key`."""
    module: Any = layer
    if states is None or states.shape[1] != key.shape[2]:
        raise ValueError(
            f"{type(layer).__name__} was given a cache of keys and values, and NVIB needs the vectors behind them: call the model with "
            "use_cache=False, or leave the decoder's self-attention as it is (where='cross')."
        )
    maps = key_and_value(module)
    assert maps is not None, "only layers with these maps are converted"
    to_key, to_value = maps
    projections = Projections(query.shape[1], to_key.weight, to_key.bias, to_value.weight, to_value.bias)
    mask, padding = _additive(attention_mask, is_causal, query, key)
    if layer.moments is None:
        latent = module.nvib(states, padding)
    else:
        _check_keys(module, to_key, states, key)
        latent = layer.moments.observe(states, padding, query.shape[-1])
    if mask is not None:
        mask = mask_of_components(mask, latent, has_prior=layer.moments is None)
    return projections.attend(
        query, latent, mask, dropout_p=dropout_p, compat=module.nvib.compat, need_weights=need_weights
    )


def _additive(
    mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor
) -> tuple[Tensor | None, Bool[Tensor, "batch keys"] | None]:
    """The mask as numbers to add, and which keys no query may attend to: padding."""
    lowest = torch.finfo(query.dtype).min / 2  # something may be added to it
    if mask is None:
        if not is_causal:
            return None, None
        future = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).triu(1)
        return query.new_zeros(future.shape).masked_fill(future, lowest)[None, None], None
    allowed = may_attend(mask)
    padding = ~allowed.flatten(1, 2).any(1).expand(query.shape[0], -1)
    added = query.new_zeros(mask.shape) if mask.dtype == torch.bool else mask.to(query.dtype)
    return added.masked_fill(~allowed, lowest), padding


def _check_keys(module: nn.Module, to_key: nn.Linear, states: Tensor, key: Tensor) -> None:
    """While keys are measured: are the model's keys what the linear map makes of the states?"""
    expected = to_key(states).unflatten(-1, (key.shape[1], -1)).transpose(1, 2)
    if not torch.allclose(expected, key, rtol=1e-3, atol=1e-3 * float(expected.abs().amax())):
        raise ValueError(
            f"The keys of {type(module).__name__} are not a linear map of what it attends to (rotary positions, a norm?): NVIB cannot "
            "read them. Leave this layer out with where=."
        )
