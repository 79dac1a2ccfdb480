"""The toy processes: drawn values follow the printed recursions, and the floors are the sheet's."""

from __future__ import annotations

import math

import pytest
import torch

from bayesattn.experiments.data.toy import PROCESSES, STEPS, load_toy, truth


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
    train, validation, test = load_toy("m1", seed=0)
    assert [len(part) for part in (train, validation, test)] == [800, 80, 80]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(load_toy("m1", seed=0)[2], test)
    assert not torch.equal(load_toy("m1", seed=1)[2], test)
