"""The autoencoder with each bottleneck: likelihood, decoding, KL, what is kept, priors, interpolation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

import bayesattn as ba
from bayesattn.experiments.models.autoencoders.base import Autoencoder, Bottleneck, Vectors
from bayesattn.experiments.models.autoencoders.gaussian_pool import GaussianPool
from bayesattn.experiments.models.autoencoders.gaussian_stride import GaussianStride
from bayesattn.experiments.models.autoencoders.gaussian_vectors import GaussianVectors
from bayesattn.experiments.models.autoencoders.no_bottleneck import NoBottleneck
from bayesattn.experiments.models.autoencoders.nonparametric import NonparametricBottleneck
from bayesattn.nvib import Mixture
from helpers.monte_carlo import assert_is_mean

TOKENS = torch.tensor([[5, 6, 7, 8, 9, 3], [9, 8, 3, 0, 0, 0]])
DIM = 16
BOTTLENECKS = {
    "t": NoBottleneck,
    "vt": lambda: GaussianVectors(DIM),
    "vtp-mean": lambda: GaussianPool(DIM, "mean"),
    "vtp-max": lambda: GaussianPool(DIM, "max"),
    "vts": lambda: GaussianStride(DIM, 0.5),
    "nvae": lambda: NonparametricBottleneck(DIM),
}
every_bottleneck = pytest.mark.parametrize("name", BOTTLENECKS)


def model_with(bottleneck: Bottleneck) -> Autoencoder:
    return Autoencoder(12, 8, bottleneck, dim=DIM, feedforward=32).eval()


@every_bottleneck
def test_the_likelihood_is_that_of_the_steps_one_by_one(name: str) -> None:
    """No token sees itself or what follows, and padding counts nothing."""
    model = model_with(BOTTLENECKS[name]())
    nll = model(TOKENS)
    for text, length in ((0, 6), (1, 3)):
        memory = model.encode(TOKENS[text : text + 1, :length])
        for place in range(length):
            before = torch.cat([torch.tensor([2]), TOKENS[text, :place]])[None]
            log_prob = F.log_softmax(model.output(model.decode(memory, before)[0, -1]), -1)
            assert nll[text, place].item() == pytest.approx(-log_prob[TOKENS[text, place]].item(), abs=1e-4)
    assert (nll[1, 3:] == 0).all()


@every_bottleneck
def test_it_writes_the_most_probable_token_each_time_and_stops_at_the_end(name: str) -> None:
    model = model_with(BOTTLENECKS[name]())
    memory = model.encode(TOKENS)
    written = model.write(memory)
    assert written.shape[1] <= 8
    before = F.pad(written[:, :-1], (1, 0), value=2)
    with torch.no_grad():
        logits = model.output(model.decode(memory, before))
    logits[..., [0, 2]] = -math.inf
    for row, scores in zip(written, logits, strict=True):
        length = int((row != 0).sum())
        assert torch.equal(row[:length], scores.argmax(-1)[:length])
        assert (row[:-1] == 3).sum() == 0 or (row[row.tolist().index(3) + 1 :] == 0).all()
    with torch.no_grad():
        model.output.bias[3] = 1e3
    assert model.write(memory).tolist() == [[3], [3]]


@every_bottleneck
def test_it_learns_to_write_texts_again(name: str) -> None:
    torch.manual_seed(1)
    model = model_with(BOTTLENECKS[name]()).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        with ba.record() as latents:
            nll = model(TOKENS)
        loss = ba.elbo(nll.sum(1), latents if len(latents) else None)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.nll.item())
    assert sum(losses[-5:]) < 0.25 * sum(losses[:5])
    model.eval()
    if name in ("t", "vt"):
        written = model.write(model.encode(TOKENS))
        assert torch.equal(written, TOKENS)


def test_the_kl_of_gaussian_vectors_is_torchs() -> None:
    bottleneck = GaussianVectors(DIM, lambda_gaussian=0.5).eval()
    x, padding = torch.randn(2, 4, DIM), torch.tensor([[False] * 4, [False, False, True, True]])
    with ba.record() as latents:
        bottleneck(x, padding)
    q = Normal(bottleneck.mean(x), (0.5 * bottleneck.log_variance(x)).exp())
    each = kl_divergence(q, Normal(torch.tensor(0.0), torch.tensor(1.0))).mean(-1)
    assert torch.allclose(latents.local_kl, 0.5 * (each * ~padding).sum(1), atol=1e-5)


def test_draws_have_their_law_and_evaluation_is_their_mean() -> None:
    bottleneck = GaussianVectors(1)
    x = torch.full((20_000, 1, 1), 0.7)
    padding = torch.zeros(20_000, 1, dtype=torch.bool)
    mean, variance = bottleneck.mean(x[0]).item(), bottleneck.log_variance(x[0]).exp().item()
    drawn = bottleneck(x, padding).values.flatten()
    assert_is_mean(drawn, mean)
    assert_is_mean((drawn - mean).square(), variance)
    bottleneck.eval()
    assert (bottleneck(x, padding).values == mean).all()
    with ba.sampling():
        assert bottleneck(x, padding).values.std() > 0.1


@pytest.mark.parametrize(
    ("dropped", "kept"),
    [
        (0.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (0.25, [0, 1, 2, 4, 5, 6, 8, 9, 10]),
        (0.5, [0, 2, 4, 6, 8, 10]),
        (0.75, [0, 4, 8]),
        (0.9, [0, 10]),
        (1.0, [0]),
    ],
)
def test_strides(dropped: float, kept: list[int]) -> None:
    there = torch.ones(2, 11, dtype=torch.bool)
    there[1, 3:] = False
    mask = GaussianStride(DIM, dropped).kept(there)
    assert mask[0].nonzero().flatten().tolist() == kept
    assert mask[1].nonzero().flatten().tolist() == [place for place in kept if place < 3]


def test_pools() -> None:
    x, padding = torch.randn(2, 4, DIM), torch.tensor([[False] * 4, [False, False, True, True]])
    for pooling, expected in (("mean", x[1, :2].mean(0)), ("max", x[1, :2].amax(0))):
        pool = GaussianPool(DIM, pooling).eval()  # pyright: ignore
        assert torch.allclose(pool(x, padding).values[1, 0], pool.mean(expected), atol=1e-6)
        assert pool.sample_prior(torch.tensor([5, 3])).mask.shape == (2, 1)


def test_prior_samples_decode_and_t_has_none() -> None:
    lengths = torch.tensor([4, 2])
    for name in ("vt", "vts", "vtp-mean", "nvae"):
        model = model_with(BOTTLENECKS[name]())
        memory = model.bottleneck.sample_prior(lengths, torch.Generator().manual_seed(0))
        again = model.bottleneck.sample_prior(lengths, torch.Generator().manual_seed(0))
        assert torch.equal(model.write(memory), model.write(again))
        assert len(model.write(memory)) == 2
    drawn = GaussianVectors(DIM).sample_prior(torch.full((2000,), 2))
    assert_is_mean(drawn.values.flatten(), 0.0)
    assert_is_mean(drawn.values.flatten().square(), 1.0)
    with pytest.raises(ValueError, match="has no prior to sample from"):
        NoBottleneck().sample_prior(lengths)


@pytest.mark.parametrize("name", ["vt", "nvae"])
def test_interpolation_ends_in_the_two_texts(name: str) -> None:
    model = model_with(BOTTLENECKS[name]())
    one, two = model.encode(TOKENS), model.encode(TOKENS.flip(0))
    before = torch.tensor([[2, 5, 6]] * 2)
    for tau, end in ((0.0, one), (1.0, two)):
        between = one.interpolate(two, tau)  # pyright: ignore
        assert torch.allclose(model.decode(between, before), model.decode(end, before), atol=1e-5)
    half = one.interpolate(two, 0.5)  # pyright: ignore
    assert not torch.allclose(model.decode(half, before), model.decode(one, before), atol=1e-3)


def test_what_is_between_vectors_and_between_mixtures() -> None:
    one = Vectors(torch.full((1, 2, 1), 4.0), torch.tensor([[True, True]]))
    two = Vectors(torch.full((1, 3, 1), 8.0), torch.tensor([[True, False, False]]))
    between = one.interpolate(two, 0.25)
    assert between.values.flatten().tolist() == [5.0, 3.0, 0.0]
    assert between.mask.tolist() == [[True, True, False]]
    gaussians = [
        Mixture(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), torch.tensor([[math.log(a), 0.0]]), torch.ones(1, 2).bool())
        for a in (3.0, 1.0)
    ]
    mixed = gaussians[0].interpolate(gaussians[1], 0.25)
    assert torch.allclose(mixed.weights, torch.tensor([[0.5625, 0.1875, 0.125, 0.125]]))
    assert gaussians[0].interpolate(gaussians[1], 0.0).kept.tolist() == [[True, True, False, False]]


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    with pytest.raises(ValueError, match="dropped must lie in"):
        GaussianStride(DIM, 1.5)
    with pytest.raises(ValueError, match="pooling='sum' is not known"):
        GaussianPool(DIM, "sum")  # pyright: ignore
    with pytest.raises(ValueError, match="A text of 9 tokens is longer than max_len=8"):
        model_with(NoBottleneck())(torch.ones(1, 9, dtype=torch.long))
