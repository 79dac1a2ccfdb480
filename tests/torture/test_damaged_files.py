"""A short form of `make torture`: damaged files of every format; a clear error or a right result."""

from __future__ import annotations

import os
import pickle
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

from bayesattn.experiments.data.files import DataError
from torture import file_cases
from torture.attention_cases import Wrong
from torture.file_cases import FORMATS, check_damaged, made, torture_files, torture_format, workplace
from torture.file_formats import ATTACK, CANARY


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_in_words_or_read_rightly(name: str, unchecked: None) -> None:
    seen = []
    torture_format(name, number=0, examples=20, tick=lambda: seen.append(1))
    assert len(seen) >= 20


def _fails(problem: Exception) -> Any:
    def load(folder: Path) -> None:
        raise problem

    return load


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (KeyError("ud_ewt"), "another exception"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "ud_ewt"), "another exception"),
        (DataError("something is wrong with some file"), "it does not name the file"),
        (DataError("en_ewt-ud-train.conllu: " + 3000 * "9"), "not words for a person"),
        (DataError("en_ewt-ud-train.conllu: \ud800 is wrong"), "it cannot be printed"),
    ],
)
def test_an_unclear_error_is_found(problem: Exception, message: str) -> None:
    """The torture can fail."""
    form = made("CoNLL-U")
    with workplace(form) as folder:
        file = next(iter(form.files))
        check_damaged("CoNLL-U", form, folder, file, b"")
        with pytest.raises(Wrong, match=message):
            check_damaged("CoNLL-U", replace(form, load=_fails(problem)), folder, file, b"")


def test_a_hang_and_code_that_runs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    form = made("Planetoid")
    with workplace(form) as folder:
        part = "planetoid/ind.cora.graph"
        check_damaged("Planetoid", form, folder, part, ATTACK)

        def trusting(folder: Path) -> None:
            pickle.loads((folder / part).read_bytes())
            raise DataError(f"{part} is refused, too late")

        with pytest.raises(Wrong, match="code in it was run"):
            check_damaged("Planetoid", replace(form, load=trusting), folder, part, ATTACK)
        (folder / CANARY).unlink()
        monkeypatch.setattr(file_cases, "SECONDS", 0.05)
        with pytest.raises(Wrong, match="it takes longer"):
            check_damaged("Planetoid", replace(form, load=lambda folder: time.sleep(30)), folder, part, b"")


def test_a_crash_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `make torture` formats are read in a process of their own, whose death is a failure and not the end."""
    monkeypatch.setattr(file_cases, "torture_format", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    tally = torture_files(range(10))
    assert list(tally.wrong.values()) == ["idx, seed 0: its process ended with -9"]
