"""Hugging Face transformers: every model whose attention goes through its `AttentionInterface`."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from functools import cache
from typing import Any

from torch import nn

from bayesattn.convert.adapter import Adapter, Role
from bayesattn.convert.attach import active_part, attach_posterior, change_class, restore_class
from bayesattn.convert.transformers import attention_function
from bayesattn.convert.transformers.attention_function import ARGUMENTS, KIND, Converted
from bayesattn.convert.transformers.forgotten import ForgottenKL
from bayesattn.convert.transformers.layer_sizes import sizes
from bayesattn.convert.transformers.packing import is_packed
from bayesattn.convert.transformers.peft import PARTS, adopt_posteriors
from bayesattn.convert.transformers.surroundings import DECODER_PADDING, PassesOnInput, is_windowed
from bayesattn.nvib import NVIB
from bayesattn.posteriors import Posterior

OLDEST = 5
"""The first major version of transformers that this works with."""
_HOOKS = "_bayesattn_padding_hooks"
"""Where a model keeps the hooks that pass on what it was given."""
_CROSS = re.compile("cross|encoder_attn|EncDec")
"""What attribute names of cross-attention have in them; nothing else tells it from self-attention before it runs."""


class HuggingFaceAdapter(Adapter):
    """Gives each chosen attention layer a posterior, and the model an attention implementation of ours that finds it there.

    The other layers go on with the implementation that they had. `config.bayesattn` holds what was converted, so that
    `save_pretrained` writes it and `bayesattn.huggingface.from_pretrained` finds it.
    """

    name = "Hugging Face transformers"

    @property
    def mixin(self) -> type[Converted]:
        """What a converted layer's class begins with."""
        return Attending

    def find(self, model: nn.Module) -> dict[str, nn.Module]:
        layers = _attention_layers(model)
        return {name: layer for name, layer in layers.items() if not is_converted(layer) and sizes(layer)}

    def roles(self, model: nn.Module) -> dict[str, Role]:
        return {name: role(name) for name in self.find(model)}

    def unsupported(self, model: nn.Module) -> dict[str, str]:
        reasons: dict[str, str] = {}
        for name, layer in _attention_layers(model).items():
            if not is_converted(layer) and sizes(layer) is None:
                reasons[name] = f"{type(layer).__name__} does not say how many heads it has, and of what size"
        return reasons

    def find_converted(self, model: nn.Module) -> dict[str, nn.Module]:
        return {name: module for name, module in model.named_modules() if isinstance(module, self.mixin)}

    def convert_layer(self, layer: nn.Module, posterior: Any) -> None:
        self.attach(layer, posterior)
        arguments = layer.__dict__[ARGUMENTS] = list(inspect.signature(layer.forward).parameters)
        layer.__dict__[KIND] = "windows" if is_windowed(layer) else "packed" if is_packed(arguments) else None
        change_class(layer, self.mixin)

    def attach(self, layer: nn.Module, posterior: Any) -> None:
        """Give a layer its own copy of what it is converted to."""
        heads, head_dim = sizes(layer)  # pyright: ignore[reportGeneralTypeIssues]
        attach_posterior(layer, posterior, num_heads=heads, head_dim=head_dim)

    def revert_layer(self, layer: nn.Module) -> None:
        restore_class(layer)
        del layer.__dict__[ARGUMENTS], layer.__dict__[KIND]
        delattr(layer, self.mixin.part)

    def after_conversion(self, model: nn.Module) -> None:
        for root in _roots(model):
            described = {name: part.config() for name, layer in root.named_modules() if (part := _converted_to(layer))}
            if not described:
                continue
            _own_config(root)
            root.config.bayesattn = {"layers": described}
            for part in pretrained_models(root).values():
                _pass_on_input(part)
            _tell_of_forgotten_kl(root)
            if not any(is_converted(layer) for layer in root.modules()):
                continue
            attention_function.register()
            for part in _configured(root):
                part.__dict__.setdefault(attention_function.BEFORE, part.config._attn_implementation)
            for part in _configured(root):
                part.config._attn_implementation_internal = attention_function.NAME

        adopt_posteriors(model)

    def after_reversion(self, model: nn.Module) -> None:
        for root in _roots(model):
            if root.config.__dict__.pop("bayesattn", None) is None:
                continue
            for part in root.modules():
                if attention_function.BEFORE in part.__dict__:
                    part.config._attn_implementation_internal = part.__dict__.pop(attention_function.BEFORE)
                _remove_hooks(part)


class Attending(Converted):
    """A layer whose weights have a posterior."""

    part = "posterior"
    posterior: Posterior


