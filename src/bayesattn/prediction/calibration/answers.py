"""Predictions that held-out data have judged: scores of input and answer, p-values, abstention, conformal sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from bayesattn.prediction.calibration.evidence import FORMS, Evidence, scale_of
from bayesattn.prediction.calibration.promises import conformal_quantile, p_values, selection
from bayesattn.prediction.calibration.scores import SCORES
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.support import checks
from bayesattn.support.annotations import Bool


@dataclass(frozen=True)
class Abstention:
    """Which answers are given, and what is promised of them."""

    answered: Bool[Tensor, " *shape"]
    coverage: float
    """Share of the held-out examples that are answered; 0: none can be at this risk."""
    risk: float
    """Share of wrong answers among the held-out ones that are answered."""
    bound: float
    """What was asked for: the share of wrong answers among new ones stays below, with probability 1 - δ over held-out data."""
    threshold: float
    """Of the score: answered is what lies below."""


@dataclass(frozen=True, kw_only=True)
class CalibratedPrediction:
    """What `CalibratedModel.predict` adds to a `Prediction`. Its samples are those after the temperature."""

    scores: dict[str, Tensor]
    """By name, see `bayesattn.prediction.calibration.SCORES`: the larger, the less is known. Taken before the temperature."""
    evidence: Evidence
    raw: list[Tensor]
    """The model's outputs before the temperature, [samples, batch, ...]."""

    @property
    def energy(self) -> Tensor:
        """-logsumexp of the logits: a score of the input; high for inputs unlike the training data."""
        return self.score("energy")

    @property
    def max_logit(self) -> Tensor:
        """The largest logit, the mean over samples: low for inputs unlike the training data."""
        return -self.score("max_logit")

    @property
    def distance(self) -> Tensor:
        """Squared Mahalanobis distance of the features from the nearest class of the training data: a score of the input."""
        return self.score("distance")

    @property
    def relative_distance(self) -> Tensor:
        """The distance less that from all training data together: a score of the input."""
        return self.score("relative_distance")

    @property
    def process_variance(self) -> Tensor:
        """Variance of a Gaussian process of the features after the training data, 0 to 1: a score of the input."""
        return self.score("process_variance")

    @property
    def outlier(self) -> Tensor:
        """p-values: which share of inputs like the held-out ones looks as odd as this. By distance, else energy, else variance."""
        return self.outlier_by(self._first("distance", "energy", "variance"))

    def outlier_by(self, score: str) -> Tensor:
        """The p-values by another score."""
        return p_values(self.evidence.scores[self._known(score)], self.scores[score])

    def score(self, name: str) -> Tensor:
        """One of the scores, the larger the less is known."""
        return self.scores[self._known(name)]

    def abstain(
        self, risk: float, *, delta: float = 0.05, score: str | None = None, tolerance: float | None = None
    ) -> Abstention:
        """Answer where at most a share `risk` of the answers is wrong, with probability 1 - `delta` over held-out data.

        Args:
            risk: largest share of wrong answers among those that are given, for new data like the held-out ones.
            delta: how often held-out data may mislead.
            score: what answers are ranked by; by default "confidence", of a regression "variance", else "distance".
            tolerance: of a regression: an answer is wrong if a value is off by more than this.
        """
        evidence = self.evidence
        if evidence.errors is not None:
            if tolerance is None:
                raise ValueError("tolerance= must say by how much an answer of a regression may be off.")
            wrong = evidence.errors > checks.positive("tolerance", tolerance)
        elif tolerance is not None:
            raise ValueError(f"tolerance={tolerance!r} is for regressions; an answer here is right or wrong.")
        else:
            assert evidence.wrong is not None
            wrong = evidence.wrong
        name = self._first("confidence", "variance", "distance") if score is None else self._known(score)
        chosen = selection(evidence.scores[name], wrong, risk, delta)
        answered = self.scores[name].double() < chosen.threshold  # no answer where the score is NaN
        return Abstention(answered, chosen.coverage, chosen.risk, risk, chosen.threshold)

    def _known(self, name: str) -> str:
        if name in SCORES and name not in self.scores:
            raise ValueError(
                f"This prediction has no score {name!r}, only {', '.join(self.scores) or 'none'}. Distances need "
                "ba.calibrate(..., train=...); what is of samples, a model that is random; energy and max_logit, logits."
            )
        return checks.one_of("score", name, self.scores)

    def _first(self, *names: str) -> str:
        for name in names:
            if name in self.scores:
                return name
        return self._known(names[-1])


@dataclass(frozen=True)
class CalibratedCategorical(CalibratedPrediction, CategoricalPrediction):
    """Classes."""

    def sets(self, coverage: float = 0.9, form: Literal["lac", "aps"] = "lac") -> Bool[Tensor, "*shape classes"]:
        """Conformal sets: which classes are in. They hold the true class of a share `coverage` of new examples, or a little more.

        Args:
            coverage: the share.
            form: "lac": the smallest sets on average, empty where no class is probable enough. "aps": never empty, larger where
                the model is unsure.
        """
        of_classes = FORMS[checks.one_of("form", form, FORMS)]
        limit = conformal_quantile(self.evidence.nonconformity[form], coverage)
        mean = CategoricalPrediction(self.raw[0]).mean
        return ~(of_classes(mean) > limit.to(mean.device))  # where the model says NaN nothing is ruled out


@dataclass(frozen=True)
class CalibratedBernoulli(CalibratedPrediction, BernoulliPrediction):
    """Labels that may hold together; an answer is wrong if one of them is."""

    def sets(self, coverage: float = 0.9) -> Any:
        """Not for labels that may hold together."""
        raise ValueError(
            "Conformal sets are for classes of which one holds; abstain(risk=) serves labels that may hold together."
        )


@dataclass(frozen=True)
class CalibratedGaussian(CalibratedPrediction, GaussianPrediction):
    """Gaussians."""

    def sets(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        """Conformal intervals: mean ± q standard deviations. Each value of a new example lies in its own with this probability."""
        return _interval(self.mean, self.evidence, coverage, scale_of(self.raw, "gaussian"))


@dataclass(frozen=True)
class CalibratedValues(CalibratedPrediction, Prediction):
    """Values."""

    def sets(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        """Conformal intervals: mean ± q. Each value of a new example lies in its own with this probability."""
        return _interval(self.mean, self.evidence, coverage, None)


def _interval(mean: Tensor, evidence: Evidence, coverage: float, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    assert evidence.residuals is not None
    limit = conformal_quantile(evidence.residuals, coverage)
    if mean.shape[1:].numel() != len(limit):
        raise ValueError(
            f"The model predicts {mean.shape[1:].numel()} values of an example here and {len(limit)} of a held-out one."
        )
    width = limit.to(mean).view(mean.shape[1:]).expand_as(mean)
    width = width if scale is None else width * scale
    return mean - width, mean + width


ANSWERS: dict[Likelihood, Any] = {
    "categorical": CalibratedCategorical,
    "bernoulli": CalibratedBernoulli,
    "gaussian": CalibratedGaussian,
    "values": CalibratedValues,
}
"""The class of what is answered, by likelihood."""
