"""WikiText-2 as single sentences, in lower case, for autoencoders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bayesattn.experiments.data.files import DataFile, read_text

_SOURCE = "https://github.com/pytorch/examples/tree/77f55b9/word_language_model (valid, test) and the WikiText-2 word-level archive (train)"


def _file(part: str, sha256: str) -> DataFile:
    return DataFile(f"wikitext2/wiki.{part}.tokens", sha256, _SOURCE)


FILES = (
    _file("train", "728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89"),
    _file("valid", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    _file("test", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
)

UNKNOWN = "[UNK]"
"""What stands for a word that WikiText-2 itself has replaced by <unk>."""

_JOINED = re.compile(r" ?@([-,.])@ ?")
_ENDS = frozenset(".!?")


def load_sentences() -> tuple[list[str], list[str], list[str]]:
    """The sentences to train, validate and test, in the order of the files; headings left out."""
    train, valid, test = (list(_sentences(file)) for file in FILES)
    return train, valid, test


def _sentences(file: DataFile) -> Iterator[str]:
    text, _ = read_text(file)
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith("="):
            yield from split_sentences(line)


def split_sentences(line: str) -> Iterator[str]:
    """The sentences of a line of WikiText: its words are apart, so a full stop that ends one is a word of its own.

    A quotation mark after it belongs to the sentence if that has an open one.

    >>> list(split_sentences('It rose by 1 @.@ 5 m . " Too far ! " he said . <unk> agreed .'))
    ['it rose by 1.5 m .', '" too far ! "', 'he said .', '[UNK] agreed .']
    """
    words = line.split()
    start = 0
    for place, word in enumerate(words):
        if place < start or word not in _ENDS:
            continue
        end = place + 1
        if words[end : end + 1] == ['"'] and words[start:end].count('"') % 2:
            end += 1
        yield _clean(words[start:end])
        start = end
    if start < len(words):
        yield _clean(words[start:])


def _clean(words: list[str]) -> str:
    text = _JOINED.sub(r"\1", " ".join(words).lower())
    return text.replace("<unk>", UNKNOWN)
