"""How large the gradients of two losses are, in the parameters that both depend on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import Node


def shared_norms(first: Tensor, second: Tensor) -> tuple[float, float] | None:
    """The norms of both gradients in all parameters that both reach. None if there are none, or the graph cannot be walked twice.

    It costs a backward pass of each; the graph stays for the real one.
    """
    leaves = list({id(leaf): leaf for leaf in _leaves(first)}.values())
    of_second = {id(leaf) for leaf in _leaves(second)}
    shared = [leaf for leaf in leaves if id(leaf) in of_second]
    if not shared:
        return None
    try:
        gradients = [
            torch.autograd.grad(loss, shared, retain_graph=True, allow_unused=True) for loss in (first, second)
        ]
    except RuntimeError:  # compiled code may give its memory away in the first backward pass
        return None
    sizes = [[0.0 if each is None else float(each.float().square().sum()) for each in of_loss] for of_loss in gradients]
    both = [(a, b) for a, b in zip(*sizes, strict=True) if a > 0 and b > 0]
    return (sum(a for a, _ in both) ** 0.5, sum(b for _, b in both) ** 0.5) if both else None


def _leaves(loss: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    seen: set[Node] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(variable := getattr(node, "variable", None), Tensor):
            found.append(variable)
        waiting.extend(function for function, _ in node.next_functions)
    return found
