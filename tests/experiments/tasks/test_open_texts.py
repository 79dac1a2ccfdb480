"""Texts among texts of other classes: the files, and a whole run with a tiny encoder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.open_texts import HELD_OUT_GROUPS, body_of, load_open_texts
from bayesattn.experiments.runs import configure, run
from bayesattn.experiments.tasks import open_texts
from bayesattn.experiments.tasks.knowing import false_acceptance

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "plane", "jet"]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A BERT of one layer that knows ten words."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=len(WORDS),
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = [["good film", "praise"], ["bad film", "blame"], ["film good good", "praise"], ["bad bad film", "blame"]]
    outside = [["plane jet", "oos"], ["jet", "oos"], ["jet jet plane", "oos"]]
    clinc = {"train": inside * 20, "val": inside * 10, "test": inside * 10, "oos_test": outside * 5}
    bank = "text,category\n" + '"plane, jet",fly\ngood,stay\n' * 30
    head, news = "From: a@b\nSubject: planes\n\n", ""
    for number in range(40):
        group = [*HELD_OUT_GROUPS, "rec.autos", "sci.med"][number % 6]
        news += json.dumps({"group": group, "id": str(number), "text": f"{head}{group} {number}"}) + "\n"
    news += json.dumps({"group": "rec.autos", "id": "x", "text": f"{head}> only quoted"}) + "\n"
    for name, text in (
        ("clinc150/data_full.json", json.dumps(clinc)),
        ("banking77/train.csv", bank),
        ("banking77/test.csv", bank),
        ("newsgroups/train.jsonl", news),
        ("newsgroups/test.jsonl", news),
    ):
        path = tmp_path / "data" / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))


def test_what_is_outside_is_not_trained_on() -> None:
    clinc, bank, news = (load_open_texts(name) for name in ("clinc150", "banking77", "newsgroups"))
    assert clinc.classes == ["blame", "praise"]
    assert clinc.outside["oos"][0] == bank.outside["oos"][0] == "plane jet"
    assert clinc.outside["banking77"][0] == "plane, jet"
    assert (len(bank.train), len(bank.validation), len(bank.test)) == (54, 6, 60)
    assert news.classes == ["rec.autos", "sci.med"]
    assert len(news.test) + len(news.outside["groups"]) == 40  # the message that is only quotation is left out
    assert not {group for _, group in (*news.train, *news.validation)} & set(HELD_OUT_GROUPS)


def test_headers_quotes_and_footers_go_as_scikit_learn_has_it() -> None:
    from sklearn.datasets import _twenty_newsgroups as theirs

    header = "From: a\nSubject: b\n\n"
    for body in (
        "words\nmore",
        "> old\nnew\n\n--\nname",
        "A writes:\n| x\ny\n---\nz\n\n",
        "",
        "one line\n\n",
        "\n\nlate\n",
    ):
        plain = theirs.strip_newsgroup_footer(theirs.strip_newsgroup_header(header + body))
        assert body_of(header + body) == theirs.strip_newsgroup_quoting(plain).strip()


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "data/clinc150/data_full.json.gz").write_bytes(gzip.compress(b'{"train": [1]}'))
    with pytest.raises(DataError, match=r"data_full\.json.* is not what it should be"):
        load_open_texts("clinc150")


@pytest.mark.parametrize(
    "method",
    [
        "mle",
        "ensemble",
        "bam-wc",
        *(pytest.param(f"{head}-head", marks=pytest.mark.slow) for head in ("laplace", "gp", "vbll")),
    ],
)
def test_a_run_has_every_figure_and_finds_what_is_outside(
    method: str, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(open_texts.CLASSES, "clinc150", 2)
    config = configure(
        "clinc150",
        method,
        training={"epochs": 15, "learning_rate": 1e-2, "samples": 3},
        task_options={"model": str(encoder), "max_length": 8},
        method_options={"ensemble": {"members": 2}, "bam-wc": {"k": 100.0}}.get(method, {}),
    )
    found = run(config, tmp_path / "runs")["metrics"]
    assert found["accuracy"] == found["accuracy_t"] > 0.9
    assert found["nll"] < 0.3
    assert found["auroc_oos_distance"] > 0.95  # other words altogether
    assert found["accepted_oos_distance"] < 0.2
    assert ("auroc_oos_mutual_information" in found) == ("disagreement" in found) == (method not in ("mle", "gp-head"))


def test_false_acceptance_counts_what_scores_no_higher_than_95_percent() -> None:
    assert false_acceptance(torch.arange(100.0), torch.tensor([94.0, 94.5, 10.0, 200.0])) == 0.5
