"""Latent alignment (Deng et al. 2018): attention as a latent choice of where each target token comes from."""

from __future__ import annotations

from collections.abc import Callable

from bayesattn.alignment.base import Objective
from bayesattn.alignment.categorical import entropy_of_log_weights, keep_largest, log_weights
from bayesattn.alignment.gumbel import Gumbel
from bayesattn.alignment.hard import Hard
from bayesattn.alignment.importance import Importance
from bayesattn.alignment.inference import SequenceInference, SetInference
from bayesattn.alignment.logistic_normal import LogisticNormal
from bayesattn.alignment.marginal import Marginal
from bayesattn.alignment.mixture import ContextMixture
from bayesattn.alignment.recurrent import BidirectionalLSTM
from bayesattn.alignment.relaxed import Relaxed
from bayesattn.alignment.soft import Soft
from bayesattn.alignment.variational import Variational
from bayesattn.support import checks

OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "soft": Soft,
    "marginal": Marginal,
    "hard-enumerated": Hard,
    "hard-sampled": lambda: Hard(samples=1),
    "variational-enumerated": Variational,
    "variational-sampled": lambda: Variational(samples=1),
    "relaxed": Relaxed,
    "logistic-normal": LogisticNormal,
    "gumbel": Gumbel,
    "importance": Importance,
}


def objective_by_name(name: str) -> Objective:
    """The objective of that name, as the paper has it.

    >>> objective_by_name("variational-sampled")
    Variational(samples=1, baseline='soft', train_baseline=False, chunk=2048)
    """
    return OBJECTIVES[checks.one_of("objective", name, OBJECTIVES)]()


__all__ = [
    "OBJECTIVES",
    "BidirectionalLSTM",
    "ContextMixture",
    "Gumbel",
    "Hard",
    "Importance",
    "LogisticNormal",
    "Marginal",
    "Objective",
    "Relaxed",
    "SequenceInference",
    "SetInference",
    "Soft",
    "Variational",
    "entropy_of_log_weights",
    "keep_largest",
    "log_weights",
    "objective_by_name",
]
