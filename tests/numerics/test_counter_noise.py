"""The noise itself: the published generator, the right laws, independence along every index."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from bayesattn.numerics.counter_noise import DROPOUT, WEIGHTS, CounterNoise, draw_seed, philox

GENERATORS = ("philox", "hash")


def noise(seed: int, generator: str = "philox") -> CounterNoise:
    return CounterNoise(torch.tensor([seed]), generator)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_the_published_answers(word: int, expected: tuple[int, ...]) -> None:
    x = torch.tensor([word])
    assert tuple(int(w) for w in philox(x, x, x, x, x, x)) == expected


@pytest.mark.parametrize("generator", GENERATORS)
def test_draws_follow_their_laws(generator: str) -> None:
    like = torch.empty(2, 4, 50, 500, dtype=torch.float64)
    exponential = noise(1, generator).log_exponential(like).exp().flatten().numpy()
    normal = noise(2, generator).normal(like).flatten().numpy()
    assert stats.kstest(exponential, "expon").pvalue > 1e-3
    assert stats.kstest(normal, "norm").pvalue > 1e-3


@pytest.mark.parametrize("generator", GENERATORS)
def test_neighbours_are_independent(generator: str) -> None:
    like = torch.empty(8, 8, 64, 256, dtype=torch.float64)
    draws = noise(3, generator).normal(like)
    bound = 4.5 / math.sqrt(like.numel())
    for dimension in range(4):
        size = like.shape[dimension] - 1
        for values in (draws, draws.square() - 1):
            one, other = values.narrow(dimension, 0, size), values.narrow(dimension, 1, size)
            assert abs(float((one * other).mean())) < 2 * bound, f"dimension {dimension}"
    for step in (16, 32, 48, 64):  # keys that share a Philox call, or a place in it
        assert abs(float((draws[..., step:] * draws[..., :-step]).mean())) < 2 * bound
    for other in (noise(4, generator), noise(3 + (1 << 32), generator), noise(-3, generator)):
        assert abs(float((draws * other.normal(like)).mean())) < bound
    streams = [noise(3, generator).bits(like, stream).double() / 2**23 - 0.5 for stream in (WEIGHTS, DROPOUT)]
    assert abs(float((streams[0] * streams[1]).mean()) * 12) < bound


@pytest.mark.parametrize("generator", GENERATORS)
def test_no_two_rows_are_alike(generator: str) -> None:
    bits = noise(5, generator).bits(torch.empty(4, 8, 128, 64)).flatten(3).flatten(0, 2)
    assert len({tuple(row.tolist()) for row in bits}) == len(bits)


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_part_is_a_part_of_the_whole(generator: str) -> None:
    whole = noise(6, generator).log_exponential(torch.empty(3, 2, 10, 70))
    part = CounterNoise(torch.tensor([6]), generator, first_query=4, first_example=1)  # pyright: ignore[reportArgumentType]
    assert torch.equal(part.log_exponential(torch.empty(2, 2, 6, 30)), whole[1:, :, 4:, :30])


def test_dropout_keeps_the_right_share() -> None:
    kept = noise(7).kept(torch.empty(4, 4, 100, 100), 0.3)
    assert stats.binomtest(int(kept.sum()), kept.numel(), 0.7).pvalue > 1e-3


def test_torchs_seed_decides() -> None:
    seeds = []
    for _ in range(2):
        torch.manual_seed(8)
        seeds.append((int(draw_seed()), int(draw_seed())))
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]
    assert int(draw_seed(torch.Generator().manual_seed(8))) == seeds[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("generator", GENERATORS)
def test_chi_square_of_a_hundred_million_draws(generator: str) -> None:
    """Cells of the value, of neighbouring pairs of values (high bits), and of the low bits."""
    single, pairs, low = torch.zeros(1 << 12), torch.zeros(1 << 14), torch.zeros(1 << 10)
    single, pairs, low = single.double(), pairs.double(), low.double()
    count = 0
    for call in range(50):
        bits = noise(1000 + call, generator).bits(torch.empty(2, 8, 128, 1024)).flatten(3)
        count += bits.numel()
        single += torch.bincount((bits >> 11).flatten(), minlength=len(single))
        low += torch.bincount((bits & 1023).flatten(), minlength=len(low))
        high = bits >> 16
        pairs += torch.bincount((high[..., 0::2] * 128 + high[..., 1::2]).flatten(), minlength=len(pairs))
    assert count > 1e8
    for cells in (single, pairs, low):
        assert 1e-4 < stats.chisquare(cells.numpy()).pvalue < 1 - 1e-4
