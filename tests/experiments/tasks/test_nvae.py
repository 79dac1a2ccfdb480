"""The autoencoding tasks: from a run to its figures, with the engine; and the measures on writers whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bayesattn.experiments.data.toy_sentences import toy_sentences
from bayesattn.experiments.data.wordpiece import Wordpieces
from bayesattn.experiments.models.autoencoders.base import Autoencoder, Vectors
from bayesattn.experiments.models.autoencoders.no_bottleneck import NoBottleneck
from bayesattn.experiments.models.trigram import Trigram
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.autoencoding import Writer, as_tokens, generation, interpolation, reconstruction
from bayesattn.experiments.tasks.nvae import LONGEST, SHORTEST

SMALL = {"hidden": 16, "feedforward": 16, "vocabulary": 120, "test_sentences": 10, "pairs": 4, "generated": 20}


class Copier(Autoencoder):
    """Its memory is the text itself, of which it keeps every other token's place; it writes what it has read."""

    def encode(self, tokens: Tensor) -> Vectors:
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        return Vectors(tokens.unsqueeze(-1).float(), (tokens != 0) & (places % 2 == 0))

    def write(self, memory: Any, max_len: int | None = None) -> Tensor:
        return memory.values.squeeze(-1).round().long()

    def forward(self, tokens: Tensor) -> Tensor:
        return 0.5 * (tokens != 0)


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path))
    words = Wordpieces.trained(toy_sentences(300), 120)
    return Writer(Copier(len(words), LONGEST + 1, NoBottleneck(), dim=4, words=words.digest), words)


def test_a_perfect_copy_has_all_the_bleu(writer: Writer) -> None:
    tokens = as_tokens(writer.words, toy_sentences(30, seed=1))
    figures, details = reconstruction(writer, tokens)
    assert figures["bleu"] == pytest.approx(100.0)
    assert figures["exactly_right"] == 1
    assert figures["nll_per_token"] == pytest.approx(0.5)
    assert 0.5 <= figures["retained"] < 0.6
    assert sum(point["texts"] for point in details["kept_by_length"]) == 30
    assert all(point["kept"] == (point["length"] + 1) // 2 for point in details["kept_by_length"])


def test_interpolation_goes_from_one_text_to_the_other(writer: Writer) -> None:
    tokens = as_tokens(writer.words, toy_sentences(10, seed=1))
    language = Trigram(tokens, len(writer.words))
    ends = interpolation(writer, tokens, tokens.flip(0), language)
    assert [at["tau"] for at in ends] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ends[0]["texts"] != ends[-1]["texts"]
    assert ends[2]["new"] > 0.5
    assert ends[2]["perplexity"] > ends[0]["perplexity"]
    assert ends[0]["bleu_to_first"] == pytest.approx(ends[-1]["bleu_to_second"])
    with pytest.raises(ValueError, match="tau must lie in"):
        writer.interpolate(tokens, tokens, 1.5)


def test_generated_texts_are_judged_both_ways(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text again and again is fluent (forward) and says little of the language (reverse)."""
    real = as_tokens(writer.words, toy_sentences(200, seed=1))
    language = Trigram(as_tokens(writer.words, toy_sentences(300)), len(writer.words))
    found = {}
    for name, texts in (("same", toy_sentences(1) * 50), ("different", toy_sentences(50, seed=2))):
        monkeypatch.setattr(Writer, "generate", lambda self, lengths, generator=None, texts=texts: texts)
        found[name], _ = generation(writer, torch.ones(50, dtype=torch.long), real, language)
    assert found["same"]["reverse_perplexity"] > 2 * found["different"]["reverse_perplexity"]
    assert found["same"]["different"] == 1 / 50
    assert found["different"]["forward_perplexity"] < 10


def test_sentences_have_their_lengths_and_parts_do_not_meet() -> None:
    splits = TASKS.create("nvae-toy").load()
    for part in (splits.train, splits.validation, splits.test):
        lengths = (part[0] != 0).sum(1) - 1
        assert lengths.min() >= SHORTEST
        assert lengths.max() <= LONGEST
    assert len(splits.train[0]) > 500


@pytest.mark.parametrize("method", ["t", "nvae"])
def test_a_run_from_training_to_figures_and_loaded_again(method: str, tmp_path: Path) -> None:
    config = configure("nvae-toy", method, training={"epochs": 2}, task_options=SMALL)
    result = run(config, tmp_path)
    metrics = result["metrics"]
    assert 0 <= metrics["bleu"] <= 100
    assert metrics["nll_per_token"] < 4.7  # log 120: what it knew before
    assert ("forward_perplexity" in metrics) == (method == "nvae")
    assert (metrics["retained"] == 1) if method == "t" else (0 < metrics["retained"] <= 1)
    loaded = load_run(tmp_path / config.name)
    model = loaded.models[0]
    assert isinstance(model, Autoencoder)
    writer = Writer(model, loaded.task.words())  # pyright: ignore
    tokens = loaded.task.load().test[0][:10]
    assert reconstruction(writer, tokens)[0]["bleu"] == pytest.approx(metrics["bleu"])


def test_a_model_with_other_words_is_refused(writer: Writer) -> None:
    others = Wordpieces.trained(toy_sentences(300), 100)
    with pytest.raises(ValueError, match="was trained on other wordpieces than those in the cache"):
        Writer(writer.model, others)


def test_other_methods_than_one_autoencoder_are_refused(tmp_path: Path) -> None:
    task = TASKS.create("nvae-toy")
    with pytest.raises(ValueError, match="evaluated with the one autoencoder of a run, got 0 models"):
        task.evaluate(lambda inputs: inputs, task.load())
