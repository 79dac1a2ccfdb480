"""What the figures of several runs come to, in a sentence or two."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

PLAIN = ("mle", "gat", "soft")
"""Names of the plain model, which the others are measured by."""


def reference(names: Mapping[str, Any]) -> str:
    """The plain model among these, or the first."""
    return next((name for name in names if name in PLAIN), next(iter(names)))


def costs(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Processor time of training, as a ratio to the plain model's."""
    plain = results[reference(results)]["train_seconds"] or 1.0
    return {name: result["train_seconds"] / plain for name, result in results.items()}


def conclusion(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Which of these results has the best likelihood, which finds best what is outside, and what each costs; '' for fewer than two.

    >>> plain = {"train_seconds": 10.0, "metrics": {"log_likelihood": -0.30, "auroc_noise": 0.80}}
    >>> three = {"train_seconds": 30.0, "metrics": {"log_likelihood": -0.25, "auroc_noise": 0.90}}
    >>> conclusion({"mle": plain, "ensemble": three})
    "ensemble has the best likelihood (0.050 nats an example above mle, 3.0 times mle's training) and the best AUROC of what is outside \
(0.900, mle 0.800). One seed: small differences are chance."
    """
    if len(results) < 2:
        return ""
    plain, cost, found = reference(results), costs(results), []
    seeds = {result.get("config", {}).get("seed") for result in results.values()}
    likelihoods = {name: value for name, result in results.items() if (value := _likelihood(result)) is not None}
    of_kinds = {name: values for name, result in results.items() if (values := _aurocs(result))}
    aurocs = {name: statistics.fmean(values) for name, values in of_kinds.items()}
    kinds = max(map(len, of_kinds.values()), default=1)

    def said(what: str, figures: dict[str, float], words: str) -> None:
        if plain not in figures or len(figures) < 2:
            return
        best = max(figures, key=lambda name: figures[name])
        price = "" if found and found[-1][0] == best else f", {cost[best]:.1f} times {plain}'s training"
        gain = words.format(gain=figures[best] - figures[plain], best=figures[best], plain=figures[plain], name=plain)
        found.append((best, f"the best {what}" + ("" if best == plain else f" ({gain}{price})")))

    said("likelihood", likelihoods, "{gain:.3f} nats an example above {name}")
    said(
        f"AUROC of what is outside{f', mean of {kinds} kinds' if kinds > 1 else ''}",
        aurocs,
        "{best:.3f}, {name} {plain:.3f}",
    )
    if not found:
        return ""
    if len(found) == 2 and found[0][0] == found[1][0]:
        sentence = f"{found[0][0]} has {found[0][1]} and {found[1][1]}."
    else:
        sentence = " and ".join(f"{best} has {words}" for best, words in found) + "."
    return sentence + (" One seed: small differences are chance." if len(seeds) == 1 else "")


def _likelihood(result: Mapping[str, Any]) -> float | None:
    figures = result["metrics"]
    return figures.get("log_likelihood", -figures["nll"] if "nll" in figures else None)


def _aurocs(result: Mapping[str, Any]) -> list[float]:
    """By the predictive entropy, where there are several scores."""
    found = {name: value for name, value in result["metrics"].items() if name.startswith("auroc")}
    return [value for name, value in found.items() if name.endswith("_entropy")] or list(found.values())
