"""Laplace: exact where the posterior is known, equal to laplace-torch where that can do it."""

from __future__ import annotations

import copy
import math
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import bayesattn as ba
from bayesattn.experiments.models.tagger import Tagger
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
from bayesattn.weight_space.curvature import differentiable_attention, hessian_root, natural_outputs
from bayesattn.weight_space.laplace import LaplacePosterior, LinearisedNetwork

NOISE, PRECISION = 0.5, 1.7


class Regression(nn.Module):
    """A linear model with known noise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.linear(x).squeeze(-1)
        return mean, torch.full_like(mean, NOISE)


def regression() -> tuple[Regression, Tensor, Tensor]:
    """In float64 and at its MAP, with its data."""
    torch.manual_seed(0)
    model = Regression().double()
    x = torch.randn(30, 3, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64) + NOISE * torch.randn(30, dtype=torch.float64)
    mean = torch.linalg.solve(precision(x), x.T @ y / NOISE**2)
    with torch.no_grad():
        model.linear.weight.copy_(mean)
    return model.eval(), x, y


def precision(x: Tensor, prior: float = PRECISION) -> Tensor:
    return x.T @ x / NOISE**2 + prior * torch.eye(3, dtype=x.dtype)


def posterior_of(model: nn.Module) -> LaplacePosterior:
    assert isinstance(model, LinearisedNetwork)
    return model.laplace_posterior


def tagger() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    return Tagger(9, 3, 4, dim=4, feedforward=4).eval(), torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 1]])


def test_the_posterior_of_bayesian_linear_regression_is_exact() -> None:
    model, x, _ = regression()
    ba.weight_space.laplace(model, x, "gaussian", structure="full", prior_precision=PRECISION)
    torch.testing.assert_close(posterior_of(model).covariance(), torch.linalg.inv(precision(x)), rtol=1e-5, atol=1e-9)


def test_the_predictive_of_bayesian_linear_regression_is_exact() -> None:
    model, x, _ = regression()
    mean = model(x)[0].detach()
    ba.weight_space.laplace(model, x, "gaussian", structure="full", prior_precision=PRECISION)
    prediction = ba.predict(
        model, x, samples=8, likelihood="gaussian", generator=torch.Generator().manual_seed(5), max_rows=7
    )
    with ba.sampling(torch.Generator().manual_seed(5)):  # deviations of the covariance that the test above finds exact
        deviations = torch.stack([posterior_of(model).deviation() for _ in range(8)])
    torch.testing.assert_close(prediction.samples, mean + deviations @ x.T)
    torch.testing.assert_close(prediction.scales, torch.full_like(prediction.scales, NOISE))


def test_the_diagonal_is_that_of_the_full_matrix() -> None:
    model, x, _ = regression()
    diagonal = ba.weight_space.laplace(copy.deepcopy(model), x, "gaussian", prior_precision=PRECISION)
    torch.testing.assert_close(posterior_of(diagonal).covariance(), torch.diag(1 / precision(x).diagonal()))


def test_the_marginal_likelihood_has_the_shape_of_the_exact_evidence() -> None:
    """At the MAP of each prior precision they would be equal; here, at a fixed θ, it is the Laplace formula at that θ."""
    model, x, _ = regression()
    weights = model.linear.weight[0].detach()
    ba.weight_space.laplace(model, x, "gaussian", structure="full")
    for prior in (0.1, 3.0, 50.0):
        found = posterior_of(model).log_marginal_likelihood(weights, prior)
        exact = 0.5 * (3 * math.log(prior) - prior * weights @ weights - torch.logdet(precision(x, prior)))
        torch.testing.assert_close(found, exact)
    best = posterior_of(model).prior_precision
    values = [posterior_of(model).log_marginal_likelihood(weights, best * factor) for factor in (0.97, 1.0, 1.03)]
    assert values[1] > values[0]
    assert values[1] > values[2]


def test_the_laplace_evidence_at_the_map_is_the_exact_evidence() -> None:
    """log N(y; 0, σ² I + X X^T / δ), since the model is linear."""
    model, x, y = regression()
    ba.weight_space.laplace(model, x, "gaussian", structure="full", prior_precision=PRECISION)
    weights = model.linear.weight[0].detach()
    likelihood = torch.distributions.Normal(x @ weights, NOISE).log_prob(y).sum()
    found = likelihood + posterior_of(model).log_marginal_likelihood(weights, PRECISION)
    covariance = NOISE**2 * torch.eye(30, dtype=torch.float64) + x @ x.T / PRECISION
    exact = MultivariateNormal(torch.zeros(30, dtype=torch.float64), covariance).log_prob(y)
    torch.testing.assert_close(found, exact)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_categorical_last_layer_is_laplace_torchs() -> None:
    laplace_torch = pytest.importorskip("laplace")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)).eval()
    x, y = torch.randn(40, 3), torch.randint(0, 4, (40,))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10)
    oracle = laplace_torch.Laplace(
        copy.deepcopy(model),
        "classification",
        subset_of_weights="last_layer",
        hessian_structure="full",
        prior_precision=2.0,
    )
    oracle.fit(data)
    ours = ba.weight_space.laplace(model, x, "categorical", where="last", structure="full", prior_precision=2.0)
    covariance = posterior_of(ours).covariance()
    torch.testing.assert_close(covariance, oracle.posterior_covariance, rtol=1e-4, atol=1e-4)
    new = torch.randn(5, 3)
    _, variance = oracle._glm_predictive_distribution(new)
    features = model[1](model[0](new)).detach()
    jacobian = torch.stack([torch.kron(torch.eye(4), torch.cat([f])) for f in features])
    jacobian = torch.cat([jacobian, torch.eye(4).expand(5, 4, 4)], -1)  # weight, then bias
    torch.testing.assert_close(jacobian @ covariance @ jacobian.mT, variance, rtol=1e-4, atol=1e-4)
    weights = torch.cat([model[2].weight.flatten(), model[2].bias]).detach()
    change = oracle.log_marginal_likelihood(torch.tensor(5.0)) - oracle.log_marginal_likelihood(torch.tensor(0.5))
    evidence = [posterior_of(ours).log_marginal_likelihood(weights, value) for value in (5.0, 0.5)]
    assert (evidence[0] - evidence[1]).item() == pytest.approx(change.item(), abs=1e-3)


def test_the_curvature_of_logits_is_the_hessian_and_of_gaussians_the_fisher_information() -> None:
    logits = torch.randn(4, dtype=torch.float64)
    hessian = torch.func.hessian(lambda z: -z.log_softmax(-1)[2])(logits)
    root = hessian_root(logits, "categorical")
    torch.testing.assert_close(root @ root.T, hessian)
    natural = torch.tensor([0.3, math.log(0.7)], dtype=torch.float64)
    y = 0.3 + 0.7 * torch.randn(200_000, dtype=torch.float64)
    score = torch.stack([(y - 0.3) / 0.49, ((y - 0.3) / 0.7).square() - 1.0])  # of (mean, log σ)
    root = hessian_root(natural, "gaussian")
    torch.testing.assert_close(root @ root.T, score @ score.T / 200_000, rtol=0.02, atol=0.02)


def gauss_newton(model: nn.Module, x: Tensor, likelihood: str, mask: Tensor | None = None) -> Tensor:
    """Σ J^T Λ J by way of one big Jacobian."""
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def outputs(values: dict[str, Tensor]) -> Tensor:
        return natural_outputs(torch.func.functional_call(model, values, (x,)), likelihood)  # pyright: ignore[reportArgumentType]

    with differentiable_attention():
        natural = outputs(parameters)
        jacobian = torch.func.jacrev(outputs)(parameters)
    flat = torch.cat([part.flatten(natural.dim()) for part in jacobian.values()], -1)
    root = hessian_root(natural, likelihood)  # pyright: ignore[reportArgumentType]
    if mask is not None:
        root = root * mask[..., None, None]
    rows = torch.einsum("...ok,...op->...kp", root, flat).flatten(0, -2)
    return rows.T @ rows


@pytest.mark.parametrize("masked", [False, True])
def test_sequences_of_classes(masked: bool) -> None:
    model, tokens = tagger()
    mask = (tokens != 0).float() if masked else None
    # the parameters as vectors are in the order of the modules, ours root first
    made = ba.weight_space.laplace(
        copy.deepcopy(model), tokens, where=lambda name, _: name == "head", structure="full", mask=mask
    )
    expected = gauss_newton(model, tokens, "categorical", mask)[-15:, -15:]
    found = torch.linalg.inv(posterior_of(made).covariance())
    found = found - posterior_of(made).prior_precision * torch.eye(15)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_sequences_of_gaussians_through_the_whole_network() -> None:
    torch.manual_seed(0)
    model = TimeSeriesTransformer(4, 4, feedforward=4).eval()
    x = torch.randn(5, 4)
    expected = gauss_newton(model, x, "gaussian").diagonal()
    made = ba.weight_space.laplace(copy.deepcopy(model), x, "gaussian", prior_precision=1.0)
    assert isinstance(made, LinearisedNetwork)
    parts = made.laplace_parameters.parts(posterior_of(made).eigenvalues())
    ours = torch.cat([parts[name].flatten() for name, _ in model.named_parameters()])
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


def test_random_rows_are_unbiased() -> None:
    torch.manual_seed(0)
    model = TimeSeriesTransformer(4, 4, feedforward=4).eval()
    x = torch.randn(5, 4)
    exact = ba.weight_space.laplace(
        copy.deepcopy(model), x, "gaussian", where="head", structure="full", prior_precision=1.0
    )
    many = ba.weight_space.laplace(
        copy.deepcopy(model), x, "gaussian", where="head", structure="full", prior_precision=1.0, samples=4000
    )
    inverses = [torch.linalg.inv(posterior_of(made).covariance()) for made in (exact, many)]
    assert (inverses[0] - inverses[1]).norm() < 0.03 * inverses[0].norm()


def test_few_rows_give_the_same_posterior_as_the_matrix_they_make() -> None:
    """By way of the rows' own products: prior where no row points."""
    model, x, _ = regression()
    two = ba.weight_space.laplace(
        copy.deepcopy(model), x[:2], "gaussian", structure="full", prior_precision=0.7, samples=1
    )
    assert len(posterior_of(two).eigenvalues()) == 2
    torch.testing.assert_close(
        posterior_of(two).covariance(), torch.linalg.inv(precision(x[:2], 0.7)), rtol=1e-5, atol=1e-8
    )
    draws = torch.stack([posterior_of(two).deviation() for _ in range(5_000)])
    torch.testing.assert_close(draws.T.cov(), posterior_of(two).covariance(), rtol=0.05, atol=0.1)


