"""`bayesattn show`: what is drawn, what is said, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from bayesattn.experiments.commands import show as show_module
from bayesattn.experiments.commands.show import ShowCommand, draw_regions
from bayesattn.experiments.report.regions import Panel
from bayesattn.experiments.runs import configure, run
from helpers.image_files import put_coco, put_vqa

QUESTIONS = {
    "dim": 8,
    "heads": 2,
    "layers": 1,
    "embedding_dim": 4,
    "noise": (),
    "validation_share": 0.2,
    "least_answers": 1,
}
CAPTIONS = {"dim": 8, "dropout": 0.1, "least": 1, "noise": ()}


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was given to be drawn, which is drawn all the same."""
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))
    kept: list[Any] = []
    real = show_module.region_maps

    def spy(*arguments: Any) -> Path:
        kept.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(show_module, "region_maps", spy)
    return kept


def fit(tmp_path: Path, task: str, method: str, options: dict[str, Any], **method_options: Any) -> Path:
    config = configure(
        task,
        method,
        training={"epochs": 1, "batch_size": 30, "samples": 2},
        task_options=options | {"data": str(tmp_path / "mine")},
        method_options=method_options,
    )
    run(config, tmp_path / "runs")
    return tmp_path / "runs" / config.name


def sums(panels: list[Panel]) -> list[float]:
    return [float(panel.weights.sum()) for panel in panels if panel.weights is not None]


def test_answers_of_several_runs_stand_side_by_side_and_the_best_has_a_star(
    tmp_path: Path, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figure 2 of BAM: right and certain before right and uncertain, wrong and uncertain, wrong and certain."""
    put_vqa(tmp_path / "mine", range(30), range(30, 40))
    console = Console(record=True, width=200)
    bam = fit(tmp_path, "vqa2", "bam-wc", QUESTIONS, samples_dropout=True)
    soft = fit(tmp_path, "vqa2", "soft", QUESTIONS)
    p_values = iter([0.4, 0.01])
    monkeypatch.setattr(show_module.metrics, "top_two_p_values", lambda samples: torch.tensor([next(p_values)]))
    draw_regions(ShowCommand("vqa", bam, example=3, beside=(soft,), output=tmp_path / "a.png"), console)
    title, rows, _, _ = drawn[0]
    question, first, second = title.split("\n")
    assert question.startswith("What shade is it? (right: white")
    assert first.removeprefix("★ ").startswith("bam-wc: ")
    assert first.endswith("(p = 0.400)")
    assert second.removeprefix("★ ").startswith("soft: ")
    assert second.endswith("(p = 0.010)")
    preference = {  # (right, certain) → place
        (True, True): 0,
        (True, False): 1,
        (False, False): 2,
        (False, True): 3,
    }
    places = [preference["white" in line.split(": ")[1], certain] for line, certain in ((first, False), (second, True))]
    assert [line.startswith("★") for line in (first, second)] == [place == min(places) for place in places]
    assert [row[0].title for row in rows] == ["bam-wc\nmean", "soft\nmean"]
    with pytest.raises(ValueError, match=r"beside=.* compares answers: it is for `show vqa` alone"):
        draw_regions(ShowCommand("caption", bam, beside=(soft,)), console)


def test_an_answer(tmp_path: Path, drawn: list[Any]) -> None:
    put_vqa(tmp_path / "mine", range(30), range(30, 40))
    console = Console(record=True, width=200)
    folder = fit(tmp_path, "vqa2", "bam-wc", QUESTIONS, samples_dropout=True)
    draw_regions(ShowCommand("vqa", folder, example=3, noise=1.0, output=tmp_path / "a.png"), console)
    title, ((mean, spread),), path, image = drawn[0]
    assert image is None
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert title.startswith("What shade is it? → ")
    assert " (p " in title
    assert "right: white" in title
    assert title in console.export_text()
    assert (mean.title, spread.title) == ("mean", "standard deviation")
    assert sums([mean]) == pytest.approx([1.0], abs=1e-5)
    assert float(spread.weights.sum()) > 0

    folder = fit(tmp_path, "vqa2", "variational-sampled", QUESTIONS | {"model": "bottom-up"})
    draw_regions(ShowCommand("vqa", folder, output=tmp_path / "b.svg"), console)
    _, ((prior, posterior),), path, _ = drawn[1]
    assert (prior.title, posterior.title[:16]) == ("prior", "posterior, given")
    assert sums([prior, posterior]) == pytest.approx([1.0, 1.0], abs=1e-5)
    assert path.exists()
    bayesian = fit(tmp_path, "vqa2", "bam-wc", QUESTIONS | {"model": "bottom-up"})
    draw_regions(ShowCommand("vqa", bayesian, output=tmp_path / "c.pdf"), console)
    _, (panels,), _, _ = drawn[2]
    assert [panel.title for panel in panels] == ["prior", "mean", "standard deviation"]
    assert sums(panels)[:2] == pytest.approx([1.0, 1.0], abs=1e-5)
    with pytest.raises(ValueError, match=r"example=11 is not in the test set, which has 10 questions: take 1 to 10"):
        draw_regions(ShowCommand("vqa", folder, example=11), console)
    with pytest.raises(ValueError, match=r"is of the task 'vqa2': for `show caption` take a run of flickr8k"):
        draw_regions(ShowCommand("caption", folder), console)
    with pytest.raises(ValueError, match=r"output must end in .png, .svg, .pdf; got a.txt"):
        draw_regions(ShowCommand("vqa", folder, output=Path("a.txt")), console)
    with pytest.raises(ValueError, match=r"noise must not be negative"):
        draw_regions(ShowCommand("vqa", folder, noise=-1.0), console)


def test_a_caption(tmp_path: Path, drawn: list[Any]) -> None:
    put_coco(tmp_path / "mine", range(30))
    folder = fit(tmp_path, "coco", "bam-wc", CAPTIONS)
    draw_regions(ShowCommand("caption", folder, example=2, output=tmp_path / "c.png"), Console(quiet=True))
    title, (means, spreads), path, _ = drawn[0]
    words = title.removeprefix("11: ").split()
    assert [panel.title for panel in means] == ["prior", *words, "(end)"]
    assert sums(means) == pytest.approx([1.0] * len(means), abs=1e-5)
    assert all(total > 0 for total in sums(spreads))
    assert path.exists()
    folder = fit(tmp_path, "coco", "soft", CAPTIONS)
    draw_regions(ShowCommand("caption", folder, output=tmp_path / "d.png"), Console(quiet=True))
    _, (means, spreads), _, _ = drawn[1]
    assert means[0].title != "prior"
    assert sums(spreads) == pytest.approx([0.0] * len(spreads), abs=1e-5)