def role(name: str) -> Role:
    """Of a layer of this name."""
    return "cross" if _CROSS.search(name.rpartition("layer")[2]) else "self"


def _pretrained_class() -> type | None:
    """`PreTrainedModel`; None while transformers is not imported: then no model can be one of its own."""
    module = sys.modules.get("transformers.modeling_utils")
    return getattr(module, "PreTrainedModel", None)


def pretrained_models(model: nn.Module) -> dict[str, Any]:
    """The models of transformers in this one, itself too, by name."""
    cls = _pretrained_class()
    if cls is None:
        return {}
    models = {name: module for name, module in model.named_modules() if isinstance(module, cls)}
    version: str = sys.modules["transformers"].__version__
    if models and int(version.partition(".")[0]) < OLDEST:
        raise ValueError(
            f"{type(next(iter(models.values()))).__name__} is a model of transformers {version}, whose attention is called in another "
            f"way, and some of it would stay as it is without a word. Use transformers {OLDEST}.0 or newer: pip install -U transformers."
        )
    return models


def _roots(model: nn.Module) -> list[Any]:
    """The pretrained models that are not a part of another one."""
    models = pretrained_models(model)
    inner = {id(part) for whole in models.values() for part in whole.modules() if part is not whole}
    return [part for part in models.values() if id(part) not in inner]


def _attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    return {
        name: module
        for part_name, part in pretrained_models(model).items()
        for name, module in part.named_modules(prefix=part_name)
        if is_converted(module) or (uses_interface(type(module)) and hasattr(module, "config"))
    }


@cache
def uses_interface(cls: type[nn.Module]) -> bool:
    """Whether the forward of this class asks transformers for its attention function."""
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _converted_to(layer: nn.Module) -> Posterior | NVIB | None:
    """What a layer was converted to, by this adapter or, such as a torch.nn.MultiheadAttention in the model, by another."""
    parts = (active_part(layer._modules.get(name)) for name in PARTS)
    return next((part for part in parts if isinstance(part, (Posterior, NVIB))), None)


def is_converted(module: nn.Module) -> bool:
    """Whether the layer is one of ours."""
    return isinstance(module, Converted)


def _configured(root: Any) -> list[Any]:
    """The parts of a model whose config decides about converted layers: those layers, their siblings, and the models around them."""
    models = list(pretrained_models(root).values())
    layers = list(_attention_layers(root).values())
    deciding = {id(layer.config) for layer in layers if is_converted(layer)}
    deciding |= {id(part.config) for part in models if any(is_converted(module) for module in part.modules())}
    return [part for part in [*models, *layers] if id(part.config) in deciding]


def _own_config(root: Any) -> None:
    """Give a model its own copy of its config: two models made from one config object must not be converted together."""
    if "bayesattn" in root.config.__dict__ and attention_function.BEFORE in root.__dict__:
        return
    copies: dict[int, Any] = {}
    copy.deepcopy(root.config, copies)
    for module in root.modules():
        for name, attribute in module.__dict__.items():
            if hasattr(attribute, "_attn_implementation_internal") and id(attribute) in copies:
                module.__dict__[name] = copies[id(attribute)]


def _pass_on_input(part: Any) -> None:
    """Let a model tell its attention layers what they need of what it was given."""
    _remove_hooks(part)
    layers = {name: layer for name, layer in part.named_modules() if _converted_to(layer) is not None}
    if not any(_asks_for_input(name, layer) for name, layer in layers.items()):
        return
    hooks = part.__dict__[_HOOKS] = []
    for module in (part, getattr(part, "decoder", None)):
        if not isinstance(module, nn.Module):
            continue
        names = list(inspect.signature(module.forward).parameters)
        if module is part or DECODER_PADDING in names:
            hook = PassesOnInput(names, part.main_input_name)
            hooks.append(module.register_forward_pre_hook(hook.before, with_kwargs=True))
            hooks.append(module.register_forward_hook(hook.after, always_call=True))


def _tell_of_forgotten_kl(root: Any) -> None:
    root.__dict__.setdefault(_HOOKS, []).append(root.register_forward_pre_hook(ForgottenKL()))


def _asks_for_input(name: str, layer: nn.Module) -> bool:
    """Whether a converted layer cannot tell padding, or the examples of its batch, from its own arguments."""
    if not is_converted(layer) or layer.__dict__[KIND] is not None:
        return True
    return role(name) == "cross" or bool(getattr(layer, "is_causal", True))  # a decoder's mask may be of its cache


def _remove_hooks(part: nn.Module) -> None:
    for hook in part.__dict__.pop(_HOOKS, []):
        hook.remove()
