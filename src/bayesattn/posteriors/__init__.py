"""The posteriors of attention weights, one file each, and the list of their names."""

from __future__ import annotations

from typing import Any

from bayesattn.posteriors.base import Posterior
from bayesattn.posteriors.dirichlet import Dirichlet
from bayesattn.posteriors.fused_form import FusedForm, RowSums
from bayesattn.posteriors.gaussian import Gaussian
from bayesattn.posteriors.lognormal import LogNormal
from bayesattn.posteriors.rows import Rows
from bayesattn.posteriors.softmax import Softmax
from bayesattn.posteriors.weibull import Weibull
from bayesattn.support import checks
from bayesattn.support.configurable import register

POSTERIORS: dict[str, type[Posterior]] = {
    "softmax": Softmax,
    "weibull": Weibull,
    "lognormal": LogNormal,
    "gaussian": Gaussian,
    "dirichlet": Dirichlet,
}


def posterior_by_name(name: str, **hyper_parameters: Any) -> Posterior:
    """The posterior of that name.

    >>> posterior_by_name("weibull", k=5.0).k
    5.0
    """
    return POSTERIORS[checks.one_of("posterior", name, POSTERIORS)](**hyper_parameters)


__all__ = [
    "POSTERIORS",
    "Dirichlet",
    "FusedForm",
    "Gaussian",
    "LogNormal",
    "Posterior",
    "RowSums",
    "Rows",
    "Softmax",
    "Weibull",
    "posterior_by_name",
    "register",
]