def test_samples_are_of_the_linearised_network() -> None:
    """f + J (θ - θ*), with J by finite differences; the logarithm of the standard deviation is what is linear."""
    torch.manual_seed(0)
    model = TimeSeriesTransformer(4, 4, feedforward=4).double().eval()
    x = torch.randn(3, 4, dtype=torch.float64)
    plain = copy.deepcopy(model)
    ba.weight_space.laplace(model, x, "gaussian", prior_precision=10.0)
    assert isinstance(model, LinearisedNetwork)
    with torch.no_grad(), ba.sampling(), ba.scopes.modes.one_draw():
        mean, scale = model(x)
        deviation = ba.scopes.modes.kept_draw(posterior_of(model), posterior_of(model).deviation)
    point = natural_outputs(plain(x), "gaussian")
    step = 1e-6
    moved = {
        name: value + step * model.laplace_parameters.parts(deviation)[name] for name, value in plain.named_parameters()
    }
    change = (natural_outputs(torch.func.functional_call(plain, moved, (x,)), "gaussian") - point) / step
    torch.testing.assert_close(mean, (point + change)[..., 0].detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scale.log(), (point + change)[..., 1].detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x)[0], plain(x)[0])  # without sampling it is what it was


def test_the_validated_precision_predicts_best() -> None:
    model, x, y = regression()
    with torch.no_grad():
        model.linear.weight.copy_(torch.tensor([[1.0, -0.5, 0.3]]))
    ba.weight_space.laplace(
        model, x[:4], "gaussian", structure="full", prior_precision="validation", validation=(x[4:], y[4:])
    )
    assert posterior_of(model).prior_precision >= 1.0  # the weights are right: doubt only hurts
    with torch.no_grad():
        model.linear.weight.zero_()
    wrong = ba.weight_space.laplace(
        copy.deepcopy(regression()[0]), x[:1], "gaussian", prior_precision="validation", validation=(x, y + 3 * x[:, 0])
    )
    assert posterior_of(wrong).prior_precision < 1.0  # they are wrong: doubt helps


