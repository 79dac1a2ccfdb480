"""What held-out data promise is kept: error rates over a thousand problems, coverages, p-values."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesattn.prediction.calibration.promises import (
    STARTS,
    binomial_cdf,
    conformal_quantile,
    p_values,
    selection,
)

PROBLEMS = 1000


def slack(share: float) -> float:
    """Three standard deviations of a binomial share over the problems."""
    return 3 * math.sqrt(share * (1 - share) / PROBLEMS)


def test_the_risk_of_what_is_answered_exceeds_its_bound_in_at_most_delta_of_a_thousand_problems() -> None:
    """An example with score s is wrong with probability a + b s: below a threshold t the risk is a + b t / 2 for uniform scores.

    The slack is three standard deviations of the share: 0.038 at δ = 0.2. What errors do without a bound is in the test below.
    """
    generator = torch.Generator().manual_seed(1)
    delta, risk, exceeded, coverage = 0.2, 0.12, 0, 0.0
    for _ in range(PROBLEMS):
        a, b = (torch.rand(2, generator=generator) * torch.tensor([0.12, 0.5])).tolist()
        scores = torch.rand(500, generator=generator)
        wrong = torch.rand(500, generator=generator) < a + b * scores
        found = selection(scores, wrong, risk, delta)
        true_risk = a + b * min(found.threshold, 1.0) / 2 if found.coverage else 0.0
        exceeded += true_risk > risk
        coverage += found.coverage / PROBLEMS
    assert exceeded / PROBLEMS <= delta + slack(delta)
    assert coverage > 0.25  # it does answer


def test_without_the_bound_the_same_problems_fail() -> None:
    """The error rate itself as a threshold: the test above can tell."""
    generator = torch.Generator().manual_seed(1)
    exceeded = 0
    for _ in range(200):
        a, b = (torch.rand(2, generator=generator) * torch.tensor([0.12, 0.5])).tolist()
        scores = torch.rand(500, generator=generator)
        wrong = torch.rand(500, generator=generator) < a + b * scores
        ordered, order = scores.sort()
        rates = wrong[order].double().cumsum(0) / torch.arange(1, 501)
        fitting = (rates <= 0.12).nonzero()
        threshold = ordered[fitting[-1]].item() if len(fitting) else 0.0
        exceeded += a + b * threshold / 2 > 0.12
    assert exceeded / 200 > 0.3


def test_the_binomial_test_is_exact() -> None:
    mistakes, answered = torch.tensor([0, 3, 40, 5]), torch.tensor([40, 100, 900, 5])
    for chance in (0.03, 0.06):
        expected = torch.from_numpy(stats.binom.cdf(mistakes, answered, chance))
        assert torch.allclose(binomial_cdf(mistakes, answered, chance), expected, rtol=1e-9)


def test_all_are_answered_up_to_the_number_of_errors_that_the_binomial_test_allows() -> None:
    allowed = max(errors for errors in range(600) if stats.binom.cdf(errors, 600, 0.05) <= 0.1 / STARTS)
    for errors, coverage in ((allowed, 1.0), (allowed + 1, 0.99)):
        wrong = torch.arange(600) >= 600 - errors  # the last ones: all smaller thresholds pass
        found = selection(torch.arange(600.0), wrong, 0.05, 0.1)
        assert (found.coverage == 1.0) == (coverage == 1.0)
        assert found.coverage >= coverage - 0.02
        assert found.risk == pytest.approx(max(0, errors - 600 + 600 * found.coverage) / (600 * found.coverage))


def test_examples_of_equal_score_are_answered_together_or_not_at_all() -> None:
    scores = torch.cat([torch.zeros(300), torch.ones(300)])
    wrong = scores.bool() & (torch.arange(600) % 2 == 0)
    found = selection(scores, wrong, 0.05, 0.05)
    assert found.coverage == 0.5
    assert (scores < found.threshold).sum() == 300
    assert selection(torch.zeros(600), wrong, 0.05, 0.05).coverage == 0.0


def test_a_risk_that_no_data_of_this_size_can_promise_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"risk=0\.01 .* needs 437 held-out examples .* there are 100, enough for risk=0\.043"
    ):
        selection(torch.rand(100), torch.zeros(100, dtype=torch.bool), 0.01, 0.05)
    selection(torch.rand(100), torch.zeros(100, dtype=torch.bool), 0.043, 0.05)
    for risk, delta in ((0.0, 0.05), (1.0, 0.05), (0.1, 0.0)):
        with pytest.raises(ValueError, match=r"must lie in \(0, 1\)"):
            selection(torch.rand(100), torch.zeros(100, dtype=torch.bool), risk, delta)


def test_the_conformal_quantile_covers_a_new_example_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(2)
    for n, coverage in ((99, 0.9), (39, 0.5), (19, 0.95)):
        scores = torch.randn(PROBLEMS, n + 1, generator=generator)
        covered = [row[-1] <= conformal_quantile(row[:-1], coverage) for row in scores]
        assert abs(sum(covered).item() / PROBLEMS - coverage) <= slack(coverage)
    assert conformal_quantile(torch.arange(1.0, 100.0), 0.9).item() == 90.0
    with pytest.raises(ValueError, match=r"coverage=0\.99 needs 99 held-out examples, there are 50"):
        conformal_quantile(torch.rand(50), 0.99)


def test_p_values_are_uniform_for_inputs_like_the_held_out_ones_and_count_ties_against_them() -> None:
    generator = torch.Generator().manual_seed(3)
    held_out, new = torch.randn(4999, generator=generator), torch.randn(PROBLEMS, generator=generator)
    assert stats.kstest(p_values(held_out, new).numpy(), "uniform").pvalue > 1e-3
    found = p_values(torch.tensor([1.0, 2.0, 2.0]), torch.tensor([0.0, 2.0, 3.0, math.nan]))
    assert found.tolist() == [1.0, 0.75, 0.25, 0.25]
