"""Tatoeba: short sentences of everyday language, German to English."""

from __future__ import annotations

from bayesattn.experiments.data import tatoeba
from bayesattn.experiments.data.parallel import ParallelText
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.translation import TranslationOptions, TranslationTask


class TatoebaTask(TranslationTask):
    """No English sentence is in two of its parts, and no German one of a held-out part trains."""

    training = Training(epochs=12, samples=1, batch_size=64, learning_rate=1e-3)
    file = tatoeba.FILE

    def __init__(self, options: TranslationOptions):
        super().__init__(options)
        self.files = (self.file,)

    def parts(self) -> tuple[ParallelText, ParallelText, ParallelText]:
        return tatoeba.read_tatoeba(self.file)


TASKS.add("tatoeba", "translation of short sentences, German to English", TranslationOptions(), TatoebaTask)
