"""The features of an input: what enters the model's head, the layer whose output is the prediction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.prediction.calling import batch_size, map_batch
from bayesattn.prediction.sampled import sampled_outputs
from bayesattn.support import checks
from bayesattn.support.replica import altered

_OURS = -23
"""The key of our hook among a module's: torch's own count up from 0."""

Take = Callable[[Any], tuple[Tensor, ...]]
"""What the model returns → its outputs as tensors, batch first."""


@dataclass
class _Run:
    """One run of one module: its first tensor, and what it made of it."""

    name: str
    features: Tensor
    output: Tensor


def find_head(model: nn.Module, inputs: Any, take: Take, outputs: int = 1) -> str:
    """The name of the innermost layer with parameters whose output is the model's, found by running a few examples.

    `outputs` is how many tensors `take` gives. A model whose output is something more of the layer's is not understood: its head must be
    named.
    """
    few = map_batch(inputs, batch_size(inputs), lambda tensor: tensor[:4])
    runs: list[_Run] = []
    watched = {
        name: module for name, module in model.named_modules() if name and any(True for _ in module.parameters())
    }
    collected = sampled_outputs(_with_hooks(model, list(watched), runs), few, 1, take, point_estimate=True)
    output = collected[0][0]
    whole = tuple(f"{name}." for name, module in watched.items() if hasattr(module, "random_features"))
    found = [run for run in runs if outputs == 1 and not run.name.startswith(whole) and _is_made_by(output, run.output)]
    innermost = [run for run in found if not any(other.name.startswith(f"{run.name}.") for other in found)]
    if not innermost:
        linear = [name for name, module in watched.items() if isinstance(module, nn.Linear)]
        shown = (linear or list(watched))[-5:]
        raise ValueError(
            f"No layer of {type(model).__name__} gives the model's output as it is, so its head is not known. Name the layer whose input "
            f"are the features with head=, such as {' or '.join(f'head={name!r}' for name in reversed(shown))}; leave train= out if "
            "no distance is wanted."
        )
    return innermost[-1].name


def outputs_and_features(
    model: nn.Module, inputs: Any, take: Take, head: str, max_rows: int | None
) -> tuple[list[Tensor], Tensor]:
    """The outputs of the point estimate, each [1, batch, ...], and what entered its head, [batch, ..., features], in one pass."""
    runs: list[_Run] = []

    def with_features(result: Any) -> tuple[Tensor, ...]:
        outputs = take(result)
        if not runs:
            raise ValueError(f"head={head!r} does not run when {type(model).__name__} predicts: name another layer.")
        features = _aligned(runs[-1], outputs[0], head)
        runs.clear()
        return (*outputs, features)

    replica = _with_hooks(model, [head], runs)
    collected = sampled_outputs(replica, inputs, 1, with_features, point_estimate=True, max_rows=max_rows)
    return collected[:-1], collected[-1][0]


def check_head(model: nn.Module, head: str) -> str:
    """`head` if it names a layer of the model."""
    return checks.one_of("head", head, [name for name, _ in model.named_modules() if name])


def _with_hooks(model: nn.Module, names: list[str], runs: list[_Run]) -> nn.Module:
    """The model with hooks on these modules that tell of their runs; the model itself stays as it is."""
    modules = dict(model.named_modules())
    changes: dict[nn.Module, dict[str, Any]] = {}
    for name in names:
        module = modules[name]

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, name: str = name) -> None:
            given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
            made = output[0] if isinstance(output, (tuple, list)) and output else output
            if given and given[0].is_floating_point() and given[0].dim() > 1 and isinstance(made, Tensor):
                runs.append(_Run(name, given[0], made))

        changes[module] = {
            "_forward_hooks": OrderedDict({**module._forward_hooks, _OURS: hook}),
            "_forward_hooks_with_kwargs": OrderedDict({**module._forward_hooks_with_kwargs, _OURS: True}),
        }
    return altered(model, changes)


def _is_made_by(output: Tensor, made: Tensor) -> bool:
    """Whether the model's output is this layer's: as it is, in another shape, or at one position of each example."""
    if output.numel() == made.numel():
        return torch.equal(output.flatten(), made.flatten())
    return _holds_positions(output, made) and bool((made == output.unsqueeze(1)).all(-1).any(1).all())


def _holds_positions(output: Tensor, made: Tensor) -> bool:
    return (
        output.dim() == 2 and made.dim() == 3 and made.shape[0] == output.shape[0] and made.shape[2] == output.shape[1]
    )


def _aligned(run: _Run, output: Tensor, head: str) -> Tensor:
    """The features, one vector for each position that the output has; for an output without positions one for each example."""
    features = run.features
    rows = features.shape[:-1].numel()
    for shape in (output.shape[:-1], output.shape, output.shape[:1]):
        if len(shape) and rows == shape.numel():
            return features.reshape(*shape, features.shape[-1])
    if _holds_positions(output, run.output) and features.shape[:2] == run.output.shape[:2]:
        chosen = (
            (run.output == output.unsqueeze(1)).all(-1).int().argmax(1)
        )  # a decoder's classifier reads its last token
        return features[torch.arange(len(features), device=features.device), chosen]
    raise ValueError(
        f"head={head!r} takes features {tuple(features.shape)}, which are not one vector for each position of the output "
        f"{tuple(output.shape)}: name the layer that comes after the pooling."
    )
