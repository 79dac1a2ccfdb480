"""Translation on a small generated corpus: batches, figures, a run that learns it, what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from bayesattn.alignment import Marginal
from bayesattn.experiments.data import tatoeba
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.subwords import PAD
from bayesattn.experiments.models.seq2seq import Seq2Seq
from bayesattn.experiments.runs import configure, load_run, run
from bayesattn.experiments.tasks import TASKS
from bayesattn.experiments.tasks.iwslt14 import Iwslt14Task
from bayesattn.experiments.tasks.multi30k import Multi30kTask
from bayesattn.experiments.tasks.tatoeba import TatoebaTask
from bayesattn.experiments.tasks.translated import Translations
from bayesattn.experiments.tasks.translation import TranslationOptions
from helpers.data_files import put
from helpers.parallel_corpus import SMALL, put_corpus, sentences


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_corpus(tmp_path, Multi30kTask, monkeypatch)


def make(**changes: object) -> Multi30kTask:
    task = TASKS.create("multi30k", TranslationOptions(**(SMALL | changes)))  # pyright: ignore
    assert isinstance(task, Multi30kTask)
    return task


def test_batches_hold_every_example_once_and_little_padding() -> None:
    task = make()
    train = task.load().train
    order = torch.randperm(200)
    batches = task.batches(train, order, 16)
    assert sorted(torch.cat(list(batches)).tolist()) == list(range(200))
    assert len(batches) == math.ceil(200 / 16)

    def padding(parts: list[torch.Tensor]) -> int:
        lengths = (train[1] != PAD).sum(1)
        return sum(int((lengths[part].max() - lengths[part]).sum()) for part in parts)

    assert padding(list(batches)) < 0.25 * padding(list(order.split(16)))
    again = task.batches(train, torch.randperm(200), 16)
    longest = [[int((train[1][part] != PAD).sum(1).max()) for part in each] for each in (batches, again)]
    assert longest[0] != sorted(longest[0]), "the batches come in random order"
    assert longest[0] != longest[1]


def test_long_pairs_are_left_out_of_training_alone() -> None:
    whole, short = make().load(), make(max_length=4).load()
    longest = [max((each[0] != PAD).sum(1).max(), (each[1] != PAD).sum(1).max()) for each in (short.train, short.test)]
    assert longest[0] <= 6
    assert longest[1] > 6
    assert 0 < len(short.train[0]) < len(whole.train[0])
    limited = make(max_length=4, limit_test=True)
    assert len(limited.load().test[0]) == len(limited.corpus.test) < len(short.test[0])
    assert max((each != PAD).sum(1).max() for each in limited.load().test) <= 6
    texts = limited.corpus.target.decode(limited.load().test[1].tolist())
    assert texts == [text.lower() for text in limited.corpus.test.target], "tensors and texts are of the same pairs"
    with pytest.raises(ValueError, match="max_length=1 leaves none of 200 pairs"):
        make(max_length=1).load()


def test_subwords_are_learned_from_the_training_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(make().corpus.source)
    put_corpus(tmp_path / "fewer", Multi30kTask, monkeypatch, train=2)
    assert len(make().corpus.source) < before
    joint = make(joint=True).corpus
    assert joint.source is joint.target


def test_the_loss_of_an_example_is_the_sum_over_its_tokens_whatever_its_padding() -> None:
    task = make()
    model = task.build(0.0).eval()
    source, target = (each[:3] for each in task.load().train)
    each = torch.cat(
        [
            model(source[i : i + 1, : (source[i] != PAD).sum()], target[i : i + 1, : (target[i] != PAD).sum()]).sum(1)
            for i in range(3)
        ]
    )
    wider = tuple(torch.nn.functional.pad(rows, (0, 5), value=PAD) for rows in (source, target))
    torch.testing.assert_close(task.nll(model, wider), each)


def test_figures_are_those_of_their_definitions() -> None:
    task = make()
    model = task.build(0.0).eval()
    assert isinstance(model, Seq2Seq)
    splits = task.load()
    found = task.evaluate(lambda source: task.predict(model, source, 1, False), splits)
    source, target = splits.test
    with torch.no_grad():
        log_prob = model.log_likelihood(source, target)
        limited = model.log_likelihood(source, target, 2)
        prior, _ = model.alignments(source, target)
    tokens = (target[:, 1:] != PAD).sum()
    assert found.metrics["perplexity"] == pytest.approx(math.exp(-log_prob.sum() / tokens), rel=1e-5)
    assert found.metrics["perplexity_k_max"] == pytest.approx(math.exp(-limited.sum() / tokens), rel=1e-5)
    each = torch.distributions.Categorical(prior).entropy()
    assert found.metrics["prior_entropy"] == pytest.approx(float(each[target[:, 1:] != PAD].mean()), rel=1e-4)
    sentences = [
        model.translate(row[: int((row != PAD).sum())].unsqueeze(0), width=2, max_length=10).best()[0] for row in source
    ]
    texts = task.corpus.target.decode(sentences)
    scorer = BLEU(lowercase=True)
    assert found.metrics["bleu"] == pytest.approx(scorer.corpus_score(texts, [task.corpus.test.target]).score)
    assert found.details["bleu_signature"].startswith("nrefs:1|case:lc|eff:no|tok:13a")
    assert found.details["translations"][0]["translation"] == texts[0]


def test_any_model_is_also_tested_as_a_latent_mixture_and_as_soft_attention() -> None:
    """Table 2 right of Deng et al.: the perplexity against K."""
    task = make(most_k=3)
    model = task.build(0.0).eval()
    assert isinstance(model, Seq2Seq)
    source, target = task.load().test
    found = task.evaluate(lambda given: task.predict(model, given, 1, False), task.load()).metrics
    tokens = (target[:, 1:] != PAD).sum()
    assert [name for name in found if "latent" in name] == [
        *(f"perplexity_latent_{k}" for k in (1, 2, 3)),
        "perplexity_latent",
    ]
    with torch.no_grad():
        of_three = model.log_likelihood(source, target, 3, Marginal()).sum()
    assert found["perplexity_latent_3"] == pytest.approx(math.exp(-of_three / tokens), rel=1e-5)
    assert found["perplexity_soft"] == pytest.approx(found["perplexity"], rel=1e-6), "this one is soft attention"
    assert "perplexity_soft" not in task_without_figures()


def task_without_figures() -> dict[str, float]:
    task = make()
    model = task.build(0.0).eval()
    return task.evaluate(lambda given: task.predict(model, given, 1, False), task.load()).metrics


@pytest.mark.slow
def test_a_run_learns_the_language_and_is_loaded_again(tmp_path: Path) -> None:
    config = configure(
        "multi30k",
        "marginal",
        training={"epochs": 35, "batch_size": 20, "learning_rate": 1e-2},
        task_options=SMALL | {"max_length": 20},
    )
    result = run(config, tmp_path / "runs")
    assert result["metrics"]["bleu"] > 80
    assert result["metrics"]["perplexity"] < 1.5
    assert result["seconds_per_step"] * 35 * 10 <= result["train_seconds"]
    loaded = load_run(tmp_path / "runs" / config.name)
    source, target = loaded.task.load().test
    translations = loaded.predict(source)
    assert isinstance(translations, Translations)
    assert translations.perplexity(target) == pytest.approx(result["metrics"]["perplexity"], rel=1e-5)


@pytest.mark.parametrize("method", ["mc-dropout", "ensemble"])
def test_methods_of_several_models_are_refused_before_anything_is_trained(method: str, tmp_path: Path) -> None:
    config = configure("multi30k", method, task_options=SMALL)
    with pytest.raises(ValueError, match=f"multi30k is predicted by one model without noise, which {method} is not"):
        run(config, tmp_path)
    assert not (tmp_path / config.name / "config.json").exists()


def test_tatoeba_is_one_file_that_is_split_and_a_run_of_four_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    german, english = sentences(400, 5)
    lines = "".join(f"{to}\t{of}\n" for of, to in zip(german, english, strict=True))
    monkeypatch.setattr(TatoebaTask, "file", put(tmp_path / "data", tatoeba.FILE, lines.encode()))
    config = configure(
        "tatoeba",
        "variational-sampled",
        training={"epochs": 1, "batch_size": 50},
        task_options=SMALL,
        method_options={"samples": 4, "baseline": "others"},
    )
    result = run(config, tmp_path / "runs")
    assert 1 < result["metrics"]["perplexity"] < 200
    assert 300 < result["details"]["training_pairs"] < 400
    assert [file.path for file in TASKS.create("tatoeba").files] == ["tatoeba_deu_eng/deu.txt"]


def test_iwslt14_says_what_is_missing_and_learns_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"iwslt14/train.de was not found.*prepare-iwslt14.sh"):
        TASKS.create("iwslt14").load()
    put_corpus(tmp_path / "talks", Iwslt14Task, monkeypatch)
    changes = SMALL | {"joint": True, "layers": 1}
    config = configure("iwslt14", "bam-wc", training={"epochs": 1, "batch_size": 50}, task_options=changes)
    result = run(config, tmp_path / "runs")
    assert "tok:none" in result["details"]["bleu_signature"]
    assert 1 < result["metrics"]["perplexity"] < 200
