"""What torch.compile is told about a function, without importing the compiler: that takes as long as importing torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_compiled(function: Function) -> Function:
    """What `torch.compiler.assume_constant_result` does: compiled code keeps the result that the first call had."""
    vars(function)["_dynamo_marked_constant"] = True
    return function


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is what `torch.compile` returned."""
    compiler: Any = sys.modules.get("torch._dynamo")  # not imported: nothing was compiled
    return compiler is not None and isinstance(module, compiler.OptimizedModule)
