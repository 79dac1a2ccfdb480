"""`check_posterior`: passes what is right, and names what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.numerics.draws import log_gamma_rsample
from bayesattn.posteriors import Posterior, register
from bayesattn.posteriors.rows import Rows
from bayesattn.support.configurable import Configurable
from bayesattn.testing import Fault, check_posterior


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    before = dict(Configurable.registry)
    yield
    Configurable.registry.clear()
    Configurable.registry.update(before)


def gamma(**replaced: object) -> type[Posterior]:
    """Gamma weights with a learned concentration for each head; methods of it replaced."""

    class GammaWeights(Posterior):
        def __init__(self, initial: float = 5.0):
            super().__init__()
            self.initial = initial
            self.log_concentration: Tensor | None = None

        def _make_parameters(self, num_heads: int, head_dim: int) -> None:
            self.log_concentration = nn.Parameter(torch.full((num_heads,), self.initial).log())

        @property
        def needs_binding(self) -> bool:
            return self.log_concentration is None

        def log_sample(self, scores: Tensor, rows: Rows, generator=None) -> Tensor:
            log_c = rows.heads_to_pairs(self.log_concentration).to(scores.dtype).expand_as(scores)
            return scores + log_gamma_rsample(log_c, generator) - log_c

        def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
            ratio = rows.log_softmax(scores) + rows.to_pairs(rows.sizes(scores).log())
            c = rows.heads_to_pairs(self.log_concentration).exp()
            return rows.total_of_pairs(c * (ratio.exp() - 1.0 - ratio))

    for name, method in replaced.items():
        setattr(GammaWeights, name, method)
    return register(GammaWeights)


def log_ratio(log_s: Tensor, scores: Tensor) -> Tensor:
    """Of S up to the row's sum of exp(scores), which both have."""
    log_s = log_s - scores.logsumexp(-1, keepdim=True)
    means = scores.softmax(-1)
    drawn = log_s.exp()
    q, p = torch.distributions.Gamma(5.0, 5.0 / means), torch.distributions.Gamma(5.0, torch.tensor(15.0))
    return (q.log_prob(drawn) - p.log_prob(drawn)).sum((-1, -2, -3))


def test_what_is_right_passes_and_says_what_was_checked() -> None:
    checked = check_posterior(gamma(), log_ratio=log_ratio)
    assert len(checked) == 10
    assert "The KL is the mean of log q(S) - log p(S) over draws." in checked


@pytest.mark.parametrize(
    "posterior",
    [
        ba.Softmax(),
        ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5)),
        ba.LogNormal(sigma=0.5),
        ba.Gaussian(data_dependent=True),
        ba.Dirichlet(),
    ],
    ids=lambda posterior: type(posterior).__name__,
)
def test_the_librarys_own_pass(posterior: Posterior) -> None:
    assert len(check_posterior(posterior, draws=5000)) == 9


def without_generator(self, scores, rows, generator=None):
    return scores + torch.randn_like(scores)


def one_noise_for_all(self, scores, rows, generator=None):
    return scores + torch.randn(scores.shape[-1], dtype=scores.dtype, generator=generator)


def past_the_mask(self, scores, rows, generator=None):
    noise = torch.randn(scores.shape, dtype=scores.dtype, generator=generator)
    return scores * scores.sum(-1, keepdim=True) + noise


def hidden_from_the_gradient(self, scores, rows, generator=None):
    noise = torch.randn(scores.shape, dtype=scores.dtype, generator=generator)
    return scores + noise * 3.0 * scores.detach().exp()


def detached(self, scores, rows, generator=None):
    return (scores + torch.randn(scores.shape, dtype=scores.dtype, generator=generator)).detach()


def one_number(self, scores, keys, rows):
    return scores.square().sum()


def counts_all(self, scores, keys, rows):
    return scores.square().flatten(1).sum(1)


def half(self, scores, keys, rows):
    ratio = rows.log_softmax(scores) + rows.to_pairs(rows.sizes(scores).log())
    c = rows.heads_to_pairs(self.log_concentration).exp()
    return rows.total_of_pairs(0.5 * c * (ratio.exp() - 1.0 - ratio))


def overflows(self, scores, keys, rows):
    return rows.total_of_pairs((scores * scores).exp())


def wrong_gradient(self, scores, keys, rows):
    return rows.total_of_pairs(scores.square() * scores.detach().square() + self.log_concentration.sum() ** 2)


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"log_sample": without_generator}, "does not draw from the generator"),
        ({"log_sample": one_noise_for_all}, "gives equal rows equal draws"),
        ({"log_sample": past_the_mask}, "lets keys that a mask blocks change the weights"),
        ({"log_sample": hidden_from_the_gradient}, "something random in it hides from the gradient"),
        ({"log_sample": detached}, "not differentiable in the scores"),
        ({"kl": one_number}, r"kl returned shape \(\), not \[batch\] = \(2,\)"),
        ({"kl": counts_all}, "kl counts padded queries"),
        ({"kl": half}, "the mean of log q - log p over"),
        ({"kl": overflows}, "at scores of ±50"),
        ({"kl": wrong_gradient}, "The gradient of the KL is its difference"),
        ({"needs_binding": property(lambda self: False)}, "needs_binding must be True for the template"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_is_named(replaced: dict[str, object], words: str) -> None:
    with pytest.raises(Fault, match=words) as fault:
        check_posterior(gamma(**replaced), log_ratio=log_ratio)
    assert str(fault.value).startswith("GammaWeights breaks the contract of ba.Posterior:\n- ")


def test_what_is_not_registered_or_kept_is_named() -> None:
    class Unregistered(ba.Softmax):
        pass

    with pytest.raises(Fault, match=r"write @register of bayesattn\.posteriors above the class"):
        check_posterior(Unregistered)

    class Forgetful(ba.Softmax):
        def __init__(self, temperature: float = 1.0):
            super().__init__()

    with pytest.raises(Fault, match=r"each argument must be kept under its own name.*temperature"):
        check_posterior(Forgetful)
    with pytest.raises(TypeError, match=r"must be a subclass of ba\.Posterior"):
        check_posterior(nn.Linear(2, 2))  # pyright: ignore


def test_parameters_of_the_constructor_and_unused_ones_are_named() -> None:
    @register
    class Early(ba.Softmax):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

    with pytest.raises(Fault, match=r"__init__ makes the parameters \['weight'\]") as fault:
        check_posterior(Early)
    assert "neither log_sample nor kl uses the parameters ['weight']" in str(fault.value)


def test_draws_may_depend_on_the_keys() -> None:
    @register
    class FromKeys(ba.Softmax):
        def log_sample(self, scores, rows, generator=None, keys=None):
            noise = torch.randn(scores.shape, dtype=scores.dtype, device=scores.device, generator=generator)
            return scores + rows.keys_to_pairs(keys.square().mean(-1)) * noise

    check_posterior(FromKeys)
    query = torch.randn(2, 3, 4, 8)
    key = torch.randn(2, 3, 5, 8)
    key[:, :, 2:] = 0.0  # no noise there
    with ba.sampling():
        _, weights = ba.attend(query, key, key, FromKeys(), need_weights=True)
    scores = query @ key.transpose(-2, -1) / 8**0.5
    log_weights = weights.log() - scores
    torch.testing.assert_close(log_weights[..., 2], log_weights[..., 3])
    assert (log_weights[..., 0] - log_weights[..., 2]).abs().max() > 0.1