def test_the_state_dict_is_the_models_own() -> None:
    model, x, _ = regression()
    keys = set(model.state_dict())
    assert set(ba.weight_space.laplace(model, x, "gaussian").state_dict()) == keys


def test_what_cannot_be_done_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, _ = regression()
    with pytest.raises(ValueError, match=r"call model.eval\(\) first"):
        ba.weight_space.laplace(nn.Linear(2, 2), torch.randn(3, 2))
    with pytest.raises(ValueError, match="need each other"):
        ba.weight_space.laplace(model, x, "gaussian", prior_precision="validation")
    with pytest.raises(TypeError, match=r"needs a model that returns \(mean, standard deviation\), got Tensor"):
        ba.weight_space.laplace(nn.Linear(3, 2).eval(), torch.randn(3, 3), "gaussian")
    monkeypatch.setattr(sys.modules["bayesattn.weight_space.laplace"], "LARGEST_FULL", 2)
    with pytest.raises(ValueError, match=r"a matrix of 3 x 3: choose fewer layers .* samples= below 0.1"):
        ba.weight_space.laplace(model, x, "gaussian", structure="full")
    ba.weight_space.laplace(model, x, "gaussian")
    with pytest.raises(ValueError, match="has a Laplace approximation already"):
        ba.weight_space.laplace(model, x, "gaussian")


class Pooled(nn.Module):
    """Classes of sequences, by attention of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=ba.Softmax())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


def test_large_attention_is_fitted_and_a_prediction_does_not_depend_on_the_batch() -> None:
    """Large attention runs on a kernel, which has no forward derivatives: those once were zero, and fitting failed."""
    torch.manual_seed(0)
    model, plain = Pooled().eval(), Pooled().eval()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 100, 8)  # one example has 20,000 pairs; two short ones have 14,400, and four 28,800
    ba.weight_space.laplace(model, x, "categorical")
    with ba.kernels.use(backend="reference"):
        ba.weight_space.laplace(plain, x, "categorical")
    torch.testing.assert_close(posterior_of(model).eigenvalues(), posterior_of(plain).eigenvalues())
    few, many = (
        ba.predict(model, x[:size, :60], samples=8, generator=torch.Generator().manual_seed(1)) for size in (2, 4)
    )
    torch.testing.assert_close(few.samples, many.samples[:, :2], rtol=1e-4, atol=1e-5)
    assert few.samples.std(0).min() > 1e-3
