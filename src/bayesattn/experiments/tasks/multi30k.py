"""Multi30k: captions of photographs, German to English."""

from __future__ import annotations

from bayesattn.experiments.data import multi30k
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.translation import TranslationOptions, TranslationTask


class Multi30kTask(TranslationTask):
    """Tested on the Flickr part of 2016."""

    training = Training(epochs=15, samples=1, batch_size=64, learning_rate=1e-3)
    train_files = multi30k.TRAIN
    validation_files = multi30k.VALIDATION
    test_files = multi30k.TEST


TASKS.add("multi30k", "translation of captions, German to English", TranslationOptions(), Multi30kTask)
