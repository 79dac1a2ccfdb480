"""Files of data sets: a small valid example of each format, how it is read, and what a right result is."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from hypothesis.strategies import SearchStrategy

from bayesattn.experiments.data import daquar, easy_vqa, flickr8k, glue, pos_ambiguity, ud_ewt, wikitext2
from bayesattn.experiments.data.captions import PARTS, read_karpathy
from bayesattn.experiments.data.features import load_archive, load_regions
from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.data.glove import read_glove
from bayesattn.experiments.data.idx import MNIST_TEST, load_images
from bayesattn.experiments.data.parallel import ParallelFiles, read_parallel
from bayesattn.experiments.data.planetoid import load_planetoid
from bayesattn.experiments.data.questions import KINDS, read_vqa
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.data.squad import read_squad
from helpers.data_files import conllu, idx, images, planetoid
from helpers.image_files import archive, block, karpathy_json, questions_json, tsv_line
from torture.attention_cases import expect
from torture.damage import damaged_arrays, damaged_bytes, damaged_json, damaged_lines, damaged_pickle

Damage = Callable[[bytes], SearchStrategy[bytes]]
CANARY = "canary"
"""The file that a malicious pickle would write into the working directory."""


class Malicious:
    """Unpickled by the ordinary unpickler, it writes a file."""

    def __reduce__(self) -> Any:
        return (Path.write_text, (Path(CANARY), "gotcha"))


ATTACK = pickle.dumps(Malicious(), protocol=2)


@dataclass(frozen=True)
class Format:
    """Files that are read together. `files` are valid ones below the data folder; those in `damages` get damaged, one at a time."""

    files: dict[str, bytes]
    damages: dict[str, Damage]
    load: Callable[[Path], Any]
    check: Callable[[Any], None]
    """Raises where a result that was given is not a right one."""


def _text(content: str) -> None:
    """Text that can be written to a file or a terminal."""
    content.encode()


def _idx() -> Format:
    pixels, labels = images(4, seed=0)
    files = {f"{MNIST_TEST[0].path}": idx(pixels[:, :3, :5]), f"{MNIST_TEST[1].path}": idx(labels)}

    def check(result: Any) -> None:
        expect(len(result[0]) == len(result[1]) > 0, "not as many labels as images, or none")
        expect(0.0 <= result[0].min() <= result[0].max() <= 1.0, "pixels outside [0, 1]")

    return Format(files, dict.fromkeys(files, damaged_bytes), lambda folder: load_images(MNIST_TEST), check)


def _conllu() -> Format:
    file = ud_ewt.FILES[0]
    words = [("Time", "time", "NOUN"), ("flies", "fly", "VERB"), (",", ",", "PUNCT"), ("3", "3", "NUM")]
    content = conllu([words, words[:2]]).replace(b"\n2\tflies", b"\n2-3\tflies\t_\t_\t_\t_\t_\t_\t_\t_\n2\tflies", 1)

    def check(sentences: Any) -> None:
        expect(bool(sentences), "no sentences")
        for word in (word for sentence in sentences for word in sentence):
            expect(word.tag in ud_ewt.TAGS and bool(word.form) and bool(word.lemma), f"a strange word: {word}")

    return Format({file.path: content}, {file.path: damaged_lines}, lambda folder: ud_ewt.parse(file), check)


def _planetoid() -> Format:
    files = {f"planetoid/ind.cora.{part}": content for part, content in planetoid().items()}
    damages: dict[str, Damage] = {
        name: damaged_lines if name.endswith("index") else partial(damaged_pickle, attack=ATTACK) for name in files
    }

    def load(folder: Path) -> Any:
        load_planetoid.cache_clear()
        return load_planetoid("cora")

    def check(graph: Any) -> None:
        nodes = len(graph.labels)
        for chosen in (graph.edges, graph.train, graph.validation, graph.test):
            expect(bool((chosen >= 0).all() and (chosen < nodes).all()), f"a node outside of the {nodes}")
        expect(graph.features.shape[0] == nodes, "not as many features as nodes")
        expect(bool(graph.features.values().isfinite().all()), "features that are not finite")

    return Format(files, damages, load, check)


GLUE = {
    "CoLA/train": 'gj04\t1\t\tThey said "no.\ngj04\t0\t*\tThey drank the pub.\n',
    "SST-2/dev": "sentence\tlabel\na joy\t1\ntedious\t0\n",
    "RTE/dev": "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n1\tA\tB\tnot_entailment\n",
    "MRPC/train": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tHe said\tHe told\r\n",
    "STS-B/dev": "\t".join(["h"] * 10) + "\n" + "\t".join(["x"] * 7 + ["A plane.", "A jet.", "4.75"]) + "\n",
}


def _glue() -> Format:
    files = {f"glue/{name}.tsv": text.encode() for name, text in GLUE.items()}

    def load(folder: Path) -> Any:
        return [glue.load_glue(*name.split("/")) for name in GLUE]  # pyright: ignore[reportArgumentType]

    def check(loaded: Any) -> None:
        for sentences, name in zip(loaded, GLUE, strict=True):
            expect(len(sentences) == len(sentences.labels) > 0, "not as many labels as sentences, or none")
            most = 5 if name.startswith("STS") else 1
            expect(all(0 <= label <= most for label in sentences.labels), "a label out of range")

    return Format(files, dict.fromkeys(files, damaged_lines), load, check)


GLUE_BY_NAME = {
    "MNLI/dev_matched": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tIt rains.\tIt is.\tneutral\tentailment\n1\tA\tB\t-\tneutral\n",
    "QNLI/train": "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn May.\tentailment\n1\tWho?\tIn June.\tnot_entailment\n",
    "QQP/dev": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tHow?\tIn what way?\t1\n8\t3\t4\tA\tB\t0\n",
}


def _glue_by_name() -> Format:
    """Tasks whose columns are found by the header."""
    files = {f"glue/{name}.tsv": text.encode() for name, text in GLUE_BY_NAME.items()}

    def load(folder: Path) -> Any:
        return glue.load_glue("MNLI", "dev"), glue.load_glue("QNLI", "train"), glue.load_glue("QQP", "dev")

    def check(loaded: Any) -> None:
        for sentences, classes in zip(loaded, (3, 2, 2), strict=True):
            expect(len(sentences) == len(sentences.seconds) == len(sentences.labels) > 0, "lists of different lengths")
            expect(set(sentences.labels) <= set(range(classes)), "a label out of range")

    return Format(files, dict.fromkeys(files, damaged_lines), load, check)


def _squad() -> Format:
    context = "The tower was built in 1889 by Eiffel."
    given = [{"text": "1889", "answer_start": 23}, {"text": "in 1889", "answer_start": 20}]
    asked = [
        {"id": "1", "question": "When?", "answers": given, "is_impossible": False},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
        {"id": "3", "question": "Who?", "answers": [{"text": "Eiffel", "answer_start": 31}]},
    ]
    content = json.dumps({"version": "2", "data": [{"title": "T", "paragraphs": [{"context": context, "qas": asked}]}]})

    def check(questions: Any) -> None:
        expect(bool(questions), "no questions")
        for question in questions:
            _text(question.text + question.context)
            for said, start in zip(question.answers, question.starts, strict=True):
                expect(start >= 0 and bool(said), "an empty answer, or one before the context")
                expect(question.context[start : start + len(said)] == said, f"{said!r} is not where it should be")

    return Format(
        {"train-v2.0.json": content.encode()},
        {"train-v2.0.json": damaged_json},
        lambda folder: read_squad(folder / "train-v2.0.json"),
        check,
    )


def _vqa() -> Format:
    asked, given = (json.dumps(each).encode() for each in questions_json(range(3)))
    files = {"questions.json": asked, "annotations.json": given}

    def check(questions: Any) -> None:
        lengths = {len(each) for each in (questions.texts, questions.images, questions.answers, questions.kinds)}
        expect(len(lengths) == 1 and 0 not in lengths, "lists of different lengths, or empty ones")
        expect(set(questions.kinds) <= set(KINDS), f"strange kinds: {questions.kinds}")
        for text, image, answers in zip(questions.texts, questions.images, questions.answers, strict=True):
            _text(text + "".join(answers))
            expect(image.isdigit() and bool(answers), "an image without a number, or a question without answers")

    return Format(
        files,
        dict.fromkeys(files, damaged_json),
        lambda folder: read_vqa(folder / "questions.json", folder / "annotations.json"),
        check,
    )


def _karpathy() -> Format:
    content = json.dumps(karpathy_json(range(6))).encode()

    def check(parts: Any) -> None:
        expect(set(parts) == set(PARTS.values()), "a part is missing")
        for part in parts.values():
            expect(len(part.images) == len(part.captions) > 0, "not as many captions as images, or none")
            for name, captions in zip(part.images, part.captions, strict=True):
                _text(name + "".join(word for words in captions for word in words))

    return Format(
        {"dataset.json": content},
        {"dataset.json": damaged_json},
        lambda folder: read_karpathy(folder / "dataset.json"),
        check,
    )


def _npz(**arrays: numpy.ndarray) -> bytes:
    buffer = io.BytesIO()
    numpy.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def _check_regions(regions: Any) -> None:
    expect(isinstance(regions, Regions) and len(regions.ids) == len(regions.offsets) - 1 > 0, "no regions")
    features, mask = regions.of(torch.arange(len(regions.ids)))
    expect(bool(features.isfinite().all()) and bool(mask.any(1).all()), "features that are not finite, or none")


REGIONS = DataFile("regions.npz", None, "here")


def _archive() -> Format:
    content = _npz(**archive(torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)), ["a", "b", "c"]))
    return Format(
        {REGIONS.path: content}, {REGIONS.path: damaged_arrays}, lambda folder: load_archive(REGIONS), _check_regions
    )


def _region_lines() -> Format:
    content = "".join(tsv_line(image, block(image, 2 + image)) + "\n" for image in range(3)).encode()
    return Format(
        {"features/features.tsv": content},
        {"features/features.tsv": damaged_lines},
        lambda folder: load_regions(folder / "features"),
        _check_regions,
    )


def _region_archives() -> Format:
    files = {
        "features/COCO_000001.npz": _npz(x=block(1, 3).T),
        "features/COCO_000002.npz": _npz(x=block(2, 2).T),
    }
    return Format(
        files, dict.fromkeys(files, damaged_arrays), lambda folder: load_regions(folder / "features"), _check_regions
    )


PARALLEL = ParallelFiles(DataFile("parallel/train.de", None, "here"), DataFile("parallel/train.en", None, "here"))


def _parallel() -> Format:
    files = {"parallel/train.de": b"ein Hund\neine Katze\nzwei\n", "parallel/train.en": b"a dog\na cat\ntwo\n"}

    def check(text: Any) -> None:
        expect(len(text.source) == len(text.target) > 0, "not as many sentences as translations, or none")
        expect(all(line.strip() and "\n" not in line for line in (*text.source, *text.target)), "an empty sentence")

    return Format(files, dict.fromkeys(files, damaged_lines), lambda folder: read_parallel(PARALLEL), check)


def _tables_of_words() -> Format:
    """DAQUAR, Flickr8k and the ambiguous sentences: small tables of text."""
    features = _npz(**archive(torch.ones(2, 2, 4), ["image1", "image2"]))
    files = {
        daquar.QUESTIONS.path: b'question,answer,image_id\nwhat is it,table,image1\n"how many, then",3,image2\n',
        daquar.TRAIN_IMAGES.path: b"image1\n",
        daquar.TEST_IMAGES.path: b"image2\n",
        daquar.FEATURES.path: features,
        flickr8k.CAPTIONS.path: b"image1#0\tA dog .\nimage1#1\tDog\nimage2#0\tA cat\n",
        **{file.path: b"image1\nimage2\n" for file in flickr8k.LISTS.values()},
        flickr8k.FEATURES.path: features,
        pos_ambiguity.FILE.path: b"sentence\tambiguous\nTime flies\t1\nI eat\t0\n",
        **{file.path: b" = A heading = \n\n It rose . <unk> fell . \n" for file in wikitext2.FILES},
    }

    def load(folder: Path) -> Any:
        return (
            daquar.load_daquar(),
            flickr8k.load_flickr8k(),
            pos_ambiguity.load_pos_ambiguity(),
            wikitext2.load_sentences(),
        )

    def check(loaded: Any) -> None:
        (train, test, _), (parts, _), marked, sentences = loaded
        expect(all(len(each.texts) == len(each.answers) for each in (train, test)), "not as many answers as questions")
        expect(all(len(part.images) == len(part.captions) for part in parts.values()), "not as many captions as images")
        expect(all(sentence.words for sentence in marked), "a sentence without words")
        expect(len(sentences) == 3, "a part is missing")

    return Format(files, {name: damaged_lines for name in files if not name.endswith("npz")}, load, check)


def _glove() -> Format:
    content = b"the 0.5 -1 2\ndog 1 0.25 3e-2\n. . 3 4 5\n"

    def check(vectors: Any) -> None:
        expect(bool(vectors) and set(vectors) <= {"the", "dog"}, "no vectors, or of words that nobody wants")
        expect(all(len(each) == 3 and numpy.isfinite(each).all() for each in vectors.values()), "a strange vector")

    return Format(
        {"glove.txt": content},
        {"glove.txt": damaged_lines},
        lambda folder: read_glove(folder / "glove.txt", ["the", "dog"], 3),
        check,
    )


def _easy_vqa() -> Format:
    pixels = _npz(images=numpy.zeros((2, 4, 4, 3), dtype=numpy.uint8))
    asked = json.dumps([["what colour is it?", "blue", 0], ["is it a circle?", "yes", 1]]).encode()
    files = {f"easy_vqa/{part}_questions.json": asked for part in ("train", "test")}
    files |= {f"easy_vqa/{part}_images.npz": pixels for part in ("train", "test")}
    damages: dict[str, Damage] = {name: damaged_json if name.endswith("json") else damaged_arrays for name in files}

    def check(loaded: Any) -> None:
        train, test, regions = loaded
        _check_regions(regions)
        regions.find([*train.images, *test.images], "the questions")
        _text("".join([*train.texts, *test.texts]))

    return Format(files, damages, lambda folder: easy_vqa.load_easy_vqa(patch=2), check)


DATA_FORMATS: dict[str, Callable[[], Format]] = {
    "idx": _idx,
    "CoNLL-U": _conllu,
    "Planetoid": _planetoid,
    "GLUE": _glue,
    "GLUE by header": _glue_by_name,
    "SQuAD": _squad,
    "VQA": _vqa,
    "Karpathy": _karpathy,
    "region archive": _archive,
    "region lines": _region_lines,
    "region archives": _region_archives,
    "parallel text": _parallel,
    "tables of words": _tables_of_words,
    "easy-VQA": _easy_vqa,
    "GloVe": _glove,
}
