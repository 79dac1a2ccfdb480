"""`bayesattn align` on a run of the small generated corpus."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from rich.console import Console

from bayesattn.experiments.commands.align import AlignCommand, draw_alignment
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks.multi30k import Multi30kTask
from bayesattn.experiments.tasks.translation import TranslationTask
from helpers.parallel_corpus import SMALL, put_corpus


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put_corpus(tmp_path, Multi30kTask, monkeypatch, train=40)


def finished(method: str, **changes: object) -> Path:
    config = configure("multi30k", method, training={"epochs": 1, "batch_size": 20}, task_options=SMALL | changes)
    run(config, Path("runs"))
    return Path("runs") / config.name


def align(
    path: Path, sentence: str, translation: str | None = None, output: str = "alignment.png", beside: Path | None = None
) -> str:
    out = io.StringIO()
    draw_alignment(AlignCommand(path, sentence, translation, beside, Path(output)), Console(file=out, width=200))
    return out.getvalue()


def test_prior_and_posterior_of_a_test_pair_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    path = finished("variational-sampled")
    drawn: list[Figure] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    printed = align(path, "3")
    assert Path("alignment.png").read_bytes().startswith(b"\x89PNG")
    loaded = load_run(path)
    task, (model,) = loaded.task, loaded.models
    assert isinstance(task, TranslationTask)
    assert isinstance(model, Seq2Seq)
    assert task.corpus.test.source[2] in printed
    assert task.corpus.test.target[2] in printed
    source, target = (
        task.corpus.source.encode(task.corpus.test.source)[2],
        task.corpus.target.encode(task.corpus.test.target)[2],
    )
    with torch.no_grad():
        prior, posterior = model.alignments(torch.tensor([source]), torch.tensor([target]))
    assert posterior is not None
    left, right = drawn[0].axes
    for axes, title, weights in ((left, "prior", prior), (right, "posterior", posterior)):
        assert axes.get_title() == title
        shown = torch.as_tensor(axes.images[0].get_array())
        torch.testing.assert_close(shown, weights[0])
        assert [label.get_text() for label in axes.get_xticklabels()] == task.corpus.source.pieces(source)
    assert [label.get_text() for label in left.get_yticklabels()] == task.corpus.target.pieces(target[1:])


def test_soft_attention_stands_beside_the_prior_of_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 4, right, of Deng et al."""
    path, soft = finished("variational-sampled"), finished("soft")
    drawn: list[Figure] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    printed = align(path, "3", beside=soft)
    for axes, name, folder in zip(drawn[0].axes, ("soft", "variational-sampled"), (soft, path), strict=True):
        assert axes.get_title() == f"{name}, prior"
        loaded = load_run(folder)
        task, (model,) = loaded.task, loaded.models
        assert isinstance(task, TranslationTask)
        assert isinstance(model, Seq2Seq)
        test = task.corpus.test
        pair = (task.corpus.source.encode(test.source)[2], task.corpus.target.encode(test.target)[2])
        with torch.no_grad():
            prior, _ = model.alignments(*(torch.tensor([each]) for each in pair))
        torch.testing.assert_close(torch.as_tensor(axes.images[0].get_array()), prior[0])
        entropy = -(prior[0] * prior[0].log()).sum(-1).mean()
        assert f"{name}, prior {entropy:.2f}" in printed
    with pytest.raises(ValueError, match=r"beside=.* has other subwords: take a run of the same task"):
        align(path, "3", beside=finished("soft", vocabulary=int(SMALL["vocabulary"]) - 10))


def test_a_sentence_of_ones_own_as_svg_and_a_model_without_posterior() -> None:
    path = finished("soft")
    printed = align(path, "Ein Hund jagt.", output="drawn/one.svg")
    assert Path("drawn/one.svg").read_text().startswith("<?xml")
    assert "soft has no inference network: the prior alone is drawn" in printed
    assert "a dog chases" in align(path, "Ein Hund jagt.", "a dog chases")


def test_mistakes_are_named() -> None:
    path = finished("soft")
    with pytest.raises(ValueError, match="sentence=21 is not in the test set, which has 20 pairs: take 1 to 20"):
        align(path, "21")
    with pytest.raises(ValueError, match="sentence must be a whole number of at least 1, got 0"):
        align(path, "0")
    with pytest.raises(ValueError, match=r"output must end in .png, .svg, .pdf; got a.gif"):
        align(path, "1", output="a.gif")
    with pytest.raises(FileNotFoundError, match="nothing holds no finished run"):
        align(Path("nothing"), "1")
    config = configure("toy-m1", "mle", training={"epochs": 1}, task_options={"hidden": 8, "feedforward": 8})
    run(config, Path("runs"))
    with pytest.raises(ValueError, match="is of the task 'toy-m1', which has no alignments: take a run of multi30k"):
        align(Path("runs") / config.name, "1")
