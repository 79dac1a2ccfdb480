"""The sections of a report, each from plain figures: wherever they came from, they look the same."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from bayesattn import metrics
from bayesattn.experiments.report import chart, pictures
from bayesattn.experiments.report.page import Section, embedded, template
from bayesattn.experiments.tables.printing import difference, figure, ours, paper, title
from bayesattn.experiments.tables.summary import FLOOR, Part
from bayesattn.experiments.tasks.classification import auroc
from bayesattn.experiments.tasks.portrait import Portrait
from bayesattn.inspection import AttentionWeights
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.support.annotations import Float, Shaped

EXAMPLES = 5
"""Examples shown at either end of certainty."""


def table(part: Part) -> Section:
    """One data set of a table: a chart of each metric, and the figures."""
    charts = [
        _captioned(
            chart.dots(
                [
                    chart.Dot(row.method, cell.mean, cell.error, cell.published.value if cell.published else None)
                    for row in part.rows
                    for cell in [row.cells[place]]
                ],
                f"{title(metric)} on {part.dataset.label}, one line for each method",
            ),
            f"{title(metric)}. Dot: ours, mean over seeds ± its standard error. Diamond: the paper's.",
        )
        for place, metric in enumerate(part.dataset.metrics)
    ]
    header = ["method"]
    for metric in part.dataset.metrics:
        header += [title(metric), "paper", "difference"]
    rows = [
        (
            row.method == FLOOR,
            [("", row.method)]
            + [
                shown
                for cell in row.cells
                for shown in (
                    ("ours", ours(row, cell)),
                    ("paper", paper(cell)),
                    (
                        "difference",
                        difference(cell) + (f" ± {figure(cell.error)}" if cell.published and cell.error else ""),
                    ),
                )
            ],
        )
        for row in part.rows
    ]
    body = template("table.html").render(header=header, rows=rows)
    return Section(
        part.dataset.label,
        _side_by_side(charts) + Markup(body),
        f"Task {part.dataset.task}: {part.spent}. The difference is ours minus the paper's, with the standard error of ours.",
    )


def figures(header: Sequence[str], rows: Sequence[Sequence[str]], text: str, colours: bool = False) -> Section:
    """A plain table; with `colours`, each row begins with the colour that its name has in the charts."""

    def first(number: int, name: str) -> str:
        return Markup('<span class="key s{}"></span>{}').format(number % 8, name) if colours else name

    cells = [[("", first(number, row[0])), *(("", cell) for cell in row[1:])] for number, row in enumerate(rows)]
    body = template("table.html").render(header=header, rows=[(False, row) for row in cells])
    return Section("Figures", Markup(body), text)


def reliability(
    predictions: dict[str, Float[Tensor, "n classes"]], labels: Shaped[Tensor, " n"], bins: int = 10
) -> Section:
    """Accuracy against confidence; the dashed line is perfect calibration."""
    curves = {name: reliability_curve(probabilities, labels, bins) for name, probabilities in predictions.items()}
    drawn = chart.lines(
        {name: [(confidence, accuracy) for confidence, accuracy, _ in each] for name, each in curves.items()},
        "accuracy against confidence",
        "confidence",
        "accuracy",
        diagonal=True,
        unit=True,
        counts={name: [count for *_, count in each] for name, each in curves.items()},
    )
    return Section(
        "Is it as right as it is sure?",
        drawn,
        f"Predictions in {bins} bins of confidence; the larger a dot, the more predictions it stands for. On the dashed line "
        "a model is right exactly as often as it says.",
    )


def reliability_curve(
    probabilities: Float[Tensor, "n classes"], labels: Shaped[Tensor, " n"], bins: int = 10
) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, number of predictions) of each bin that holds one."""
    confidence, predicted = probabilities.max(-1)
    right = (predicted == labels).float()
    place = torch.bucketize(confidence, torch.linspace(0, 1, bins + 1)[1:-1])
    return [
        (confidence[place == index].mean().item(), right[place == index].mean().item(), int((place == index).sum()))
        for index in range(bins)
        if (place == index).any()
    ]


def entropies(inside: dict[str, Tensor], outside: dict[str, dict[str, Tensor]], classes: int) -> Section:
    """Densities of predictive entropy on what the model was trained for and on what it was not, one chart for each model."""
    highest = torch.tensor(float(classes)).log().item()
    charts = [
        _captioned(
            chart.densities(
                {"in distribution": values.tolist()}
                | {f"{n}: AUROC {auroc(values, v):.3f}": v.tolist() for n, v in outside.get(name, {}).items()},
                f"predictive entropy of {name}",
                "entropy (nats)",
                highest,
                colour=number,
            ),
            name,
        )
        for number, (name, values) in enumerate(inside.items())
    ]
    text = "The predictive entropy of the test examples"
    if outside:
        text += (
            ", and of inputs that it was not trained for: they should lie further to the right. AUROC: the chance that one "
            "of these has a higher entropy than a test example."
        )
    else:
        text += "."
    return Section("How sure is it, and of what?", _side_by_side(charts), text)


def risk_coverage(curves: dict[str, tuple[Float[Tensor, " n"], Shaped[Tensor, " n"]]]) -> Section:
    """Error among the examples that a model is surest of. `curves`: for each model its uncertainty and whether it was wrong."""
    series = {name: risk_coverage_curve(uncertainty, wrong) for name, (uncertainty, wrong) in curves.items()}
    drawn = chart.lines(
        series,
        "error rate against the share of examples answered",
        "coverage: share answered, surest first",
        "error rate",
    )
    return Section(
        "What if it may decline to answer?",
        drawn,
        "The error rate among the surest examples by predictive entropy. A model that knows when it does not know starts low.",
    )


