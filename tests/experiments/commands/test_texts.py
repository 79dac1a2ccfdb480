"""`bayesattn interpolate` and `bayesattn sample`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bayesattn.experiments.commands.texts import InterpolateCommand, SampleCommand, interpolate, sample
from bayesattn.experiments.runs import configure, run

OPTIONS = {"hidden": 16, "feedforward": 16, "test_sentences": 5, "pairs": 2, "generated": 5}
ONE, TWO = "anna saw the river .", "hugo left the boat and the stone ."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    config = configure("nvae-toy", "vt", training={"epochs": 1}, task_options=OPTIONS)
    run(config, folder)
    return folder / config.name


def printed(function, command) -> str:  # type: ignore[no-untyped-def]
    out = io.StringIO()
    function(command, Console(file=out, width=1000))
    return out.getvalue()


def test_interpolation_prints_a_text_for_each_share(trained: Path) -> None:
    shown = printed(interpolate, InterpolateCommand(ONE, TWO, trained, tau=(0.0, 0.3)))
    assert "│ 0 " in shown
    assert "│ 0.3 " in shown
    same = printed(interpolate, InterpolateCommand(ONE, ONE, trained, tau=(0.0, 1.0)))
    first, last = (line.split("│")[-2] for line in same.splitlines() if line.startswith("│"))
    assert first == last


def test_samples_are_decided_by_the_seed(trained: Path) -> None:
    one = printed(sample, SampleCommand(trained, count=3))
    assert len(one.splitlines()) == 3
    assert one == printed(sample, SampleCommand(trained, count=3))


def test_messages(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 0 wordpieces"):
        interpolate(InterpolateCommand("", TWO, trained), Console())
    with pytest.raises(ValueError, match="count must be a whole number"):
        sample(SampleCommand(trained, count=0), Console())
    config = configure("toy-m1", "mle", training={"epochs": 1}, task_options={"hidden": 8, "feedforward": 8})
    run(config, tmp_path)
    with pytest.raises(ValueError, match="is a run of toy-m1: texts are written by the autoencoders"):
        sample(SampleCommand(tmp_path / config.name), Console())
