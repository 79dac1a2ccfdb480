"""Last-layer Laplace: where its curvature is exact it is the full one, and its draws have the covariance of the logits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.weight_space.laplace_head import KroneckerPosterior


def _classifier(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3, bias=bias)).eval()
    with torch.no_grad():
        model[2].weight.zero_()  # all examples have the same probabilities: the Kronecker product is exact
        if bias:
            model[2].bias.copy_(torch.tensor([0.5, -1.0, 0.2]))
    return model


@pytest.mark.parametrize("bias", [True, False])
def test_draws_have_the_covariance_of_full_laplace(bias: bool) -> None:
    x, y = torch.randn(40, 3), torch.randint(3, (40,))
    exact, head = _classifier(bias), _classifier(bias)
    ba.weight_space.laplace(exact, x, where="last", structure="full", prior_precision=0.7)
    ba.weight_space.laplace_head(head, (x, y), prior_precision=0.7)
    posterior = exact.laplace_posterior
    some = torch.randn(2, 3)
    hidden = exact[:2](some)
    covariance = posterior.covariance()
    jacobians = [
        torch.cat([torch.kron(torch.eye(3), row), *([torch.eye(3)] if bias else [])], 1) for row in hidden.detach()
    ]
    wanted = torch.stack([each @ covariance.to(each) @ each.T for each in jacobians])
    drawn = ba.predict(head, some, samples=40_000, max_rows=80_000, generator=torch.Generator().manual_seed(0)).samples
    found = torch.stack([torch.cov(drawn[:, row].T) for row in range(2)])
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.02)
    torch.testing.assert_close(head[2].variance(hidden), wanted.diagonal(dim1=1, dim2=2).mean(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head(some), exact(some))  # the point estimate stays


def test_the_prior_precision_is_that_of_highest_marginal_likelihood() -> None:
    x, y = torch.randn(200, 3), torch.randint(3, (200,))
    model = _classifier()
    nn.init.normal_(model[2].weight)
    ba.weight_space.laplace_head(model, (x, y))
    head = model[2]
    eigenvalues = torch.outer(head.output_values, head.input_values).flatten().double()
    size = (head.weight.square().sum() + head.bias.square().sum()).double().detach()

    def evidence(precision: float) -> float:
        return float(-0.5 * (torch.log1p(eigenvalues / precision).sum() + precision * size))

    best = head.prior_precision.item()
    assert evidence(best) > max(evidence(1.1 * best), evidence(best / 1.1))


def test_a_draw_of_the_weights_has_the_covariance() -> None:
    a, g = torch.randn(50, 3).double(), torch.randn(50, 2).double()
    posterior = KroneckerPosterior(a.T @ a, g.T @ g / 50)
    wanted = torch.linalg.inv(torch.kron(g.T @ g / 50, a.T @ a) + torch.eye(6))
    torch.testing.assert_close(posterior.covariance(), wanted)
    drawn = torch.stack([posterior.deviation() for _ in range(5_000)])
    torch.testing.assert_close(torch.cov(drawn.T), wanted, rtol=0.15, atol=0.03)


def test_samples_cost_one_pass_of_the_trunk_and_are_saved() -> None:
    x, y = torch.randn(30, 3), torch.randint(3, (30,))
    model = _classifier()
    ba.weight_space.laplace_head(model, (x, y))
    runs = []
    model[0].register_forward_hook(lambda module, inputs, output: runs.append(len(inputs[0])))
    first = ba.predict(model, x, samples=16, generator=torch.Generator().manual_seed(1))
    assert sum(runs) == 30
    other = ba.weight_space.laplace_head(_classifier(), (torch.randn(20, 3), torch.zeros(20).long()))
    other.load_state_dict(model.state_dict())
    again = ba.predict(other, x, samples=16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(first.samples, again.samples)


def test_before_it_is_fitted_it_is_a_linear_layer() -> None:
    model, plain = _classifier(), _classifier()
    model[2] = ba.weight_space.LaplaceHead(model[2]).eval()
    nn.init.normal_(plain[2].weight)
    model.load_state_dict(plain.state_dict())
    x = torch.randn(5, 3)
    torch.testing.assert_close(ba.predict(model, x, samples=1).samples[0], plain(x).detach())
    ba.weight_space.laplace_head(model, (x, torch.zeros(5).long()))
    assert ba.predict(model, x, samples=4).variance.min() > 0


def test_refused() -> None:
    x, y = torch.randn(30, 3), torch.randint(3, (30,))
    model = ba.weight_space.laplace_head(_classifier(), (x, y))
    with pytest.raises(ValueError, match="'2' has a Laplace approximation already"):
        ba.weight_space.laplace_head(model, (x, y))
    with pytest.raises(ValueError, match=r"where='0' is '0' with 4 outputs, and the model gives 3 logits"):
        ba.weight_space.laplace_head(_classifier(), (x, y), "0")
    with pytest.raises(ValueError, match="prior_precision"):
        ba.weight_space.laplace_head(_classifier(), (x, y), prior_precision=-1.0)