def risk_coverage_curve(uncertainty: Tensor, wrong: Tensor) -> list[tuple[float, float]]:
    """(coverage, error rate among the surest), at most 100 points."""
    risk = metrics.selective_risk(-uncertainty, wrong.to(uncertainty.dtype))
    places = torch.linspace(0, len(risk) - 1, min(100, len(risk))).round().long()
    return [((place + 1) / len(risk), risk[place].item()) for place in places.tolist()]


def training(histories: dict[str, list[dict[str, Any]]]) -> Section:
    """Training curves with the likelihood and the KL apart."""

    def curve(lines: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
        return [(float(place + 1), float(line[key])) for place, line in enumerate(lines) if line.get(key) is not None]

    charts = []
    for key, words in (
        ("nll", "negative log-likelihood, training"),
        ("validation_nll", "negative log-likelihood, validation"),
        ("kl", "KL"),
    ):
        series = {name: curve(lines, key) for name, lines in histories.items()}
        series = {name: points for name, points in series.items() if any(y for _, y in points)}
        if series:
            drawn = chart.lines(series, f"{words} against epoch", "epoch", words, colours=list(histories))
            charts.append(_captioned(drawn, words))
    return Section(
        "How did it train?", _side_by_side(charts), "The likelihood and the KL of the objective, apart, per example."
    )


def interval_coverage(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Section:
    """How many values lie inside the intervals that should hold a given share of them."""
    drawn = chart.lines(
        dict(curves),
        "share of values inside against the level",
        "level of the interval",
        "share inside",
        diagonal=True,
        unit=True,
    )
    return Section(
        "Do its intervals hold?",
        drawn,
        "Central intervals of the prediction. On the dashed line they hold what they say.",
    )


@dataclass(frozen=True)
class Shown:
    """One example of a list: how it looks, how uncertain the model is, and in words what it said."""

    portrait: Portrait
    uncertainty: float
    words: str


def most_and_least_certain(examples: Sequence[Shown], model: str) -> Section:
    """The examples at both ends of certainty."""
    order = sorted(examples, key=lambda example: example.uncertainty)
    count = min(EXAMPLES, (len(order) + 1) // 2)
    lists = (("Most certain", order[:count]), ("Least certain", order[::-1][:count]))
    body = template("examples.html").render(
        lists=[
            (words, [(pictures.as_markup(each.portrait), f"{each.uncertainty:.3f}", each.words) for each in chosen])
            for words, chosen in lists
        ]
    )
    return Section(
        "What is it sure of, and what not?",
        Markup(body),
        f"{model}, by predictive entropy in nats, of {len(order)} test examples.",
    )


def described(
    prediction: CategoricalPrediction, labels: Tensor, portraits: Sequence[Portrait], names: Sequence[str]
) -> list[Shown]:
    """Every example with its entropy, and what was said against what is right."""
    probabilities, entropies = prediction.mean, prediction.entropy
    return [
        Shown(
            portrait,
            entropies[place].item(),
            f"said {names[int(said)]} ({probabilities[place, said].item():.2f}), is {names[int(labels[place])]}",
        )
        for place, portrait in enumerate(portraits)
        for said in [probabilities[place].argmax()]
    ]


@dataclass(frozen=True)
class Explored:
    """One example in the explorer: its title, how it looks, and the weights of its layers [heads, query, key] by name."""

    title: str
    portrait: Portrait
    layers: dict[str, AttentionWeights]


def explored(
    titles: Sequence[str], portraits: Sequence[Portrait], layers: dict[str, AttentionWeights]
) -> list[Explored]:
    """The examples of a batch apart."""
    return [
        Explored(
            words,
            portraits[place],
            {name: _of_example(each, place, len(portraits[place].names)) for name, each in layers.items()},
        )
        for place, words in enumerate(titles)
    ]


def _of_example(weights: AttentionWeights, place: int, length: int) -> AttentionWeights:
    """One example's weights, without padding."""
    return AttentionWeights(
        *(each[..., place, :, :length, :length] for each in (weights.samples, weights.point, weights.prior))
    )


def explorer(models: Mapping[str, Sequence[Explored]]) -> Section:
    """Choose example, layer, head and query; see the weights' mean, deviation and prior, or one sample after another."""
    data = [
        {
            "name": name,
            "examples": [
                {
                    "title": example.title,
                    **pictures.as_data(example.portrait),
                    "layers": [_layer(*item) for item in example.layers.items()],
                }
                for example in examples
            ],
        }
        for name, examples in models.items()
    ]
    body = template("explorer.html").render(data=embedded(data))
    return Section(
        "What does it look at?", Markup(body), "The attention weights of single examples, with their uncertainty."
    )


def _layer(name: str, weights: AttentionWeights) -> dict[str, Any]:
    samples, heads, queries, keys = weights.samples.shape
    return {
        "name": name,
        "samples": samples,
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "mean": _packed(weights.mean),
        "deviation": _packed(weights.deviation),
        "prior": _packed(weights.prior),
        "draws": _packed(weights.samples),
    }


def _packed(shares: Tensor) -> str:
    """Shares of one as 16-bit numbers in base64: a third of the size of decimals, exact to 1e-5."""
    numbers = (shares.double().clamp(0, 1) * 65535).round().to(torch.uint16)
    return base64.b64encode(numbers.contiguous().numpy().astype("<u2").tobytes()).decode()


def _captioned(drawn: Markup, caption: str) -> Markup:
    return Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(drawn, caption)


def _side_by_side(charts: Sequence[Markup]) -> Markup:
    return Markup('<div class="charts">{}</div>').format(Markup("").join(charts))
