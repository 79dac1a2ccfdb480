"""Captions of images: Karpathy's JSON files, and the form that all such data sets are brought into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.records import field, read_json, records

PARTS = {"train": "train", "restval": "train", "val": "validation", "test": "test"}
"""Karpathy's names of the parts, and ours; "restval" is what is left of COCO's validation images."""


@dataclass(frozen=True)
class Captions:
    """Images and, for each, its captions as words in lower case."""

    images: list[str]
    captions: list[list[list[str]]]

    def __len__(self) -> int:
        return len(self.images)

    def first(self, count: int | None) -> Captions:
        """Of the first so many images; None: of all."""
        return Captions(self.images[:count], self.captions[:count])


def read_karpathy(path: Path) -> dict[str, Captions]:
    """The parts "train", "validation" and "test" of Karpathy's split of COCO, Flickr8k or Flickr30k.

    An image's id is its `cocoid` where there is one, else its `filename`.
    """
    parts = {part: Captions([], []) for part in dict.fromkeys(PARTS.values())}
    seen: set[str] = set()
    for place, record in records(read_json(path), "images", path):
        name = (
            str(field(record, "cocoid", int, path, place))
            if "cocoid" in record
            else field(record, "filename", str, path, place)
        )
        if name in seen:
            raise DataError(f"{path}, {place}: image {name} is there twice.")
        seen.add(name)
        split = field(record, "split", str, path, place)
        if split not in PARTS:
            raise DataError(
                f"{path}, {place}: image {name} has the split {split!r}, which is none of {', '.join(PARTS)}."
            )
        sentences = field(record, "sentences", list, path, place)
        captions = [
            _words(sentence, path, f"{place}, sentences[{number}]") for number, sentence in enumerate(sentences)
        ]
        captions = [words for words in captions if words]
        if not captions:
            raise DataError(f"{path}, {place}: image {name} has no captions.")
        parts[PARTS[split]].images.append(name)
        parts[PARTS[split]].captions.append(captions)
    for part, found in parts.items():
        if not len(found):
            raise DataError(f"{path} has no images of the part {part!r}.")
    return parts


def _words(sentence: Any, path: Path, place: str) -> list[str]:
    words = field(sentence, "tokens", list, path, place)
    if not all(isinstance(word, str) for word in words):
        raise DataError(f"{path}, {place}: 'tokens' must be words, not {str(words)[:60]!r}.")
    return [word.lower() for word in words]
