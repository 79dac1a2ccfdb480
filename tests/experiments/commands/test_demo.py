"""The demo, with one epoch: its figures, its files, its messages; stopped, it goes on."""

from __future__ import annotations

import io
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bayesattn.experiments.commands import demo
from bayesattn.experiments.commands.demo import DemoOptions, demo_table, run_demo
from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import RunConfig, RunFolder
from helpers.processes import started


def test_stopped_the_demo_goes_on_prints_every_figure_and_writes_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "ROWS", ("mle", "bam-wc", demo.TWO))  # all of them take longer
    options = DemoOptions(seed=3, epochs=1, samples=2, output=tmp_path / "demo")
    engine, asked = demo.run, []

    def stopped_at_the_third(config: RunConfig, *arguments: Any, **named: Any) -> Any:
        asked.append(RunFolder.of(tmp_path / "demo/runs", config).result() is not None)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return engine(config, *arguments, **named)

    monkeypatch.setattr(demo, "run", stopped_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_demo(options, Console(file=io.StringIO()))
    text = io.StringIO()
    results = run_demo(options, Console(file=text, width=80))
    assert asked == [False, False, False, True, True, False], "what had finished was not kept"
    table = demo_table(options)
    methods = [table.variant(row).method for row in table.methods]
    assert [run["config"]["method"] for run in results.runs] == methods
    page = (tmp_path / "demo/report.html").read_text()
    for run in results.runs:
        assert run["config"]["seed"] == run["config"]["task_options"]["data_seed"] == 3
        assert (run["config"]["training"]["epochs"], run["config"]["training"]["samples"]) == (1, 2)
        assert f" {run['metrics']['nll_t']:.3f} " in text.getvalue()
        assert f"<td>{run['metrics']['nll_t']:.4f}</td>" in page
        assert METHODS.entry(run["config"]["method"]).description in text.getvalue()
    assert "has the best likelihood" in text.getvalue()
    assert "has the best likelihood" in page
    assert (tmp_path / "demo/report.html").as_uri() in text.getvalue()
    assert max(map(len, text.getvalue().splitlines()[:-1])) <= 80, "it fits the smallest usual terminal"


def test_it_compares_what_it_says() -> None:
    configs = demo_table(DemoOptions()).configs("demo")
    assert len(configs) == 7, "the title says seven ways"
    assert [config.make_method().members for config in configs if config.method == "ensemble"] == [2, 5]


def test_the_attention_of_two_rows_is_trained_with_a_kl_that_rises() -> None:
    options = [config.method_options for config in demo_table(DemoOptions()).configs("demo")]
    rising = [each for each in options if hasattr(each, "kl_anneal")]
    assert len(rising) == 2
    assert all((each.kl_weight, each.kl_anneal, each.kl_reduction) == (0.1, 0.5, "mean") for each in rising)


@pytest.mark.slow
def test_in_full_every_method_learns_the_digits(tmp_path: Path) -> None:
    results = run_demo(DemoOptions(output=tmp_path), Console(file=io.StringIO()))
    assert all(run["metrics"]["accuracy"] > 0.9 for run in results.runs), "chance is 0.1"


def test_ctrl_c_leaves_a_clear_message_and_no_report(tmp_path: Path) -> None:
    program = "from bayesattn_command import main; main()"
    command = ["-u", "-c", program, "demo", "--output", tmp_path / "demo"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("scikit-learn's digits")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Stopped. Nothing half-written was left behind; the same command goes on" in error
    assert "Traceback" not in error
    assert not (tmp_path / "demo/report.html").exists()


def test_a_bad_number_of_epochs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="epochs must be a whole number of at least 1, got 0"):
        run_demo(DemoOptions(epochs=0, output=tmp_path))
