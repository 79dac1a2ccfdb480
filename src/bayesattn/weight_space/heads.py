"""A network's last linear layer: which it is, another one in its place, and what enters it over the training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.prediction.calibration.examples import IGNORED, batches
from bayesattn.prediction.calibration.head import outputs_and_features
from bayesattn.prediction.calling import default_output
from bayesattn.scopes import modes
from bayesattn.weight_space.selection import Where, choose_layers

Head = TypeVar("Head", bound=nn.Module)


def linear_head(model: nn.Module, where: Where) -> tuple[str, nn.Linear]:
    """The one linear layer that `where` chooses, and its name."""
    chosen = choose_layers(model, where)
    name, layer = next(iter(chosen.items()))
    if len(chosen) != 1 or not name or not isinstance(layer, nn.Linear):
        raise ValueError(
            f"where={where!r} must choose one nn.Linear inside the model, the head; it chooses "
            f"{', '.join(f'{each!r} ({type(module).__name__})' for each, module in chosen.items())}."
        )
    return name, layer


def put_head(model: nn.Module, name: str, head: nn.Module) -> None:
    """This module in place of the layer `name`, on its device and in its mode."""
    before = model.get_submodule(name)
    parent, _, attribute = name.rpartition(".")
    device = next(before.parameters()).device
    setattr(model.get_submodule(parent), attribute, head.to(device).train(before.training))


def only_head(model: nn.Module, kind: type[Head], words: str) -> tuple[str, Head]:
    """The model's one head of this kind, and its name."""
    heads = [(name, module) for name, module in model.named_modules() if isinstance(module, kind)]
    if len(heads) != 1:
        raise ValueError(f"{type(model).__name__} has {len(heads)} {words}, not one.")
    return heads[0]


def row_noise(logits: Tensor) -> Tensor:
    """Standard normal noise for each logit. Drawn new and not in place, so that `predict` computes all before it once for all samples."""
    generator = modes.current_generator()
    return torch.randn(logits.shape, generator=generator, dtype=logits.dtype, device=logits.device)


def training_features(
    model: nn.Module, name: str, train: Any, output: Callable[[Any], Any] | None, max_rows: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """What enters the layer `name` and what the model makes of it, [rows, ...] each, in eval mode, batch by batch.

    Positions whose label says that they do not count are left out.
    """
    take = output or default_output
    for inputs, labels in batches(train, "train"):
        (outputs,), features = outputs_and_features(model, inputs, lambda result: (take(result),), name, max_rows)
        if not bool(features.isfinite().all()):
            raise ValueError("train: features of the model are NaN or infinite; no covariance can be fitted to them.")
        rows, made = features.flatten(0, -2), outputs[0].reshape(-1, outputs.shape[-1])
        if labels.shape == features.shape[:-1] and not labels.is_floating_point() and len(made) == len(rows):
            counted = (labels != IGNORED).flatten().to(rows.device)
            rows, made = rows[counted], made[counted]
        yield rows, made
