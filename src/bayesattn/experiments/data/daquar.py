"""DAQUAR (Malinowski and Fritz 2014): questions on indoor scenes, with grid features in place of the images."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal

from bayesattn.experiments.data.features import load_archive
from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.experiments.data.questions import Questions, kind_of
from bayesattn.experiments.data.regions import Regions
from bayesattn.support import checks

_SOURCE = "https://github.com/tezansahu/VQA-With-Multimodal-Transformers (dataset/)"
QUESTIONS = DataFile("daquar/data.csv", "7be1152abb51b155c1f2a974e013707b5b49479034f2ac1c302cefc1ba9bff39", _SOURCE)
TRAIN_IMAGES = DataFile(
    "daquar/train_images_list.txt", "91d0269224e4131c7ddbfa1c1f429434f9e29ba507922bf72055bf3d7cab8cf3", _SOURCE
)
TEST_IMAGES = DataFile(
    "daquar/test_images_list.txt", "e7092892cc8049635e6b9465a7f5f6790119c32cfd3d7dd276b77ff6b6a952b3", _SOURCE
)
FEATURES = DataFile(
    "daquar/features.npz",
    "d307c9dca77e903da3096afe26879582fcf1af44d57ae897d08fc2f831b9d574",
    "the project's research data (EfficientNet-lite1 on the images of NYU-Depth-v2, see docs/images.md)",
)
FILES = (QUESTIONS, TRAIN_IMAGES, TEST_IMAGES, FEATURES)

Lists = Literal["leave out", "first"]


def load_daquar(lists: Lists = "leave out") -> tuple[Questions, Questions, Regions]:
    """The questions to train and to test on, in the official split, which no image crosses; and the images' regions.

    One question in ten has a list for an answer ("table, chair"): those are left out, or their first answer is taken.
    """
    checks.one_of("lists", lists, ("leave out", "first"))
    text, path = read_text(QUESTIONS)
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as problem:
        raise DataError(f"{path} is not a table of comma-separated values ({problem}). {QUESTIONS.remedy()}") from None
    train, test = _image_list(TRAIN_IMAGES), _image_list(TEST_IMAGES)
    if both := train & test:
        raise DataError(f"{TRAIN_IMAGES.path} and {TEST_IMAGES.path} share images, such as {min(both)}: they must not.")
    parts = {"train": Questions([], [], [], []), "test": Questions([], [], [], [])}
    for number, row in enumerate(rows, start=2):
        image, answer = _cell(row, "image_id", path, number), _cell(row, "answer", path, number)
        if image not in train and image not in test:
            raise DataError(f"{path}, line {number}: {image[:60]} is in none of the two lists of images.")
        if "," in answer:
            if lists == "leave out":
                continue
            answer = answer.split(",")[0].strip()
        part = parts["train" if image in train else "test"]
        part.texts.append(_cell(row, "question", path, number))
        part.images.append(image)
        part.answers.append((answer,))
        part.kinds.append(kind_of(answer))
    return parts["train"], parts["test"], load_archive(FEATURES)


def _image_list(file: DataFile) -> set[str]:
    text, _ = read_text(file)
    return set(text.split())


def _cell(row: dict[str, str | None], name: str, path: Path, number: int) -> str:
    value = (row.get(name) or "").strip()
    if not value:
        raise DataError(f"{path}, line {number} has no {name}.")
    return value
