"""Layers that do attention, by what their code does and not by what they are called."""

from __future__ import annotations

import dis
import types
from functools import cache

from torch import nn

_WHOLE = {"scaled_dot_product_attention", "ALL_ATTENTION_FUNCTIONS", "flash_attn_func", "multi_head_attention_forward"}
"""Names that mean attention by themselves."""
_SOFTMAX = {"softmax", "Softmax", "softmax_backward_data", "stable_softmax", "XSoftmax"}
_PRODUCTS = {"matmul", "bmm", "baddbmm", "einsum", "_scaled_dot_product", "matmul_qk"}


def attention_of_its_own(model: nn.Module, known: set[nn.Module]) -> dict[str, nn.Module]:
    """Layers that do attention and are neither of ours, nor `known`, nor a part of a known one."""
    inside = {part for layer in known for part in layer.modules()}
    return {
        name: module
        for name, module in model.named_modules()
        if module not in inside and not _is_ours(type(module)) and does_attention(type(module))
    }


@cache
def does_attention(cls: type[nn.Module]) -> bool:
    """Whether the forward of this class computes attention: by one of the known functions, or a softmax between matrix products.

    Its code is read with the methods and the functions of its module that it calls, not what the modules in it do.
    """
    words: set[str] = set()
    reached: set[types.FunctionType] = set()
    waiting: list[object] = [base.__dict__.get("forward") for base in cls.__mro__ if not _is_ours(base)]
    waiting = [forward for forward in waiting if forward is not None][:1]
    while waiting:
        function = _unwrapped(waiting.pop())
        if function is None or function in reached:
            continue
        reached.add(function)
        found = _words(function.__code__)
        words |= found
        waiting += [getattr(cls, name, None) for name in found if not hasattr(nn.Module, name)]
        waiting += [
            other
            for name in found
            if getattr(other := function.__globals__.get(name), "__module__", None) == function.__module__
        ]
    return bool(words & _WHOLE) or bool(words & _SOFTMAX and words & _PRODUCTS)


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "bayesattn"


def _unwrapped(function: object) -> types.FunctionType | None:
    inner = getattr(function, "__wrapped__", function)
    return inner if isinstance(inner, types.FunctionType) else None


def _words(code: types.CodeType) -> set[str]:
    """The names in a function's code; "matmul" for the operator @."""
    words = {*code.co_names}
    if any(step.opname == "BINARY_OP" and step.argrepr == "@" for step in dis.get_instructions(code)):
        words.add("matmul")
    return words.union(*(_words(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))
