"""Snapshot ensembles (Huang et al. 2017): the weights at the ends of the cycles of one training, asked as an ensemble."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.weight_space.layers import mix_in
from bayesattn.weight_space.network import ParameterVector

Model = TypeVar("Model", bound=nn.Module)


class SnapshotNetwork(modes.DrawsOnce, nn.Module):
    """A network that inside `sampling()` runs with one of its kept weights, else with its own. Mixed into its own class."""

    snapshot_parameters: ParameterVector
    snapshot_weights: Tensor
    snapshot_count: Tensor

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not modes.is_sampling():
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        count = int(self.snapshot_count)
        if not count:
            raise RuntimeError(
                "No snapshot was taken: call ba.weight_space.take_snapshot(model) at the end of each cycle."
            )
        draw = modes.current_draw()
        chosen = torch.randint(count, (), generator=modes.current_generator()) if draw is None else draw.index % count
        parameters = self.snapshot_parameters
        drawn = parameters.model_with(self, parameters.parts(self.snapshot_weights[int(chosen)]))
        return super(SnapshotNetwork, drawn).forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


def snapshots(model: Model, n: int = 4) -> Model:
    """Prepare `model` to keep its weights `n` times while it trains, in place.

    Let the learning rate fall to 0 and rise again `n` times (`snapshot_rate`), and call `take_snapshot(model)` each time it is at 0.
    `ba.predict(model, x, samples=n)` asks every snapshot once. The price is that of one training and of `n` predictions.

    >>> import torch, bayesattn as ba
    >>> model = ba.weight_space.snapshots(torch.nn.Linear(3, 2), n=2)
    >>> for cycle in range(2):
    ...     _ = torch.nn.init.normal_(model.weight)  # train here
    ...     ba.weight_space.take_snapshot(model)
    >>> ba.predict(model, torch.randn(4, 3), samples=2).mutual_information.shape
    torch.Size([4])
    """
    checks.whole("n", n, minimum=2)
    if isinstance(model, SnapshotNetwork):
        raise ValueError(f"{type(model).__name__} keeps snapshots already.")
    parameters = ParameterVector(model, None)
    device = next(model.parameters()).device
    mix_in(model, SnapshotNetwork)
    network: Any = model  # of its new class now
    network.snapshot_parameters = parameters
    model.register_buffer("snapshot_weights", torch.zeros(n, len(parameters), device=device))
    model.register_buffer("snapshot_count", torch.zeros((), dtype=torch.long, device=device))
    return model


def take_snapshot(model: nn.Module) -> None:
    """Keep the model's present weights."""
    if not isinstance(model, SnapshotNetwork):
        raise ValueError(f"{type(model).__name__} keeps no snapshots: call ba.weight_space.snapshots(model) first.")
    count = int(model.snapshot_count)
    if count == len(model.snapshot_weights):
        raise RuntimeError(f"All {count} snapshots are taken: prepare the model with snapshots(model, n={count + 1}).")
    model.snapshot_weights[count] = model.snapshot_parameters.read(model)
    model.snapshot_count += 1


def snapshot_rate(progress: float, n: int) -> float:
    """The factor of the learning rate: `n` times from 1 along a cosine to 0; `progress` is the share of the training that is done.

    >>> [round(snapshot_rate(share, 2), 3) for share in (0.0, 0.25, 0.499, 0.5, 0.75)]
    [1.0, 0.5, 0.0, 1.0, 0.5]
    """
    return 0.5 + 0.5 * math.cos(math.pi * (n * progress % 1.0))
