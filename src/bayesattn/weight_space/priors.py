"""Priors of weights: one for all, one for each group of parameters, and the thesis's."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesattn.support import checks, json_text
from bayesattn.support.annotations import Float
from bayesattn.support.configurable import Configurable, register
from bayesattn.support.files import write_atomically
from bayesattn.weight_space.families import Family, family_by_name


@register
class WeightPrior(Configurable):
    """One distribution for every weight of a group, around 0 (or around where the weights started, see `mean_field`).

    Args:
        family: "gaussian", "laplace", "logistic", "cauchy" or "student".
        scale: its scale: the standard deviation of a Gaussian.
        df: degrees of freedom, for "student" alone.

    >>> import torch
    >>> WeightPrior("student", scale=0.1, df=5.0).log_density(torch.zeros(2)).shape
    torch.Size([2])
    """

    def __init__(self, family: str = "gaussian", scale: float = 1.0, df: float | None = None):
        self.family = family_by_name(family).name
        self.scale = checks.positive("scale", scale)
        if family_by_name(family).has_df:
            if df is None:
                raise ValueError("A Student-t prior needs its degrees of freedom: pass df=.")
            self.df: float | None = checks.positive("df", df)
        elif df is not None:
            raise ValueError(f"df={df!r} is for the family 'student'; a {family} prior has no degrees of freedom.")
        else:
            self.df = None

    def __repr__(self) -> str:
        return f"WeightPrior({self.extra_repr()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightPrior) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash((self.family, self.scale, self.df))

    @property
    def distribution(self) -> Family:
        """The standard form."""
        return family_by_name(self.family)

    def df_like(self, tensor: Tensor) -> Tensor | None:
        """The degrees of freedom as a tensor beside `tensor`."""
        return None if self.df is None else torch.tensor(self.df, dtype=tensor.dtype, device=tensor.device)

    def log_density(self, weights: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """log density of each weight, around 0."""
        z = weights / self.scale
        return self.distribution.log_density(z, self.df_like(z)) - torch.tensor(self.scale).log().to(z)

    def sample(
        self, like: Float[Tensor, "*shape"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*shape"]:
        """Weights drawn from the prior."""
        return self.scale * self.distribution.noise(like, self.df_like(like), generator)


Priors = WeightPrior | Mapping[str, WeightPrior]
"""One prior, or patterns of parameter names ("*self_attn*") each with its prior; the first that matches counts."""


def prior_of(priors: Priors, name: str) -> WeightPrior:
    """The prior of the parameter `name`."""
    if isinstance(priors, WeightPrior):
        return priors
    for pattern, prior in priors.items():
        if fnmatch.fnmatchcase(name, pattern):
            return prior
    raise ValueError(
        f"No pattern of prior= matches the parameter {name!r}; the patterns are {', '.join(map(repr, priors))}. "
        "Add one for it, or '*' as the last."
    )


def fitted_priors(name: str) -> dict[str, WeightPrior]:
    """Priors fitted to our own trained models by `bayesattn study`: "M1", "POS"; for the models of `bayesattn.experiments.models`."""
    folder = resources.files("bayesattn.weight_space") / "fitted"
    names = sorted(file.name.removesuffix(".json") for file in folder.iterdir())
    return load_priors(Path(str(folder / f"{checks.one_of('name', name, names)}.json")))


def save_priors(priors: Mapping[str, WeightPrior], path: Path) -> None:
    """Write a preset as JSON."""
    write_atomically(
        Path(path), json.dumps({pattern: prior.config() for pattern, prior in priors.items()}, indent=2) + "\n"
    )


def load_priors(path: Path) -> dict[str, WeightPrior]:
    """Read a preset that `save_priors` (or `bayesattn study`) wrote."""
    try:
        values: dict[str, dict[str, Any]] = json_text.read(Path(path))
        return {
            pattern: WeightPrior(config["family"], config["scale"], config.get("df"))
            for pattern, config in values.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(
            f"{path} is not a preset of priors ({type(problem).__name__}: {problem}): `bayesattn study` writes one."
        ) from None


def _student(df: float, scale: float) -> WeightPrior:
    return WeightPrior("student", scale, df)


def _groups(
    embedding: WeightPrior, attention: WeightPrior, feedforward: WeightPrior, projection: WeightPrior
) -> dict[str, WeightPrior]:
    """The thesis's four groups, by the names of the parameters of our models."""
    return {
        "*norm*": WeightPrior("gaussian", 1.0),  # not stated in the thesis, whose groups have no place for them
        "embedding*": embedding,
        "positions": embedding,
        "*self_attn*": attention,
        "*linear[12]*": feedforward,
        "head*": projection,
    }


THESIS_PRIORS: dict[str, dict[str, WeightPrior]] = {
    "M1": _groups(_student(13.0, 0.03), _student(5.0, 1e-4), _student(6.0, 1e-4), WeightPrior("cauchy", 0.6)),
    "M2": _groups(
        WeightPrior("laplace", 0.035), _student(4.0, 1e-4), _student(5.0, 1.5e-4), WeightPrior("laplace", 0.01)
    ),
    "M3": _groups(
        WeightPrior("gaussian", 0.6), WeightPrior("logistic", 0.001), _student(5.0, 0.002), WeightPrior("laplace", 0.1)
    ),
    "M4": _groups(
        WeightPrior("laplace", 0.3), _student(3.0, 1e-4), _student(5.0, 1.5e-4), WeightPrior("laplace", 0.01)
    ),
    "M5": _groups(WeightPrior("laplace", 0.1), _student(6.0, 1e-4), _student(4.0, 1e-4), _student(10000.0, 0.2)),
    "POS": _groups(
        WeightPrior("gaussian", 0.3), _student(12.0, 1e-4), _student(10000.0, 2.5e-4), WeightPrior("gaussian", 0.3)
    ),
    "MNIST": {
        "*norm*": WeightPrior("gaussian", 1.0),
        "embedding*": WeightPrior("gaussian", 0.02),
        "positions": WeightPrior("gaussian", 0.02),
        "encoder.layers.0.self_attn*": WeightPrior("gaussian", 0.02),
        "encoder.layers.0.linear[12]*": _student(80.0, 0.01),
        "encoder.layers.1.self_attn*": _student(26.0, 2e-4),
        "encoder.layers.1.linear[12]*": _student(13.0, 2e-4),
        "head*": WeightPrior("logistic", 0.1),
    },
}
"""The thesis's improved priors, found in its study of trained weights. A Gaussian's second number is read as its scale."""


def thesis_priors(name: str) -> dict[str, WeightPrior]:
    """The improved priors of one of the thesis's tasks: "M1" … "M5", "POS", "MNIST"; for the models of `bayesattn.experiments.models`."""
    return THESIS_PRIORS[checks.one_of("name", name, THESIS_PRIORS)]
