"""Five tasks of GLUE."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bayesattn.experiments.data import glue
from bayesattn.experiments.data.files import DataError, locate
from bayesattn.experiments.data.glue import TaskName, load_glue

FILES = {
    "CoLA/train": 'gj04\t1\t\tThey said "no.\ngj04\t0\t*\tThey drank the pub.\n',
    "SST-2/dev": "sentence\tlabel\na joy\t1\ntedious\t0\n",
    "RTE/dev": "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n1\tA\tB\tnot_entailment\n",
    "MRPC/train": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tHe said\tHe told\r\n",
    "STS-B/dev": "\t".join(["h"] * 10) + "\n" + "\t".join(["x"] * 7 + ["A plane.", "A jet.", "4.75"]) + "\n",
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "glue" / f"{name}.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    return tmp_path


def test_columns_headers_and_quotes(files: Path) -> None:
    cola, sst = load_glue("CoLA", "train"), load_glue("SST-2", "dev")
    assert (cola.texts, cola.labels) == (['They said "no.', "They drank the pub."], [1, 0])
    assert (sst.texts, sst.labels, sst.seconds) == (["a joy", "tedious"], [1, 0], None)
    rte, mrpc, sts = load_glue("RTE", "dev"), load_glue("MRPC", "train"), load_glue("STS-B", "dev")
    assert (rte.texts, rte.seconds, rte.labels) == (["It rains.", "A"], ["It is wet.", "B"], [0, 1])
    assert (mrpc.texts, mrpc.seconds, mrpc.labels) == (["He said"], ["He told"], [1])
    assert (sts.texts, sts.seconds, sts.labels) == (["A plane."], ["A jet."], [4.75])


@pytest.mark.parametrize("line", ["0\tonly two", "0\tA\tB\tperhaps"])
def test_a_damaged_line_is_named(line: str, files: Path) -> None:
    path = files / "glue/RTE/dev.tsv.gz"
    path.write_bytes(gzip.compress(f"{FILES['RTE/dev']}{line}\n".encode()))
    with pytest.raises(DataError, match=r"RTE/dev.tsv.gz, line 4: expected 4 columns with a label in column 4"):
        load_glue("RTE", "dev")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("RTE/dev", b"index\tsentence1\tsentence2\tlabel\n", "holds no sentences"),
        ("SST-2/dev", b"sentence\tlabel\ncaf\xe9\t1\n", "is not UTF-8 text"),
        ("STS-B/dev", FILES["STS-B/dev"].replace("4.75", "nan").encode(), "line 2: expected 10 columns with a label"),
        ("STS-B/dev", FILES["STS-B/dev"].replace("4.75", "47.5").encode(), "line 2: expected 10 columns with a label"),
    ],
)
def test_what_holds_no_labelled_sentences_is_named(name: str, content: bytes, message: str, files: Path) -> None:
    (files / f"glue/{name}.tsv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=f"{name}.tsv.gz.*{message}"):
        load_glue(*name.split("/"))  # pyright: ignore[reportArgumentType]


def test_another_file_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAYESATTN_DATA_CHECK")
    with pytest.raises(DataError, match="is not the expected file"):
        load_glue("CoLA", "train")


SIZES = {"CoLA": (8551, 1043), "SST-2": (67349, 872), "RTE": (2490, 277), "MRPC": (3667, 408), "STS-B": (5749, 1500)}


@pytest.mark.parametrize("task", SIZES)
def test_the_real_files_have_the_published_sizes(task: TaskName) -> None:
    if any(locate(file) is None for file in glue.FILES[task].values()):
        pytest.skip(f"the files of {task} are not there")
    parts = load_glue(task, "train"), load_glue(task, "dev")
    assert tuple(map(len, parts)) == SIZES[task]
    if task == "CoLA":
        assert sum(parts[1].labels) == 721
    elif task == "RTE":
        assert parts[1].labels.count(0) == 146
    elif task == "STS-B":
        assert 0 <= min(parts[0].labels) < max(parts[0].labels) == 5


def test_other_tasks_are_refused(unchecked: None) -> None:
    with pytest.raises(ValueError, match=r"task='cola' is not known\. Did you mean 'CoLA'"):
        load_glue("cola", "train")  # pyright: ignore[reportArgumentType]


MNLI = "index\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
NAMED = {
    "MNLI/train": MNLI
    + "0\t1n\tx\tIt rains.\tIt is wet.\tneutral\tentailment\n1\t2c\tx\tA\tB\tneutral\tcontradiction\n",
    # the dev part has the labels of five annotators, so its columns are others
    "MNLI/dev_matched": MNLI.replace("label1", "label1\tlabel2") + "0\t1n\tx\tIt\tIs\tneutral\tneutral\tneutral\n",
    "QNLI/dev": "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn May.\tnot_entailment\n",
    "QQP/train": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tHow?\tIn what way?\t1\n",
}


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in NAMED.items():
        path = tmp_path / "glue" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    return tmp_path


def test_columns_are_found_by_their_names(named: Path) -> None:
    train, dev = load_glue("MNLI", "train"), load_glue("MNLI", "dev")
    assert (train.texts, train.seconds, train.labels) == (["It rains.", "A"], ["It is wet.", "B"], [0, 2])
    assert (dev.texts, dev.seconds, dev.labels) == (["It"], ["Is"], [1])
    qnli, qqp = load_glue("QNLI", "dev"), load_glue("QQP", "train")
    assert (qnli.texts, qnli.seconds, qnli.labels) == (["When?"], ["In May."], [1])
    assert (qqp.texts, qqp.seconds, qqp.labels) == (["How?"], ["In what way?"], [1])


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("MNLI/train", "\tcontradiction", "\t-", r"train.tsv, line 3: .* '-' says that the annotators did not agree"),
        (
            "MNLI/dev_matched",
            "\tgold_label",
            "\tlabel",
            r"dev_matched.tsv, line 1: there is no column 'gold_label' among",
        ),
        ("QNLI/dev", "\tnot_entailment", "", r"dev.tsv, line 2: expected 4 columns with a label in column 4"),
        (
            "QQP/train",
            "\t1\n",
            "\t2\n",
            r"train.tsv, line 2: expected 6 columns .*Take the line out, or: Get it from https",
        ),
    ],
)
def test_a_wrong_file_is_named_with_line_and_remedy(named: Path, name: str, old: str, new: str, message: str) -> None:
    (named / "glue" / f"{name}.tsv").write_text(NAMED[name].replace(old, new))
    task, part = name.split("/")
    with pytest.raises(DataError, match=message) as caught:
        load_glue(task, "train" if part == "train" else "dev")  # pyright: ignore[reportArgumentType]
    assert "https://gluebenchmark.com/tasks" in str(caught.value)
