"""The registry of tasks. A new task is a file in this package that adds itself here, and a line in `__init__`."""

from bayesattn.experiments.registry import Registry
from bayesattn.experiments.tasks.base import Task

TASKS: Registry[Task] = Registry("task")
