"""Which method the results of table keep speak for: made-up runs whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.runs import configure
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.choice import chosen, front, page, standings
from bayesattn.experiments.tables.results import TableResults, write
from helpers.command_line import bayesattn

TABLE = TABLES["keep"]


def _run(task: str, row: str, seed: int, nll: float, train: float, predict: float, **others: float) -> dict[str, Any]:
    variant = TABLE.variant(row)
    options = TABLE.options_of(task, row, "paper")
    spent = TABLE.budget_of(task, "paper").task_options
    config = configure(task, variant.method, seed, task_options=spent, method_options=options)
    metrics = {"nll_t": nll, "ece_t": 0.1, "aurc": 0.01, "predict_seconds": predict} | others
    return {"config": config.to_json(), "metrics": metrics, "train_seconds": train, "commit": "abc"}


def _results() -> TableResults:
    runs = []
    for task in ("digits", "clinc150"):
        for seed in range(3):
            hard = 0.05 * seed  # seeds differ by more than rows do: differences are paired
            auroc = {"auroc_oos_energy": 0.98, "auroc_oos_confidence": 0.96} if task == "clinc150" else {}
            runs.append(_run(task, "mle", seed, 0.2 + hard, 10.0, 1.0, **auroc))
            runs.append(_run(task, "laplace-head", seed, 0.19 + hard, 10.5, 1.1))
            runs.append(_run(task, "ensemble of 5", seed, 0.1 + hard, 50.0, 5.0))
            runs.append(_run(task, "swag", seed, 0.2 + hard + 0.04 * (seed - 1), 11.0, 8.0))  # noise about nothing
    runs += [_run("digits", "packed", seed, 0.12 + 0.05 * seed, 20.0, 1.2) for seed in range(3)]
    return TableResults("keep", "paper", {}, runs)


def test_gains_are_paired_and_prices_are_ratios() -> None:
    found = {(each.row, each.task): each for each in standings(TABLE, _results())}
    ensemble = found["ensemble of 5", "digits"]
    assert (ensemble.train, ensemble.predict) == (5.0, 5.0)
    assert ensemble.gains["likelihood"].mean == pytest.approx(40.0)  # 0.1 of a mean of 0.25
    assert ensemble.gains["likelihood"].error == pytest.approx(0.0, abs=1e-9)
    assert not found["swag", "digits"].gains["likelihood"].is_clear
    assert found["mle", "digits"].gains["likelihood"].mean == 0


@pytest.mark.parametrize(
    ("situation", "pay", "answer"),
    [
        ("nothing yet", "anything", "**ensemble of 5**: 40 % less, clear on 1 of 1; price 5.0 / 5.0"),
        ("nothing yet", "twice the training", "**packed**: 32 % less"),
        ("nothing yet", "about one model", "**laplace-head**: 4 % less"),
        ("a trained model", "anything", "**laplace-head**: 4 % less, clear on 2 of 2"),
        ("a pretrained model to fine-tune", "twice the training", "**laplace-head**"),
    ],
)
def test_the_best_that_can_be_had_and_paid_is_chosen(situation: str, pay: str, answer: str) -> None:
    assert chosen(standings(TABLE, _results()), situation, pay, "likelihood").startswith(answer)


def test_without_a_clear_gain_it_is_the_plain_model() -> None:
    known = standings(TABLE, _results())
    assert chosen(known, "nothing yet", "anything", "calibration") == "the plain model, calibrated"
    assert chosen([], "nothing yet", "anything", "calibration") == "no runs yet"


def test_the_front() -> None:
    assert front([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (0.5, 3.0)]) == [3, 0]


def test_the_page_is_written_by_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"keep\.json is not there: make it with"):
        bayesattn(monkeypatch, "which")
    write(_results(), Path("results"))
    bayesattn(monkeypatch, "which")
    text = Path("docs/which-method.md").read_text()
    assert "![Quality against price, with the front marked](images/keep.png)" in text
    assert Path("docs/images/keep.png").read_bytes()[:4] == b"\x89PNG"
    assert "| CLINC150 | mle | 96.0 |  |  | **98.0** |" in text
    assert "swag are not clearly better" in text
    assert text == page(TABLE, _results(), "images/keep.png")
