"""IWSLT'14: talks, German to English, with the model and the training of Deng et al. For those who have its training data."""

from __future__ import annotations

from bayesattn.experiments.data import iwslt14
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.experiments.tasks.translation import TranslationOptions, TranslationTask

PAPER = TranslationOptions(
    vocabulary=14_000,
    joint=True,
    max_length=125,
    embedding_dim=512,
    encoder_dim=512,
    decoder_dim=768,
    attention_dim=512,
    inference_dim=512,
    layers=2,
)


class Iwslt14Task(TranslationTask):
    """Its text comes in words and in lower case, which is how the paper takes BLEU."""

    training = Training(epochs=30, samples=1, batch_size=6, learning_rate=3e-4)
    train_files = iwslt14.TRAIN
    validation_files = iwslt14.VALIDATION
    test_files = iwslt14.TEST
    bleu_tokenizer = "none"


TASKS.add("iwslt14", "translation of talks, German to English; training data by hand", PAPER, Iwslt14Task)
