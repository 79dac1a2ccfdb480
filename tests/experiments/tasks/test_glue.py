"""GLUE's tasks: the figures of known predictions, and whole runs on small files with a tiny encoder."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

import bayesattn as ba
from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import TASKS, Evaluation, Splits
from bayesattn.experiments.tasks.glue import GlueOptions

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "plane", "jet"]
EMPTY = (torch.zeros(0), torch.zeros(0))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers that knows ten words."""
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=len(WORDS),
        initializer_range=0.3,  # of a width of 16: sentences differ from the start
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("good film", 1), ("bad film", 0), ("film good good", 1), ("bad bad", 0)] * 20
    sst = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs)
    row = "\t".join(["x"] * 7)
    sts = "\t".join(["h"] * 10) + "\n" + f"{row}\tplane\tjet\t4.5\n{row}\tgood\tbad film\t0.5\n" * 20
    for name, text in (("SST-2", sst), ("STS-B", sts)):
        for split in ("train", "dev"):
            path = tmp_path / "data/glue" / name / f"{split}.tsv.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("frozen_layers", [0, 1])
def test_sentences_are_learned(encoder: Path, frozen_layers: int, tmp_path: Path) -> None:
    config = configure(
        "sst2",
        "bam-wc",
        training={"epochs": 25, "learning_rate": 1e-2, "samples": 3},
        task_options={"model": str(encoder), "frozen_layers": frozen_layers, "max_length": 8},
        method_options={"k": 100.0},
    )
    found = run(config, tmp_path / "runs")["metrics"]
    assert found["score"] == found["accuracy"] > 0.9
    assert found["aurc"] < 0.1
    kept = list((tmp_path / "cache/frozen").glob("*.safetensors"))
    assert len(kept) == (2 if frozen_layers else 0)


def test_similarity_is_a_regression_with_intervals(encoder: Path, tmp_path: Path) -> None:
    options = {"model": str(encoder), "max_length": 8, "train_examples": 30}
    training = {"epochs": 30, "learning_rate": 1e-2, "batch_size": 8}
    found = run(configure("stsb", "mle", training=training, task_options=options), tmp_path / "runs")["metrics"]
    assert found["score"] > 0.9
    assert found["rmse"] < 1.5


def test_figures_of_known_classes() -> None:
    labels = torch.tensor([1, 1, 0, 0, 1, 0])
    logits = torch.tensor([[0.0, 3], [0, 2], [2, 0], [0, 1], [0, 4], [5, 0]])  # the fourth is wrong, and the least sure
    examples = (torch.zeros(6), labels)
    splits = Splits(EMPTY, examples, examples)

    def found(name: str) -> Evaluation:
        return TASKS.create(name).evaluate(lambda inputs, **kind: ba.CategoricalPrediction(logits[None]), splits)

    cola = found("cola").metrics
    assert cola["accuracy"] == pytest.approx(5 / 6)
    assert cola["validation_nll"] == pytest.approx(cola["nll"])
    assert cola["score"] == pytest.approx((3 * 2 - 1 * 0) / (4 * 3 * 2 * 3) ** 0.5)  # Matthews
    assert cola["aurc"] == pytest.approx((1 / 6) / 6)
    assert cola["pavpu_0.05"] == pytest.approx(cola["accuracy"])
    assert found("cola").details["risk_at_coverage"] == {"0.5": 0, "0.8": 0, "0.9": 0, "1": pytest.approx(1 / 6)}
    assert found("mrpc").metrics["score"] == pytest.approx((5 / 6 + 6 / 7) / 2)
    assert found("rte").metrics["score"] == pytest.approx(5 / 6)


