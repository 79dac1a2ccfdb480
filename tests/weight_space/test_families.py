"""The five families: their draws, densities and entropies are scipy's."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesattn.weight_space.families import FAMILIES, family_by_name, log1p_square

DF = torch.tensor(5.0, dtype=torch.float64)
REFERENCES = {
    "gaussian": stats.norm(),
    "laplace": stats.laplace(),
    "logistic": stats.logistic(),
    "cauchy": stats.cauchy(),
    "student": stats.t(5.0),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_pass_kolmogorov_smirnov(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    draws = FAMILIES[name].noise(torch.empty(100_000, dtype=dtype), DF.to(dtype), generator)
    assert draws.dtype == dtype
    assert stats.kstest(draws.double().numpy(), REFERENCES[name].cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_densities_and_entropies_are_scipys(name: str) -> None:
    z = torch.linspace(-30, 30, 121, dtype=torch.float64)
    expected = torch.from_numpy(REFERENCES[name].logpdf(z.numpy()))
    torch.testing.assert_close(FAMILIES[name].log_density(z, DF), expected)
    assert float(FAMILIES[name].entropy(DF)) == pytest.approx(float(REFERENCES[name].entropy()), rel=1e-6)


def test_the_student_draw_has_the_right_gradient_in_its_degrees_of_freedom() -> None:
    """Var = ν / (ν - 2) has the derivative -2 / (ν - 2)²; the thesis's form, ε · g, would have another sign and size."""
    df = torch.full((2_000_000,), 8.0, dtype=torch.float64, requires_grad=True)
    draws = FAMILIES["student"].noise(torch.empty_like(df), df, torch.Generator().manual_seed(0))
    draws.square().mean().backward()
    assert df.grad is not None
    assert draws.square().mean().item() == pytest.approx(8 / 6, rel=0.01)
    assert df.grad.sum().item() == pytest.approx(-2 / 36, rel=0.03)


@pytest.mark.parametrize("name", ["gaussian", "cauchy"])
def test_sums_of_a_stable_family_have_the_scale_it_says(name: str) -> None:
    family = FAMILIES[name]
    x, scales = torch.tensor([[0.5, -2.0, 1.0]]), torch.tensor([[0.3, 0.1, 0.7]])
    bias = torch.tensor([0.2])
    weights = scales * family.noise(torch.empty(100_000, 3))
    sums = (weights * x).sum(1) + bias * family.noise(torch.empty(100_000))
    scale = family.scale_of_sums(torch.nn.functional.linear, x, scales, bias).item()
    assert stats.kstest(sums.double().numpy() / scale, REFERENCES[name].cdf).pvalue > 1e-3


def test_other_families_are_not_stable() -> None:
    assert [name for name, family in FAMILIES.items() if family.is_stable] == ["gaussian", "cauchy"]
    with pytest.raises(NotImplementedError, match="Sums of laplace weights"):
        FAMILIES["laplace"].scale_of_sums(torch.nn.functional.linear, torch.ones(1, 1), torch.ones(1, 1), None)


def test_far_tails_are_finite_with_a_gradient() -> None:
    z = torch.tensor([1e30, -1e25, 0.0], requires_grad=True)
    value = log1p_square(z)
    value.sum().backward()
    assert value[0].item() == pytest.approx(2 * math.log(1e30))
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="Did you mean 'gaussian'"):
        family_by_name("gausian")
    with pytest.raises(ValueError, match="needs degrees of freedom"):
        FAMILIES["student"].log_density(torch.zeros(2))
