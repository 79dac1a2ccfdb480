"""The toy processes: drawn values follow the printed recursions, and the floors are the sheet's."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.experiments.data.toy import M5, PROCESSES, STEPS, load_toy, truth, variance_given_last


def recursion(name: str, x: torch.Tensor, t: int) -> torch.Tensor:
    """E[X_{t+1} | past], written from the thesis's text."""
    if name == "m1":
        return 0.8 * x[:, t]
    if name == "m2":
        return (0.7 * 0.9 + 0.3 * 0.6 * 0.9) * x[:, t]
    if name == "m3":
        return sum((torch.cos(2 * math.pi * n / 5 * x[:, t] + 1 / (n + 1)) / 5 for n in range(5)), torch.zeros(len(x)))
    if name == "m4":
        return sum((0.8 / 5 * x[:, t - i] for i in range(5)), x[:, 0] / 5)
    terms = (0.5 * torch.cos(4 * math.pi * j / 5 * x[:, t - i]) for i in range(5) for j in range(5))
    return sum(terms, torch.zeros(len(x)))


@pytest.mark.parametrize("name", PROCESSES)
def test_the_mean_of_the_law_is_the_printed_recursion(name: str) -> None:
    process = PROCESSES[name]()
    x = process.sample(50, seed=1)
    true = truth(process, x)
    for t in range(process.order - 1, STEPS):
        torch.testing.assert_close(true.mean[:, t], recursion(name, x, t), check_dtype=False)


@pytest.mark.parametrize("name", PROCESSES)
def test_drawn_values_have_the_moments_of_the_law(name: str) -> None:
    process = PROCESSES[name]()
    x = process.sample(4000, seed=2)
    true = truth(process, x)
    standardised = (x[:, 1:] - true.mean) / true.variance.sqrt()
    count = standardised.numel()
    assert abs(standardised.mean().item()) < 4 / math.sqrt(count)
    assert abs(standardised.square().mean().item() - 1) < 4 * math.sqrt(2 / count)


def test_the_variance_of_the_mixture_depends_on_the_value() -> None:
    x = PROCESSES["m2"]().sample(20, seed=3)
    expected = 0.3 + 0.7 * 0.3 * (0.9 - 0.54) ** 2 * x[:, :-1].square()
    torch.testing.assert_close(truth(PROCESSES["m2"](), x).variance, expected)


@pytest.mark.parametrize(
    ("name", "floor"), [("m1", -25.70), ("m2", -20.46), ("m3", -25.75), ("m4", -27.18), ("m5", -27.12)]
)
def test_floors_agree_with_the_sheet(name: str, floor: float) -> None:
    process = PROCESSES[name]()
    log_likelihood = truth(process, process.sample(4000, seed=4)).log_prob.sum(1)
    # the sheet's floors have a standard error of 0.4 over 80 sequences
    assert abs(log_likelihood.mean().item() - floor) < 2.5 * 0.41


def test_splits_are_decided_by_the_seed_and_do_not_touch_the_generator() -> None:
    state = torch.get_rng_state()
    train, validation, test = load_toy(PROCESSES["m1"](), seed=0)
    assert [len(part) for part in (train, validation, test)] == [800, 80, 80]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(load_toy(PROCESSES["m1"](), seed=0)[2], test)
    assert not torch.equal(load_toy(PROCESSES["m1"](), seed=1)[2], test)


def test_the_constants_of_m5_are_its_own() -> None:
    x = M5(waves=3, window=2).sample(40, seed=1)
    true = truth(M5(waves=3, window=2), x)
    t = 7
    terms = [0.5 * torch.cos(4 * math.pi * j / 3 * x[:, t - i]) for i in range(2) for j in range(3)]
    torch.testing.assert_close(true.mean[:, t], torch.stack(terms).sum(0))
    assert true.mean[:, 0].eq(0).all()
    assert true.variance[:, 1].lt(0.51).all(), "two values start it"
    constant = truth(M5(waves=1, window=3), x)
    assert constant.mean[:, 5].eq(1.5).all(), "one wave has frequency 0"


def test_the_variance_given_the_last_value_of_a_linear_process() -> None:
    """M4 is Gaussian: the variance given X_t alone is that of the regression on X_t, from the covariance of the recursion."""
    rows = list(torch.eye(STEPS + 1, dtype=torch.float64)[:5])  # each value as a sum of independent noises
    for time in range(5, STEPS + 1):
        row = 0.16 * torch.stack(rows[-5:]).sum(0) + rows[0] / 5
        row[time] = math.sqrt(0.5)
        rows.append(row)
    covariance = torch.stack(rows) @ torch.stack(rows).T
    expected = [covariance[t, t] - covariance[t, t - 1] ** 2 / covariance[t - 1, t - 1] for t in range(1, STEPS + 1)]
    process = PROCESSES["m4"]()
    found = variance_given_last(process, process.sample(80, seed=0))
    torch.testing.assert_close(found.mean(0), torch.stack(expected), rtol=0.03, atol=0)
    assert found[:, -1].mean() > 1.2 * truth(process, process.sample(80, seed=0)).variance[:, -1].mean()


@pytest.mark.parametrize("name", ["m1", "m2", "m3"])
def test_of_a_process_of_order_1_the_last_value_says_all(name: str) -> None:
    process = PROCESSES[name]()
    x = process.sample(30, seed=5)
    assert torch.equal(variance_given_last(process, x), truth(process, x).variance)
