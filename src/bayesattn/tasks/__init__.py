"""Data + model + likelihood + metrics, one file per task."""

from bayesattn.tasks import (
    digits,
    glue,
    graphs,
    iwslt14,
    mnist,
    multi30k,
    nvae,
    pos,
    toy,
)
from bayesattn.tasks.base import Evaluation, Splits, Task, Training
from bayesattn.tasks.registered import TASKS

__all__ = [
    "TASKS",
    "Evaluation",
    "Splits",
    "Task",
    "Training",
    "digits",
    "glue",
    "graphs",
    "iwslt14",
    "mnist",
    "multi30k",
    "nvae",
    "pos",
    "toy",
]
