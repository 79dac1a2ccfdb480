"""Hugging Face models whose layers compute attention by themselves, past transformers' `AttentionInterface`."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from bayesattn.convert.accounting import does_attention
from bayesattn.convert.adapter import Adapter, Role
from bayesattn.convert.attach import attach_posterior, change_class, posterior_of, restore_class
from bayesattn.convert.transformers.adapter import is_converted, pretrained_models, role, uses_interface
from bayesattn.convert.transformers.attention_function import ARGUMENTS, passage_of
from bayesattn.convert.transformers.layer_sizes import sizes
from bayesattn.convert.transformers.redirection import Redirection
from bayesattn.convert.transformers.sliding_windows import WINDOWED, attend_in_windows
from bayesattn.convert.transformers.surroundings import examples_of_model, is_windowed
from bayesattn.posteriors import Posterior
from bayesattn.scopes.recording import examples

_SPARSE = "is not one softmax over the keys of each query: it attends in blocks, each with a softmax of its own"
_REFUSED = {
    "BigBirdBlockSparseAttention": f"{_SPARSE}. Use attention_type='original_full' in its config",
    "BigBirdPegasusBlockSparseAttention": f"{_SPARSE}. Use attention_type='original_full' in its config",
    "LongT5LocalAttention": _SPARSE,
    "LongT5TransientGlobalAttention": _SPARSE,
    "PegasusXGlobalLocalAttention": _SPARSE,
    "NystromformerSelfAttention": "approximates softmax by three smaller ones, none of which holds the weights of a query",
    "LiltSelfAttention": "has two softmaxes, of text and of layout",
    "ProphetNetNgramSelfAttention": "has a softmax for the text and one for each predicted stream",
    "GroundingDinoBiMultiHeadAttention": "has two softmaxes over one matrix of scores, one in each direction",
    "MMGroundingDinoBiMultiHeadAttention": "has two softmaxes over one matrix of scores, one in each direction",
    "HieraMaskUnitAttention": "attends in windows that are a dimension of their own in its scores",
    "modeling_sew_d.DisentangledSelfAttention": "has a softmax with a backward pass of its own",
    "IBertSelfAttention": "computes softmax in whole numbers, with a module of its own",
}
"""What is known not to be one softmax over the keys of each query, and why. Any other such layer says so when it first runs."""


class OwnAttentionAdapter(Adapter):
    """Runs the layer's own forward with its softmax redirected to a posterior: see `redirection`."""

    name = "Hugging Face transformers with one softmax of its own"

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: layer for name, layer in _candidates(model).items() if _reason_against(layer) is None}

    def roles(self, model: nn.Module) -> dict[str, Role]:
        return {name: role(name) for name in self.find(model)}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        reasons = ((name, _reason_against(layer)) for name, layer in _candidates(model).items())
        return {name: reason for name, reason in reasons if reason is not None}

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if isinstance(module, Redirected)}

    def convert_layer(self, layer: nn.Module, posterior: Posterior) -> None:
        heads, head_dim = sizes(layer)  # pyright: ignore[reportGeneralTypeIssues]
        attach_posterior(layer, posterior, num_heads=heads, head_dim=head_dim)
        layer.__dict__[ARGUMENTS] = list(inspect.signature(layer.forward).parameters)
        change_class(layer, InWindows if type(layer).__name__ in WINDOWED else Redirected)

    def revert_layer(self, layer: nn.Module) -> None:
        restore_class(layer)
        del layer.__dict__[ARGUMENTS]
        del layer.posterior


class Redirected(nn.Module):
    """Put before an attention layer's class: its forward, with its softmax redirected."""

    posterior: Posterior

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        outer = examples.value
        examples.value = examples_of_model() if is_windowed(self) else None
        posterior = posterior_of(self)
        heads = posterior.num_heads
        assert heads is not None, "convert has bound it"
        try:
            with Redirection(self, posterior, heads, passage_of(self, args, kwargs)) as redirection:
                output = super().forward(*args, **kwargs)
        finally:
            examples.value = outer
        redirection.check()
        return output


class InWindows(Redirected):
    """Put before Longformer's attention: the same attention with a mask."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return attend_in_windows(self, posterior_of(self), *args, **kwargs)


def _candidates(model: nn.Module) -> dict[str, nn.Module]:
    """Layers of transformers' models that do attention and neither use its interface nor are converted."""
    models = pretrained_models(model)
    parts = {id(module) for part in models.values() for module in part.modules()}
    classes = tuple({type(part) for part in models.values()})
    return {
        name: module
        for name, module in model.named_modules()
        if id(module) in parts
        and type(module).__module__.startswith("transformers.")
        and not isinstance(module, (*classes, Redirected))
        and not is_converted(module)
        and not uses_interface(type(module))
        and does_attention(type(module))
    }


def _reason_against(layer: nn.Module) -> str | None:
    kind = type(layer).__name__
    file = type(layer).__module__.rpartition(".")[2]
    known = _REFUSED.get(kind) or _REFUSED.get(f"{file}.{kind}")
    if known is not None:
        return f"{kind} {known}"
    if sizes(layer) is None:
        return f"{kind} computes attention by itself, and does not say how many heads it has, and of what size"
    return None
