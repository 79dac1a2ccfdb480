"""easy-VQA: questions on drawn shapes; the regions are patches of the image."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesattn.experiments.data import easy_vqa
from bayesattn.experiments.data.easy_vqa import load_easy_vqa, load_images
from bayesattn.experiments.data.questions import Questions
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.visual_questions import QuestionOptions, QuestionTask
from bayesattn.support import checks
from bayesattn.support.annotations import Float


@dataclass(frozen=True)
class EasyVQAOptions(QuestionOptions):
    """Words, answers, the model's sizes, and how it is tested."""

    patch: int = 16
    """Pixels of a patch's side; the images have 64."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("patch", self.patch)


class EasyVQATask(QuestionTask):
    """One annotator, 13 answers."""

    training = Training(epochs=10, samples=10, batch_size=128, learning_rate=1e-3)
    files = tuple(easy_vqa.FILES.values())

    def __init__(self, options: EasyVQAOptions):
        super().__init__(options)
        self.patch = options.patch

    def read(self) -> tuple[Questions, Questions, Regions]:
        return load_easy_vqa(self.patch)

    def picture(self, image: str) -> Float[Tensor, "height width 3"] | None:
        part = image.rstrip("0123456789")
        return load_images(part)[int(image.removeprefix(part))]


TASKS.add("easy-vqa", "questions on drawn shapes, regions are patches", EasyVQAOptions(), EasyVQATask)
