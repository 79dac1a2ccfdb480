"""A module as it would be with some attributes changed, while the module itself stays as it is.

Other threads may be running the module: nothing may be changed in it, not even for a moment. Parameters, buffers and hooks are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import nn

from bayesattn.support.compilation import is_compiled

Module = TypeVar("Module", bound=nn.Module)
Changes = Mapping[nn.Module, Mapping[str, Any]]
"""Module → its attributes that are to be other than they are."""


def copied(module: Module, attributes: Mapping[str, Any]) -> Module:
    """A copy of this one module with these attributes; its parts, parameters and buffers are the module's own.

    An attribute is found before a parameter of the same name, so a tensor here stands in for a parameter.

    >>> linear = nn.Linear(2, 1)
    >>> zero = copied(linear, {"weight": torch.zeros(1, 2), "bias": torch.ones(1)})
    >>> zero(torch.randn(1, 2)).item(), linear.bias is zero.bias
    (1.0, False)
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"{type(module).__name__} is a scripted module, which must be changed for this ({', '.join(attributes)}): "
            "call model.eval() first, or use the model that was scripted."
        )
    copy = object.__new__(type(module))
    copy.__dict__.update(module.__dict__)
    copy.__dict__["_compiled_call_impl"] = None  # of Module.compile(): it would run the module that was compiled
    copy.__dict__.update(attributes)
    return copy


def altered(root: nn.Module, changes: Changes) -> nn.Module:
    """`root` with these changes in some of its parts: copies of them and of what they are in; the rest is shared.

    What a forward pass assigns to an attribute of a copy is lost with the copy. A part wrapped by torch.compile runs uncompiled.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    >>> quiet = altered(model, {model[1]: {"training": False}})
    >>> quiet[1].training, model[1].training, quiet[0] is model[0]
    (False, True, True)
    """
    copies: dict[nn.Module, nn.Module] = {}
    result = _altered(root, changes, copies)
    for module, copy in copies.items():
        if copy is not module:
            _point_to_copies(copy, copies)
    return result


def in_eval_mode(model: nn.Module) -> nn.Module:
    """The model in eval mode: itself where it is, else an altered one."""
    return altered(model, {module: {"training": False} for module in model.modules() if module.training})


def _altered(module: nn.Module, changes: Changes, copies: dict[nn.Module, nn.Module]) -> nn.Module:
    if module in copies:
        return copies[module]
    parts = {name: part and _altered(part, changes, copies) for name, part in module._modules.items()}
    attributes = dict(changes.get(module, {}))
    inside = any(part is not module._modules[name] for name, part in parts.items())
    if is_compiled(module) and (inside or attributes):
        copies[module] = parts["_orig_mod"] or module.get_submodule("_orig_mod")
    elif inside or attributes:
        copies[module] = copied(module, {**attributes, "_modules": parts} if inside else attributes)
    else:
        copies[module] = module
    return copies[module]


def _point_to_copies(copy: nn.Module, copies: dict[nn.Module, nn.Module]) -> None:
    """Attributes that are modules or methods of modules, such as a `forward` that a library has replaced."""
    for name, attribute in list(copy.__dict__.items()):
        if isinstance(attribute, nn.Module) and attribute in copies:
            copy.__dict__[name] = copies[attribute]
        elif isinstance(attribute, MethodType) and isinstance(attribute.__self__, nn.Module):
            copy.__dict__[name] = MethodType(attribute.__func__, copies.get(attribute.__self__, attribute.__self__))
        elif isinstance(attribute, partial):
            args = [copies.get(each, each) if isinstance(each, nn.Module) else each for each in attribute.args]
            copy.__dict__[name] = partial(attribute.func, *args, **attribute.keywords)
