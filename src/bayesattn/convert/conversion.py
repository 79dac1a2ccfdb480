"""`convert` and `revert`: one call for every library that has an adapter."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from bayesattn.convert.accounting import attention_of_its_own
from bayesattn.convert.adapter import Adapter
from bayesattn.convert.geometric import GeometricAdapter
from bayesattn.convert.timm import TimmAdapter
from bayesattn.convert.torch.adapter import TorchAdapter
from bayesattn.convert.torch.nvib_adapter import NVIBAdapter
from bayesattn.convert.transformers.adapter import HuggingFaceAdapter
from bayesattn.convert.transformers.nvib_adapter import HuggingFaceNVIBAdapter
from bayesattn.convert.transformers.own_attention import OwnAttentionAdapter
from bayesattn.nvib import NVIB
from bayesattn.posteriors import Posterior
from bayesattn.support.selection import Where, select

Model = TypeVar("Model", bound=nn.Module)

ADAPTERS: list[Adapter] = [
    TorchAdapter(),
    NVIBAdapter(),
    HuggingFaceAdapter(),
    OwnAttentionAdapter(),
    HuggingFaceNVIBAdapter(),
    TimmAdapter(),
    GeometricAdapter(),
]


def convert(model: Model, posterior: Posterior | NVIB, where: Where = None) -> Model:
    """Make the attention of `model` Bayesian, in place, and return the model.

    Weights, state-dict keys, hooks and the module objects stay as they are; each chosen layer gets a copy of `posterior` with
    parameters of its own (a layer that the model uses several times gets one). With `Softmax()` the outputs are the original's.

    Args:
        model: any model made of `torch.nn.MultiheadAttention` (such as `nn.TransformerEncoder`), or of Hugging Face's, timm's or
            PyTorch Geometric's attention: `ba.supported()` lists what is tested.
        posterior: the distribution of the attention weights; or an `NVIB`, which makes attention denoising attention over a random latent.
        where: which layers: None or "all", "self" or "cross" (attention), a predicate of (name, layer), an index, "last 2 layers", a name
            or a pattern such as "encoder.*", or a list of indices or names.

    >>> import torch, bayesattn as ba
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    >>> model = ba.convert(torch.nn.TransformerEncoder(layer, 3), ba.Weibull(k=10.0), where="last 2 layers")
    >>> [type(layer.self_attn).__module__.split(".")[0] for layer in model.layers]
    ['torch', 'bayesattn', 'bayesattn']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    adapters = [adapter for adapter in ADAPTERS if isinstance(posterior, adapter.template)]
    if not adapters:
        raise TypeError(
            "posterior must be a Posterior such as ba.Weibull(k=10.0), or a ba.nvib.NVIB; "
            f"got {posterior!r} of type {type(posterior).__name__}."
        )
    owners: dict[str, Adapter] = {}
    layers: dict[str, nn.Module] = {}
    roles: dict[str, str] = {}
    for adapter in adapters:
        found = adapter.find(model)
        layers.update(found)
        owners.update(dict.fromkeys(found, adapter))
        roles.update(adapter.roles(model))
    if not layers:
        raise ValueError(_nothing_found(model, adapters))
    if where == "all" and "all" not in layers:
        where = None
    chosen = select(layers, where, roles)
    if where is None:
        refused = refusals(model, adapters, layers)
        if refused:
            name, reason = next(iter(refused.items()))
            raise ValueError(
                f"{len(refused)} attention layer(s) cannot be converted, the first is {name!r}: {reason}. Choose the others with where=."
            )
    for name, layer in chosen.items():
        owners[name].convert_layer(layer, posterior)
    for adapter in adapters:
        adapter.after_conversion(model)
    return model


def revert(model: Model) -> Model:
    """Undo `convert`, in place: the trained weights stay, the posteriors go."""
    converted = [(adapter, layer) for adapter in ADAPTERS for layer in adapter.find_converted(model).values()]
    if not converted:
        raise ValueError(f"{type(model).__name__} has no converted attention layer: there is nothing to revert.")
    for adapter, layer in converted:
        adapter.revert_layer(layer)
    for adapter in ADAPTERS:
        adapter.after_reversion(model)
    return model


def refusals(model: nn.Module, adapters: list[Adapter], found: dict[str, nn.Module]) -> dict[str, str]:
    """The layers that do attention and cannot be converted, each with its reason."""
    refused = {name: reason for adapter in adapters for name, reason in adapter.unsupported(model).items()}
    converted = {name: layer for adapter in ADAPTERS for name, layer in adapter.find_converted(model).items()}
    for name in converted:  # what another adapter converted is no longer ours to refuse
        refused.pop(name, None)
    for name, layer in attention_of_its_own(model, {*found.values(), *converted.values()}).items():
        refused.setdefault(
            name, f"{type(layer).__name__} computes attention by itself, in a way that no adapter of ba.convert knows"
        )
    return refused


def _nothing_found(model: nn.Module, adapters: list[Adapter]) -> str:
    if any(adapter.find_converted(model) for adapter in ADAPTERS):
        return f"All attention layers of {type(model).__name__} are converted already: call ba.revert(model) first."
    for adapter in adapters:
        for name, reason in adapter.unsupported(model).items():
            return f"No attention layer of {type(model).__name__} can be converted: {name!r}: {reason}."
    kinds = ", ".join(adapter.name for adapter in adapters)
    return (
        f"{type(model).__name__} has no attention layer that can be converted. Known are the attention layers of: {kinds}. "
        "Write your own attention with ba.attend, or use a layer of ba.nn. A model without softmax attention (Mamba, RWKV, FNet) is made "
        "Bayesian in its weights (ba.weight_space.laplace, swag, mean_field), by an ensemble (ba.weight_space.ensemble) or a head "
        "(ba.weight_space.gp_head), or calibrated as it is (ba.calibrate)."
    )
