"""CoLA and SST-2."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bayesattn.data.folder import data_folder
from bayesattn.data.glue import load_glue


def test_columns_headers_and_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "CoLA/train": 'gj04\t1\t\tThey said "no.\ngj04\t0\t*\tThey drank the pub.\n',
        "SST-2/dev": "sentence\tlabel\na joy\t1\ntedious\t0\n",
    }
    for name, text in files.items():
        path = tmp_path / "glue" / f"{name}.tsv.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))
    cola, sst = load_glue("CoLA", "train"), load_glue("SST-2", "dev")
    assert (cola.texts, cola.labels) == (['They said "no.', "They drank the pub."], [1, 0])
    assert (sst.texts, sst.labels) == (["a joy", "tedious"], [1, 0])


def test_the_real_files_have_the_published_sizes() -> None:
    try:
        data_folder("glue")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    sizes = {(task, split): len(load_glue(task, split)) for task in ("CoLA", "SST-2") for split in ("train", "dev")}
    assert sizes == {("CoLA", "train"): 8551, ("CoLA", "dev"): 1043, ("SST-2", "train"): 67349, ("SST-2", "dev"): 872}
    assert sum(load_glue("CoLA", "dev").labels) == 721


def test_other_tasks_are_refused(unchecked: None) -> None:
    with pytest.raises(ValueError, match=r"task='cola' is not known\. Did you mean 'CoLA'"):
        load_glue("cola", "train")  # pyright: ignore[reportArgumentType]
