"""What held-out examples promise about new ones like them: error rates, coverages, p-values. All hold for any model and any score.

They ask one thing: that held-out and new examples are exchangeable, as independent draws from one source are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.support.annotations import Bool, Float, Int

RANKS = 64
"""How many thresholds may be tried."""
STARTS = 4
"""From how many of them one goes on to larger ones; each start gets an equal share of δ."""


@dataclass(frozen=True)
class Selection:
    """A threshold of a score below which answers are given, and what is known of the answers that are given."""

    threshold: float
    """Answers are given where the score is below; -inf: never."""
    coverage: float
    """Share of the held-out examples that are answered."""
    risk: float
    """Share of wrong answers among those."""


def selection(scores: Float[Tensor, " n"], wrong: Bool[Tensor, " n"], risk: float, delta: float) -> Selection:
    """The threshold of largest coverage for which the risk of a new answer is at most `risk`, with probability 1 - `delta`.

    Selection with guaranteed risk (Geifman & El-Yaniv 2017): the exact binomial test of the errors among the m examples that score below
    a threshold. They look for the threshold by bisection, whose steps depend on the labels, so that a union bound over the steps is not
    enough. Here `RANKS` numbers m are fixed in advance, and tested from each of `STARTS` of them upwards until a test fails, at
    `delta / STARTS`: the first threshold that does not keep its promise is passed with that probability, and no later one is reached
    without it (fixed-sequence testing, Angelopoulos et al. 2021).
    """
    if not 0 < risk < 1:
        raise ValueError(f"risk must lie in (0, 1), got {risk!r}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), got {delta!r}.")
    n, share = len(scores), delta / STARTS
    fewest = math.ceil(math.log(share) / math.log1p(-risk))
    if fewest > n:
        least = -math.expm1(math.log(share) / n)
        raise ValueError(
            f"risk={risk:g} with delta={delta:g} needs {fewest} held-out examples even if no answer is wrong; there are {n}, enough "
            f"for risk={math.ceil(least * 1000) / 1000:g} and more. Calibrate on more examples, or ask for less."
        )
    ordered, order = scores.double().cpu().sort()
    errors = torch.cat([torch.zeros(1, dtype=torch.long), wrong.cpu()[order].long().cumsum(0)])
    ranks = torch.linspace(fewest, n, RANKS, dtype=torch.float64).round().long().unique()
    thresholds = torch.cat([ordered, torch.full((1,), torch.inf, dtype=torch.float64)])[ranks]
    below = torch.where(ranks < n, torch.searchsorted(ordered, thresholds), n)  # of equal scores all or none
    passed = (below >= fewest) & (binomial_cdf(errors[below], below.clamp_min(1), risk) <= share)
    best = Selection(-torch.inf, 0.0, 0.0)
    for start in range(STARTS):
        first = len(ranks) * start // STARTS
        last = first + int(passed[first:].long().cumprod(0).sum()) - 1  # the last before a test fails
        if last >= first and (answered := int(below[last])) / n > best.coverage:
            best = Selection(thresholds[last].item(), answered / n, errors[answered].item() / answered)
    return best


def conformal_quantile(scores: Float[Tensor, "n ..."], coverage: float) -> Float[Tensor, "..."]:
    """The ⌈(n + 1) coverage⌉-th smallest score: a new example's is at most that with probability `coverage` or a little more."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie in (0, 1), got {coverage!r}.")
    n = len(scores)
    rank = math.ceil((n + 1) * coverage - 1e-9)
    if rank > n:
        raise ValueError(
            f"coverage={coverage:g} needs {math.ceil(coverage / (1 - coverage) - 1e-9)} held-out examples, there are {n}: ask for at "
            f"most {n / (n + 1):.4g}, or calibrate on more."
        )
    return scores.sort(0).values[rank - 1]


def p_values(held_out: Float[Tensor, " n"], scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """(1 + held-out examples that score as high) / (n + 1): at most p with probability p for a new example like them.

    A score that is NaN gets the lowest p-value.
    """
    ordered = held_out.double().sort().values.to(scores.device)
    below = torch.searchsorted(ordered, scores.double().nan_to_num(nan=torch.inf).contiguous())
    return (1 + len(ordered) - below).double() / (len(ordered) + 1)


def binomial_cdf(
    successes: Int[Tensor, " tests"], trials: Int[Tensor, " tests"], chance: float
) -> Float[Tensor, " tests"]:
    """P(at most so many successes in so many trials)."""
    k = torch.arange(int(successes.max()) + 1, dtype=torch.float64).unsqueeze(1)
    total = trials.double()
    rest = (total - k).clamp_min(0.0)
    ways = torch.lgamma(total + 1) - torch.lgamma(k + 1) - torch.lgamma(rest + 1)
    logs = ways + k * math.log(chance) + rest * math.log1p(-chance)
    return logs.masked_fill(k > successes, -torch.inf).logsumexp(0).exp().clamp_max(1.0)