def test_the_papers_score_is_the_point_estimates() -> None:
    """BAM, 3.4: point estimates come from "substituting the latent variables by their posterior expectations"."""
    labels = torch.tensor([1, 0, 1, 0])
    point = torch.tensor([[0.0, 2], [2, 0], [0, 2], [0, 2]])
    sampled = torch.stack([point, -3 * point, -3 * point])  # its mean says the opposite
    examples = (torch.zeros(4), labels)

    def predict(inputs: torch.Tensor, point_estimate: bool = False) -> ba.CategoricalPrediction:
        return ba.CategoricalPrediction(point[None] if point_estimate else sampled)

    found = TASKS.create("rte").evaluate(predict, Splits(EMPTY, examples, examples)).metrics
    assert found["score_of_point_estimate"] == 0.75
    assert found["score"] == 0.25
    for level in ("0.01", "0.05", "0.1"):
        wanted = ba.metrics.pavpu(sampled, labels, threshold=float(level), test="welch", on="probs").value
        assert found[f"pavpu_two_sample_{level}"] == wanted


def test_figures_of_a_known_regression() -> None:
    values = 5 * torch.rand(4000)
    scales = torch.full((1, 4000), 0.5)
    means = values + 0.5 * torch.randn(4000)
    examples = (torch.zeros(4000), values)
    splits = Splits(EMPTY, examples, examples)
    found = (
        TASKS.create("stsb").evaluate(lambda inputs, **kind: ba.GaussianPrediction(means[None], scales), splits).metrics
    )
    assert found["validation_nll"] == pytest.approx(found["nll"])
    assert found["coverage_0.9"] == pytest.approx(0.9, abs=0.02)
    assert found["coverage_0.5"] == pytest.approx(0.5, abs=0.03)
    assert found["width_0.9"] == pytest.approx(2 * 1.645 * 0.5, rel=1e-3)
    assert found["pearson"] == pytest.approx(torch.corrcoef(torch.stack([means, values]))[0, 1].item(), abs=1e-4)
    assert found["score"] == pytest.approx((found["pearson"] + found["spearman"]) / 2)
    assert found["aurc"] == pytest.approx(0.25, rel=0.15)  # all equally sure: the mean squared error


@pytest.mark.parametrize("frozen_layers", [0, 1])
def test_texts_of_one_length_share_batches(encoder: Path, frozen_layers: int) -> None:
    task = TASKS.create("sst2", GlueOptions(str(encoder), max_length=8, frozen_layers=frozen_layers))
    train = task.load().train
    batches = task.batches(train, torch.randperm(len(train[0])), 6)
    assert sorted(torch.cat(list(batches)).tolist()) == list(range(len(train[0])))
    there = (train[0] != 0).any(-1) if frozen_layers else train[0][:, 1] != 0
    spread = [there[batch].sum(1).float().std().item() for batch in batches if len(batch) > 1]
    assert sum(value == 0 for value in spread) >= len(spread) - 3  # lengths 4, 5 change at two places of the one pool


def test_colas_sentences_of_other_sources_are_apart(encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data/glue/CoLA"
    folder.mkdir(parents=True)
    train = "a\t1\t\tgood film\nb\t0\t*\tbad film\na\t1\t\tgood\nb\t0\t*\tbad bad film\n" * 20
    dev = "a\t1\t\tgood good film\nb\t0\t*\tbad bad\n" * 20 + "c\t1\t\tplane jet\nd\t0\t*\tjet\nd\t0\t*\tjet jet\n" * 5
    for split, text in (("train", train), ("dev", dev)):
        (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    config = configure(
        "cola",
        "mle",
        training={"epochs": 15, "learning_rate": 1e-2},
        task_options={"model": str(encoder), "max_length": 8, "knowing": True},
    )
    task = config.make_task()
    assert len(task.load().test[0]) == 40
    found = run(config, tmp_path / "runs")["metrics"]
    assert found["accuracy"] > 0.9
    assert found["auroc_domain_distance"] > 0.9  # other words altogether
    assert found["accuracy_domain"] in (pytest.approx(1 / 3), pytest.approx(2 / 3), 0.0, 1.0)
    with pytest.raises(ValueError, match="knowing=True is for CoLA"):
        TASKS.create("rte", GlueOptions(knowing=True))
