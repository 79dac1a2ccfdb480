"""The registry of tasks. A new task is a file in this package that adds itself here, and a line in `__init__`."""

from bayesattn.registry import Registry
from bayesattn.tasks.base import Task

TASKS: Registry[Task] = Registry("task")
