"""Karpathy's split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.data.captions import read_karpathy
from bayesattn.experiments.data.files import DataError
from helpers.image_files import karpathy_json


def put(folder: Path, content: Any) -> Path:
    path = folder / "dataset_coco.json"
    path.write_text(json.dumps(content))
    return path


def test_parts_and_captions(tmp_path: Path) -> None:
    parts = read_karpathy(put(tmp_path, karpathy_json(range(20))))
    assert {part: len(found) for part, found in parts.items()} == {"train": 16, "validation": 2, "test": 2}
    assert "12" in parts["train"].images, "restval is trained on"
    assert parts["test"].images == ["1", "11"]
    assert parts["test"].captions[0] == [["a", "grey", "picture"], ["the", "picture", "is", "grey"]]
    assert parts["test"].first(1).images == ["1"]
    without = karpathy_json(range(20))
    for record in without["images"]:
        del record["cocoid"]
    assert read_karpathy(put(tmp_path, without))["test"].images == ["COCO_1.jpg", "COCO_11.jpg"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: images[3].update(split="tset"), r"images\[3\]: image 3 has the split 'tset'"),
        (lambda images: images[3].pop("split"), r"images\[3\] has no 'split'"),
        (lambda images: images[3].update(cocoid=2), r"images\[3\]: image 2 is there twice"),
        (lambda images: images[3].update(sentences=[]), r"images\[3\]: image 3 has no captions"),
        (lambda images: images[3]["sentences"][1].pop("tokens"), r"images\[3\], sentences\[1\] has no 'tokens'"),
        (lambda images: images[3].update(cocoid=[3]), r"images\[3\]: 'cocoid' must be of type int"),
        (
            lambda images: images[3]["sentences"][1].update(tokens=["a", 3]),
            r"images\[3\], sentences\[1\]: 'tokens' must be words, not \"\['a', 3\]\"",
        ),
        (lambda images: images.clear(), "has no images of the part 'train'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Any, message: str) -> None:
    content = karpathy_json(range(12))
    change(content["images"])
    with pytest.raises(DataError, match=f"dataset_coco.json.*{message}"):
        read_karpathy(put(tmp_path, content))
