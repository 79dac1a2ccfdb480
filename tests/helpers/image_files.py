"""Small files of the published formats: features, questions with annotations, captions. A picture of shade s has regions around s."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy
import torch

SHADES = ("black", "grey", "white")


def block(image: int, regions: int, features: int = 4) -> numpy.ndarray:
    """The regions of an image; its number modulo 3 is its shade."""
    noise = numpy.random.default_rng(image).normal(size=(regions, features))
    return (3.0 * (image % 3) + 0.3 * noise).astype("<f4")


def tsv_line(image: int, values: numpy.ndarray, /, **changes: str) -> str:
    boxes = numpy.zeros((len(values), 4), dtype="<f4")
    fields = {
        "image_id": str(image),
        "image_w": "640",
        "image_h": "480",
        "num_boxes": str(len(values)),
        "boxes": base64.b64encode(boxes.tobytes()).decode(),
        "features": base64.b64encode(values.tobytes()).decode(),
    }
    return "\t".join((fields | changes).values())


def put_tsv(folder: Path, images: range) -> None:
    """Bottom-up attention features; image i has 2 + i % 3 regions."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [tsv_line(image, block(image, 2 + image % 3)) for image in images]
    (folder / "features.tsv").write_text("\n".join(lines) + "\n")


def questions_json(images: range) -> tuple[dict[str, Any], dict[str, Any]]:
    """One question on each image, ten answers, of which the last two disagree."""
    asked = [{"question_id": 100 + i, "image_id": i, "question": "What shade is it?"} for i in images]
    given = [
        {
            "question_id": 100 + i,
            "image_id": i,
            "answer_type": "other",
            "question_type": "what",
            "multiple_choice_answer": SHADES[i % 3],
            "answers": [
                {"answer": SHADES[i % 3] if n < 8 else "Blue", "answer_confidence": "yes", "answer_id": n + 1}
                for n in range(10)
            ],
        }
        for i in images
    ]
    return {"questions": asked}, {"annotations": given}


def put_vqa(folder: Path, train: range, test: range) -> None:
    """A folder as the task vqa2 reads it."""
    put_tsv(folder / "features", range(min(train.start, test.start), max(train.stop, test.stop)))
    for part, images in (("train2014", train), ("val2014", test)):
        asked, given = questions_json(images)
        (folder / f"v2_OpenEnded_mscoco_{part}_questions.json").write_text(json.dumps(asked))
        (folder / f"v2_mscoco_{part}_annotations.json").write_text(json.dumps(given))


def karpathy_json(images: range) -> dict[str, Any]:
    """Two captions of each image; every tenth validates, every tenth tests, one in ten is "restval"."""
    names = {0: "val", 1: "test", 2: "restval"}
    return {
        "images": [
            {
                "cocoid": i,
                "filename": f"COCO_{i}.jpg",
                "split": names.get(i % 10, "train"),
                "sentences": [
                    {"tokens": ["A", SHADES[i % 3], "picture"], "raw": "A picture."},
                    {"tokens": ["the", "picture", "is", SHADES[i % 3]], "raw": "The picture is."},
                ],
            }
            for i in images
        ]
    }


def put_coco(folder: Path, images: range) -> None:
    """A folder as the task coco reads it."""
    put_tsv(folder / "features", images)
    (folder / "dataset_coco.json").write_text(json.dumps(karpathy_json(images)))


def archive(regions: torch.Tensor, ids: list[str]) -> dict[str, numpy.ndarray]:
    """The arrays of a features.npz."""
    return {"regions": regions.numpy(), "image_ids": numpy.array(ids)}
