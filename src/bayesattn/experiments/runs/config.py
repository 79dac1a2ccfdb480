"""What is run: a task, a method, a seed, and every hyper-parameter."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from bayesattn.experiments.methods import METHODS, Method
from bayesattn.experiments.registry import identity
from bayesattn.experiments.tasks import TASKS, Task, Training
from bayesattn.support import checks


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of a run. Two runs with equal configs are the same run."""

    task: str
    method: str
    seed: int
    training: Training
    task_options: Any
    method_options: Any

    def make_task(self) -> Task:
        """The task with these options."""
        return TASKS.create(self.task, self.task_options)

    def make_method(self) -> Method:
        """The method with these options."""
        return METHODS.create(self.method, self.method_options)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunConfig:
        """The inverse of `to_json`; options that are not in `values` have their defaults."""
        return configure(
            values["task"],
            values["method"],
            values["seed"],
            training=values["training"],
            task_options=values["task_options"],
            method_options=values["method_options"],
        )

    @functools.cached_property
    def name(self) -> str:
        """The name of its folder: what a person looks for, and a digest of all the rest."""
        canonical = json.dumps(self._but_the_seed | {"seed": self.seed}, sort_keys=True)
        return f"{self.task}_{self.method}_seed{self.seed}_{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"

    def with_seed(self, seed: int) -> RunConfig:
        """The same with another seed."""
        other = dataclasses.replace(self, seed=seed)
        vars(other)["_but_the_seed"] = self._but_the_seed  # a table has thousands: what they share is looked at once
        return other

    def with_method(self, method: str, changes: dict[str, Any] | None = None) -> RunConfig:
        """The same with another method: its defaults, with these changes."""
        options = _changed(METHODS.entry(method).options, changes)
        other = dataclasses.replace(self, method=method, method_options=options)
        vars(other)["_of_the_task"] = self._of_the_task  # shared by all methods of a table: looked at once
        return other

    @functools.cached_property
    def _but_the_seed(self) -> dict[str, Any]:
        return self._of_the_task | {"method": self.method, "method_options": identity(self.method_options)}

    @functools.cached_property
    def _of_the_task(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "training": identity(self.training),
            "task_options": identity(self.task_options),
        }


def configure(
    task: str,
    method: str,
    seed: int = 0,
    *,
    training: dict[str, Any] | None = None,
    task_options: dict[str, Any] | None = None,
    method_options: dict[str, Any] | None = None,
) -> RunConfig:
    """The defaults of `task` and `method`, with changes.

    >>> configure("toy-m3", "attn-dirichlet", training={"epochs": 5}).training.epochs
    5
    """
    made = TASKS.create(task)
    return RunConfig(
        task,
        method,
        checks.whole("seed", seed, minimum=0),
        _changed(made.training, training),
        _changed(TASKS.entry(task).options, task_options),
        _changed(METHODS.entry(method).options, method_options),
    )


def _changed(options: Any, changes: dict[str, Any] | None) -> Any:
    known = [field.name for field in dataclasses.fields(options)]
    for name in changes or {}:
        checks.one_of("option", name, known)
    # JSON knows no tuples
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in (changes or {}).items()}
    return dataclasses.replace(options, **values)
