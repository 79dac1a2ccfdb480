"""The demo, with one epoch: its figures, its files, its messages."""

from __future__ import annotations

import io
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from rich.console import Console

import bayesattn as ba
from bayesattn.experiments.commands.demo import METHODS, DemoOptions, run_demo
from helpers.processes import started


def test_the_demo_learns_prints_every_method_and_writes_its_report(tmp_path: Path) -> None:
    text = io.StringIO()
    rows = run_demo(DemoOptions(epochs=8, samples=2, output=tmp_path / "demo"), Console(file=text, width=80))
    assert [row.name for row in rows] == [method.name for method in METHODS]
    for row in rows:
        assert row.accuracy > 0.2, f"{row.name} has not learnt anything: chance is 0.1"
        torch.testing.assert_close(row.inside.mean.sum(-1), torch.ones(len(row.inside.mean)))
        assert f"{row.accuracy:.3f}" in text.getvalue()
    (report,) = (tmp_path / "demo").iterdir()
    assert report.as_uri() in text.getvalue().replace("\n", "")
    page = report.read_text()
    assert all(f"<td>{row.nll:.3f}</td>" in page for row in rows)
    assert page.count('class="line') >= 2 * len(METHODS)


def test_bayesian_rows_are_stochastic_and_trained_with_a_kl() -> None:
    bayesian = [method for method in METHODS if method.posterior is not None]
    assert {type(method.posterior) for method in bayesian} == {ba.Weibull, ba.Dirichlet}
    assert all(method.is_random for method in bayesian)


def test_ctrl_c_leaves_a_clear_message_and_no_files(tmp_path: Path) -> None:
    program = "from bayesattn.experiments.cli import main; main()"
    command = ["-u", "-c", program, "demo", "--output", tmp_path / "demo"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("scikit-learn's digits")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Stopped. Nothing half-written was left behind" in error
    assert "Traceback" not in error
    assert not (tmp_path / "demo").exists()


def test_a_bad_number_of_epochs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="epochs must be a whole number of at least 1, got 0"):
        run_demo(DemoOptions(epochs=0, output=tmp_path))
