"""DAQUAR: questions on indoor scenes, in the official split."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.data import daquar
from bayesattn.experiments.data.daquar import Lists, load_daquar
from bayesattn.experiments.data.questions import Questions
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.visual_questions import QuestionOptions, QuestionTask


@dataclass(frozen=True)
class DaquarOptions(QuestionOptions):
    """Words, answers, the model's sizes, and how it is tested."""

    lists: Lists = "leave out"
    """What becomes of questions whose answer is a list (one in ten): they are left out, or their "first" answer is taken."""


class DaquarTask(QuestionTask):
    """One annotator. No image of the test is in the training."""

    training = Training(epochs=20, samples=10, batch_size=64, learning_rate=1e-3)
    files = daquar.FILES

    def __init__(self, options: DaquarOptions):
        super().__init__(options)
        self.lists: Lists = options.lists

    def read(self) -> tuple[Questions, Questions, Regions]:
        return load_daquar(self.lists)


TASKS.add("daquar", "questions on indoor scenes: MCAN, or the bottom-up model", DaquarOptions(), DaquarTask)
