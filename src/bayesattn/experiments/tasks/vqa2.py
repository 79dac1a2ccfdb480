"""VQA v2 from its published files: the data of BAM's and Deng et al.'s own tables."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.data.features import load_regions
from bayesattn.experiments.data.published import path_of, published_files
from bayesattn.experiments.data.questions import Questions, read_vqa
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.visual_questions import QuestionOptions, QuestionTask

PARTS = ("train2014", "val2014")
FILES = tuple(
    name
    for part in PARTS
    for name in (f"v2_OpenEnded_mscoco_{part}_questions.json", f"v2_mscoco_{part}_annotations.json")
)


@dataclass(frozen=True)
class VQA2Options(QuestionOptions):
    """Words, answers, the model's sizes (MCAN's), and how it is tested."""

    data: str = "vqa2"
    """Folder of the published files, or its name below $BAYESATTN_DATA: v2_OpenEnded_mscoco_{train,val}2014_questions.json,
    v2_mscoco_{train,val}2014_annotations.json, and in `features` bottom-up attention's .tsv files or MCAN's .npz files."""
    dim: int = 512
    heads: int = 8
    layers: int = 6
    embedding_dim: int = 300
    least_answers: int = 9
    validation_share: float = 0.02
    noise: tuple[float, ...] = (5.0,)


class VQA2Task(QuestionTask):
    """Ten annotators; trained on train2014, tested on val2014, as BAM does."""

    training = Training(epochs=13, samples=20, batch_size=64, learning_rate=1e-4)

    def __init__(self, options: VQA2Options):
        super().__init__(options)
        self.files = published_files(options.data, FILES, "https://visualqa.org/download.html")

    def read(self) -> tuple[Questions, Questions, Regions]:
        paths = [path_of(file) for file in self.files]
        train, test = read_vqa(paths[0], paths[1]), read_vqa(paths[2], paths[3])
        return train, test, load_regions(paths[0].parent / "features")


TASKS.add("vqa2", "VQA v2 from its published files (--data)", VQA2Options(), VQA2Task)
