"""Members at less than the price of an ensemble: narrow ones in one model, and snapshots of one training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesattn import weight_space
from bayesattn.experiments.methods.base import Method
from bayesattn.experiments.methods.registered import METHODS
from bayesattn.experiments.tasks.base import Examples, Task
from bayesattn.support import checks


@dataclass(frozen=True)
class PackedOptions:
    """Packed ensemble (Laurent et al. 2023)."""

    members: int = 4
    """Narrow models in one; their width is that at which they have the matrix products of the task's model."""


class Packed(Method):
    """Narrow members in one model, each with its own loss; for tasks whose model is trained from scratch."""

    def __init__(self, options: PackedOptions):
        self.count = checks.whole("members", options.members, minimum=2)

    def build(self, task: Task) -> nn.Module:
        narrow = task.narrowed(self.count)
        return weight_space.pack(lambda: narrow.build(self.dropout), self.count)

    def nll(self, task: Task, model: nn.Module, batch: Examples) -> Tensor:
        """The mean over members of the NLL that each has of its own."""
        calls = _EachMember(model, self.count)
        return torch.stack([task.nll(calls.of(member), batch) for member in range(self.count)]).mean(0)

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        return task.predict(models[0], inputs, self.count)

    def point_estimate(self, models: Sequence[nn.Module], task: Task, inputs: Any) -> Any:
        return self.predict(models, task, inputs, 1)


class _EachMember:
    """The members as models of their own that a task's likelihood may call, each once; together they run once."""

    def __init__(self, model: nn.Module, members: int):
        self.model = model
        self.members = members
        self.outputs: list[Any] = []
        self.asked: list[int] = []

    def of(self, member: int) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            if member in self.asked:
                raise RuntimeError("A packed model is for tasks whose likelihood runs the model once for a batch.")
            self.asked.append(member)
            if not self.outputs:
                outputs = self.model(*args, **kwargs)
                if not self.model.training:  # a mean over members there: every member counts as that
                    outputs = pytree.tree_map_only(Tensor, lambda each: each.expand(self.members, *each.shape), outputs)
                self.outputs.append(outputs)
            return pytree.tree_map_only(Tensor, lambda each: each[member], self.outputs[0])

        return run


@dataclass(frozen=True)
class SnapshotOptions:
    """Snapshot ensemble (Huang et al. 2017)."""

    snapshots: int = 5
    """Cycles of the learning rate, each with a snapshot at its end; the epochs must be a multiple of it."""


class Snapshot(Method):
    """One training in cycles; the prediction is the mixture of the networks at their ends."""

    def __init__(self, options: SnapshotOptions):
        self.count = checks.whole("snapshots", options.snapshots, minimum=2)

    def build(self, task: Task) -> nn.Module:
        return weight_space.snapshots(super().build(task), self.count)

    def learning_rate(self, usual: float, progress: float) -> float:
        return weight_space.snapshot_rate(progress, self.count)

    def after_epoch(self, model: nn.Module, progress: float) -> None:
        network: Any = model
        end = (int(network.snapshot_count) + 1) / self.count
        if progress > end + 1e-9:
            raise ValueError(
                f"snapshots={self.count}: a cycle of the learning rate ended within an epoch. Take a number of epochs that is a multiple "
                "of it."
            )
        if progress > end - 1e-9:
            weight_space.take_snapshot(model)

    def predict(self, models: Sequence[nn.Module], task: Task, inputs: Any, samples: int) -> Any:
        return task.predict(models[0], inputs, self.count)


METHODS.add("packed", "narrow models packed into one, trained from scratch", PackedOptions(), Packed)
METHODS.add("snapshot", "snapshots of one training with a cyclic learning rate", SnapshotOptions(), Snapshot)
