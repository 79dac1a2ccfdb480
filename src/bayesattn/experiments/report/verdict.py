"""A model's answer to one input in plain words: what it says, how sure it is, and whether it should say it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from bayesattn.experiments.report import pictures
from bayesattn.experiments.report.explorable import Answered
from bayesattn.experiments.report.page import template
from bayesattn.prediction.calibration import CalibratedPrediction

SHOWN = 5
"""Most probable classes that are shown."""
LEVEL = 0.9
"""Of the interval over samples."""
UNUSUAL = 0.05
"""p-values below are said to be of inputs unlike the held-out ones."""


@dataclass(frozen=True)
class Decision:
    """Whether the answer is given, and why."""

    answers: bool
    why: str


def decision(answered: Answered, threshold: float) -> Decision:
    """By the answer's probability; of a calibrated model by the risk, the share of wrong answers that may be given.

    The risk may be one that the held-out examples are too few for: that is a `ValueError`.
    """
    prediction = answered.prediction
    if isinstance(prediction, CalibratedPrediction):
        found = prediction.abstain(threshold)
        if found.coverage == 0:
            return Decision(False, f"of no answers can it be promised that at most {threshold:.0%} are wrong")
        rule = f"to have at most {threshold:.0%} wrong, it answers {found.coverage:.0%} of questions like the held-out ones"
        return Decision(bool(found.answered), f"{rule}; {'this is one' if found.answered else 'this is not one'}")
    highest = prediction.mean.max().item()
    relation = "below" if highest < threshold else "not below"
    return Decision(highest >= threshold, f"its probability {highest:.3f} is {relation} {threshold:.2f}")


def verdict(answered: Answered, classes: tuple[str, ...], threshold: float) -> Markup:
    """The answer as a part of a page."""
    prediction = answered.prediction
    mean = prediction.mean[0]
    lower, upper = (bound[0].tolist() for bound in prediction.interval(LEVEL))
    order = mean.argsort(descending=True)[:SHOWN].tolist()
    said = Decision(False, "")
    problem = ""
    try:
        said = decision(answered, threshold)
    except ValueError as refused:
        problem = str(refused)
    return Markup(
        template("verdict.html").render(
            picture="" if answered.portrait.image is None else pictures.as_markup(answered.portrait),
            said=classes[order[0]],
            decision=said,
            problem=problem,
            level=LEVEL,
            rows=[(classes[place], mean[place].item(), lower[place], upper[place]) for place in order],
            more=len(classes) - len(order),
            sentences=[*_uncertainty(answered, len(classes)), *answered.remarks],
        )
    )


def _uncertainty(answered: Answered, classes: int) -> list[str]:
    prediction = answered.prediction
    entropy, disagreement = prediction.entropy.item(), prediction.mutual_information.item()
    share, count = disagreement / max(entropy, 1e-12), len(prediction.samples)
    because = f"{share:.0%}" if share >= 0.01 else "less than 1%"
    found = [
        f"Entropy {entropy:.3f}: as open as a choice among {math.exp(entropy):.1f} equally probable classes of {classes}.",
        f"Mutual information {disagreement:.3f}: {because} of the entropy is there because the {count} samples disagree, the rest "
        "because each of them is unsure."
        if count > 1
        else "Mutual information 0: one pass was made, and no samples can disagree.",
    ]
    if isinstance(prediction, CalibratedPrediction):
        chance = prediction.outlier.item()
        kind = "unlike" if chance < UNUSUAL else "not unlike"
        found.append(f"p-value {chance:.3f}: the question is {kind} the held-out ones.")
    return found
