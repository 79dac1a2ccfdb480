"""UD English EWT for part-of-speech tagging, preprocessed as in the thesis (Cinquin 2021, section 3.1).

Lemmas in lower case; punctuation and tokens without a letter (digits, symbols) left out; a word seen n < 5 times in the training
part is the token UKNn, one never seen there UKN1; sentences longer than 40 words are split; the rest is padded with PAD, tag X.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import conllu
import torch
from conllu.exceptions import ParseException
from torch import Tensor

from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.support.annotations import Shaped

MAX_LEN = 40
RARE = 5
TAGS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM",
    "VERB", "X",
)  # fmt: skip
PAD = 0
PAD_TAG = TAGS.index("X")

_SITE = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/15d613d/"


def _file(part: str, sha256: str) -> DataFile:
    name = f"en_ewt-ud-{part}.conllu"
    return DataFile(f"ud_ewt/{name}", sha256, _SITE + name, _SITE + name)


FILES = (
    _file("train", "4f5bf82b493c2ae7563889e57a87c02e6e9ee8ccbba417a899c73ff09a4807a6"),
    _file("dev", "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6"),
    _file("test", "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd"),
)


@dataclass(frozen=True)
class Word:
    """One word of the treebank."""

    form: str
    lemma: str
    tag: str


@dataclass(frozen=True)
class TaggedSentences:
    """Token ids and tags, [sentences, MAX_LEN], padded; and the words for people to read."""

    tokens: Shaped[Tensor, "n length"]
    tags: Shaped[Tensor, "n length"]
    words: list[list[str]]


class Vocabulary:
    """Words of the training part → token ids; 0 is PAD, then UKN1 … UKN4, then the words in order of count."""

    def __init__(self, sentences: list[list[Word]]):
        counts = Counter(word.lemma for sentence in sentences for word in sentence)
        frequent = sorted((word for word, count in counts.items() if count >= RARE), key=lambda w: (-counts[w], w))
        names = ["PAD", *(f"UKN{count}" for count in range(1, RARE)), *frequent]
        self.names = names
        self._ids = {name: place for place, name in enumerate(names) if place >= RARE}
        self._counts = {word: count for word, count in counts.items() if count < RARE}
        forms = Counter((word.form.lower(), word.lemma) for sentence in sentences for word in sentence)
        self._lemmas = {form: lemma for (form, lemma), _ in reversed(forms.most_common())}

    def __len__(self) -> int:
        return len(self.names)

    def token(self, lemma: str) -> int:
        """The id of a lemma."""
        return self._ids.get(lemma) or max(1, self._counts.get(lemma, 0))

    def lemma(self, form: str) -> str:
        """The lemma that a form mostly has in the training part; an unseen form is its own."""
        return self._lemmas.get(form.lower(), form.lower())

    def encode(self, sentences: list[list[str]]) -> Tensor:
        """Token ids of lemmas, padded to MAX_LEN."""
        rows = torch.full((len(sentences), MAX_LEN), PAD)
        for row, lemmas in zip(rows, sentences, strict=True):
            row[: len(lemmas)] = torch.tensor([self.token(lemma) for lemma in lemmas])
        return rows


@lru_cache(maxsize=1)
def load_ud_ewt() -> tuple[Vocabulary, TaggedSentences, TaggedSentences, TaggedSentences]:
    """The vocabulary, and the sentences to train, validate and test."""
    train, dev, test = (parse(file) for file in FILES)
    vocabulary = Vocabulary(train)
    return vocabulary, _encoded(train, vocabulary), _encoded(dev, vocabulary), _encoded(test, vocabulary)


def parse(file: DataFile) -> list[list[Word]]:
    """The sentences of a CoNLL-U file without punctuation and tokens without a letter; empty ones left out."""
    text, path = read_text(file)
    for number, line in enumerate(text.splitlines(), start=1):
        if line and not line.startswith("#") and line.count("\t") != 9:
            raise DataError(
                f"{path}, line {number}: a CoNLL-U line has 10 columns, this one has {line.count(chr(9)) + 1}: {line[:60]!r}. "
                f"{file.remedy()}"
            )
    try:
        parsed = conllu.parse(text, fields=("id", "form", "lemma", "upos"))
    except (ParseException, ValueError) as problem:  # ValueError: a number of thousands of digits
        raise DataError(f"{path} is not CoNLL-U: {problem}. {file.remedy()}") from None
    sentences = []
    for sentence in parsed:
        words = [_word(token, f"{path}, sentence {sentence.metadata.get('sent_id')}", file) for token in sentence]
        words = [word for word in words if word is not None]
        if words:
            sentences.append(words)
    if not sentences:
        raise DataError(f"{path} holds no sentences. {file.remedy()}")
    return sentences


def _word(token: conllu.Token, place: str, file: DataFile) -> Word | None:
    if not isinstance(token["id"], int):
        return None  # the surface of a multi-word token, or an empty node: its words follow
    if token["upos"] not in TAGS:
        raise DataError(f"{place}: {str(token['upos'])[:40]!r} is not a universal part of speech. {file.remedy()}")
    if token["upos"] == "PUNCT" or not any(letter.isalpha() for letter in token["form"]):
        return None
    return Word(token["form"], (token["lemma"] or token["form"]).lower(), token["upos"])


def _encoded(sentences: list[list[Word]], vocabulary: Vocabulary) -> TaggedSentences:
    pieces = [sentence[at : at + MAX_LEN] for sentence in sentences for at in range(0, len(sentence), MAX_LEN)]
    tags = torch.full((len(pieces), MAX_LEN), PAD_TAG)
    for row, piece in zip(tags, pieces, strict=True):
        row[: len(piece)] = torch.tensor([TAGS.index(word.tag) for word in piece])
    tokens = vocabulary.encode([[word.lemma for word in piece] for piece in pieces])
    return TaggedSentences(tokens, tags, [[word.form for word in piece] for piece in pieces])
