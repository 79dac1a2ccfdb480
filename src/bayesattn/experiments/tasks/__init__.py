"""Data + model + likelihood + metrics, one file per task."""

from bayesattn.experiments.tasks import (
    coco,
    daquar,
    digits,
    easy_vqa,
    flickr8k,
    glue,
    graphs,
    iwslt14,
    mnist,
    multi30k,
    nvae,
    open_texts,
    pos,
    squad,
    tatoeba,
    toy,
    vqa2,
)
from bayesattn.experiments.tasks.base import Evaluation, Splits, Task, Training
from bayesattn.experiments.tasks.registered import TASKS

__all__ = [
    "TASKS",
    "Evaluation",
    "Splits",
    "Task",
    "Training",
    "coco",
    "daquar",
    "digits",
    "easy_vqa",
    "flickr8k",
    "glue",
    "graphs",
    "iwslt14",
    "mnist",
    "multi30k",
    "nvae",
    "open_texts",
    "pos",
    "squad",
    "tatoeba",
    "toy",
    "vqa2",
]
