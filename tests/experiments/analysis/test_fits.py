"""Fits find the family that a sample is of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesattn.experiments.analysis.fits import best_by_likelihood, fit_families, modes, off_diagonal

SAMPLES = {
    "gaussian": stats.norm(scale=0.3),
    "laplace": stats.laplace(scale=0.3),
    "cauchy": stats.cauchy(scale=0.3),
    "student": stats.t(4.0, scale=0.3),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_true_family_is_found_with_its_scale(name: str) -> None:
    fits = fit_families(SAMPLES[name].rvs(20_000, random_state=0))
    assert best_by_likelihood(fits, 20_000) == name
    assert fits[name].prior.scale == pytest.approx(0.3, rel=0.03)
    assert fits[name].squared_error < 2 * min(fit.squared_error for fit in fits.values())
    if name == "student":
        assert fits[name].prior.df == pytest.approx(4.0, rel=0.1)


def test_log_likelihoods_are_scipys() -> None:
    sample = SAMPLES["laplace"].rvs(5000, random_state=1)
    fit = fit_families(sample)["laplace"]
    assert fit.log_likelihood == pytest.approx(stats.laplace.logpdf(sample, scale=np.abs(sample).mean()).mean())


def test_modes_are_counted() -> None:
    random = np.random.default_rng(0)
    assert modes(random.standard_normal(2000)) == 1
    assert modes(np.concatenate([random.normal(-3, 1, 1000), random.normal(3, 1, 1000)])) == 2


def test_correlations_off_the_diagonal() -> None:
    random = np.random.default_rng(0)
    independent = random.standard_normal((4000, 6))
    common = independent + 0.5 * random.standard_normal((4000, 1))
    assert off_diagonal(independent)[1] < 0.03
    assert off_diagonal(common)[1] == pytest.approx(0.25 / 1.25, abs=0.03)
    assert off_diagonal(independent[:, :1])[1] == 0.0


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="All weights are the same number"):
        fit_families(np.ones(50))
    with pytest.raises(ValueError, match="at least 10 finite numbers"):
        fit_families(np.array([1.0, np.nan]))
