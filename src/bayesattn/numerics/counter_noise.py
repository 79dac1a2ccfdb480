"""Noise that is a function of a counter: the same numbers on every backend, in any order, stored nowhere.

The value at (batch, head, query, key) depends on these four indices and a 64-bit seed alone. Two generators:

    "philox"   Philox4x32-10 (Salmon et al. 2011), the default;
    "hash"     Philox once for each row, then a 32-bit multiply-xorshift hash of the key with two of its words: much cheaper
               where integers are slow (`chunked`), and good enough for every test that Philox passes here.

One Philox call makes four words, so keys come in blocks of 64: word w of counter 16 · block + lane belongs to key
64 · block + 16 · w + lane. A SIMD unit then reads its words in the order in which it made them.
"""

from __future__ import annotations

import copy
import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from bayesattn.support.annotations import Float

NoiseGenerator = Literal["philox", "hash"]
GENERATORS: tuple[NoiseGenerator, ...] = ("philox", "hash")

BLOCK = 64
"""Keys that are made together."""
WEIGHTS, DROPOUT = 0, 1
"""Streams: independent noise of the same pairs for different purposes. Those from 2 on are gamma.py's."""
Noise: TypeAlias = "torch.Generator | CounterNoise | None"
"""Where random numbers come from: a counter's seed, a generator, or torch's own generator."""
Places = tuple[Tensor, ...]
"""Indices of examples, heads, queries and keys: a list of pairs."""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF
_ROW_COUNTER = 0x80000000  # beyond every key: the words that "hash" takes for a row are those of no pair


def draw_seed(generator: torch.Generator | None = None) -> Tensor:
    """A seed of 64 bits from torch's generator, as a tensor on the CPU: `torch.manual_seed` decides it."""
    device = "cpu" if generator is None else generator.device
    return torch.randint(-(2**63), 2**63 - 1, (1,), generator=generator, device=device).cpu()


def philox(c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor) -> tuple[Tensor, ...]:
    """Philox4x32-10 of int64 tensors that hold 32-bit words; they broadcast against each other.

    The low words of a product are left unmasked until they are used: a xor passes on their low 32 bits all the same. After four
    rounds every word has the full shape and memory of its own: the other rounds are done in place.
    """
    for done in range(10):
        if done < 4:
            p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
            c0, c1, c2, c3 = ((p1 >> 32) ^ (c1 ^ k0)) & _MASK, p1, ((p0 >> 32) ^ (c3 ^ k1)) & _MASK, p0
        else:
            p0, p1 = c0.mul_(_MULTIPLIERS[0]), c2.mul_(_MULTIPLIERS[1])
            c1.bitwise_xor_(p1 >> 32).bitwise_xor_(k0).bitwise_and_(_MASK)
            c3.bitwise_xor_(p0 >> 32).bitwise_xor_(k1).bitwise_and_(_MASK)
            c0, c1, c2, c3 = c1, p1, c3, p0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1.bitwise_and_(_MASK), c2, c3.bitwise_and_(_MASK)


class CounterNoise:
    """The noise of one call of attention.

    Args:
        seed: int64 tensor of one element.
        generator: "philox" or "hash".
        first_query, first_example, first_head: where the tensors that are asked for start, if they are a part of all.

    >>> import torch
    >>> noise = CounterNoise(torch.tensor([7]))
    >>> whole = noise.normal(torch.empty(2, 3, 10, 20))
    >>> part = CounterNoise(torch.tensor([7]), first_query=4).normal(torch.empty(2, 3, 6, 20))
    >>> bool((whole[:, :, 4:] == part).all())
    True
    """

    def __init__(
        self,
        seed: Tensor,
        generator: NoiseGenerator = "philox",
        first_query: int = 0,
        first_example: int = 0,
        first_head: int = 0,
    ):
        self.seed = seed
        self.generator: NoiseGenerator = generator
        self.first_query = first_query
        self.first_example = first_example
        self.first_head = first_head
        self._extent: tuple[int, int, int, torch.device] | None = None
        self._prepared: dict[int, tuple[Tensor, Tensor]] = {}

    def starting(self, first_example: int, first_head: int, first_query: int) -> CounterNoise:
        """The same noise from another place on."""
        part = copy.copy(self)
        part.first_example, part.first_head, part.first_query = first_example, first_head, first_query
        return part

    def prepare(self, examples: int, heads: int, queries: int, device: torch.device) -> None:
        """From now on, what belongs to whole rows is made once for all parts of a tensor of this size."""
        self._extent = (examples, heads, queries, device)
        self._prepared = {}

    def bits(self, like: Tensor, stream: int = WEIGHTS) -> Tensor:
        """23 random bits for each pair of `like`, int32 [batch, heads, query, blocks, 4, 16]: keys padded to whole blocks."""
        batch, heads, queries, keys = like.shape
        blocks = -(-keys // BLOCK)
        shape = (batch, heads, queries, blocks, 4, 16)
        if self.generator == "philox":
            counter = torch.arange(blocks * 16, device=like.device)
            words = self._philox(counter, batch, heads, queries, stream)
            upper = [word.bitwise_right_shift_(9).to(torch.int32) for word in words]
            lanes = [word.expand(*shape[:3], -1).unflatten(-1, (blocks, 16)) for word in upper]
            return torch.stack(lanes, -2)
        first, second = self._row_words(batch, heads, queries, like.device, stream)
        key = _as_int32(torch.arange(blocks * BLOCK, device=like.device) * 0x9E3779B1)
        return _hash_bits(key, first, second).view(shape)

    def _philox(self, counter: Tensor, batch: int, heads: int, queries: int, stream: int) -> tuple[Tensor, ...]:
        device = counter.device
        seed = self.seed.to(device)
        query = torch.arange(self.first_query, self.first_query + queries, device=device).view(-1, 1)
        head = torch.arange(self.first_head, self.first_head + heads, device=device).view(-1, 1, 1)
        example = (torch.arange(batch, device=device) + (self.first_example + (stream << 24))).view(-1, 1, 1, 1)
        return philox(counter, query, head, example, seed & _MASK, (seed >> 32) & _MASK)

    def _row_words(
        self, batch: int, heads: int, queries: int, device: torch.device, stream: int
    ) -> tuple[Tensor, Tensor]:
        """The two words of each row that "hash" takes."""
        if self._extent is None:
            words = self._philox(torch.full((1,), _ROW_COUNTER, device=device), batch, heads, queries, stream)
            return _as_int32(words[0]), _as_int32(words[1])
        if stream not in self._prepared:
            whole = CounterNoise(self.seed, self.generator)
            self._prepared[stream] = whole._row_words(*self._extent, stream)
        places = [
            slice(start, start + size)
            for start, size in (
                (self.first_example, batch),
                (self.first_head, heads),
                (self.first_query, queries),
            )
        ]
        first, second = self._prepared[stream]
        return first[tuple(places)], second[tuple(places)]

    def bits_at(self, places: Places, stream: int) -> Tensor:
        """`bits` of a list of pairs."""
        example, head, query, key = places
        example, head = example + (self.first_example + (stream << 24)), head + self.first_head
        seed = self.seed.to(key.device)
        rest = (query + self.first_query, head, example, seed & _MASK, (seed >> 32) & _MASK)
        if self.generator == "philox":
            words = torch.stack(philox(key // BLOCK * 16 + key % 16, *rest))
            return (words.gather(0, (key // 16 % 4).unsqueeze(0)).squeeze(0) >> 9).to(torch.int32)
        rows = philox(torch.full_like(key, _ROW_COUNTER), *rest)
        return _hash_bits(_as_int32(key * 0x9E3779B1), _as_int32(rows[0]), _as_int32(rows[1]))

    def uniform(self, like: Float[Tensor, "batch heads query key"], stream: int = WEIGHTS) -> Tensor:
        """Uniform on the 2^23 midpoints of a grid of (0, 1), which float32 holds exactly; keys padded to whole blocks."""
        return _as_uniform(self.bits(like, stream), like.dtype)

    def uniform_at(self, places: Places, stream: int, dtype: torch.dtype) -> Tensor:
        """`uniform` of a list of pairs."""
        return _as_uniform(self.bits_at(places, stream), dtype)

    def log_exponential(self, like: Float[Tensor, "batch heads query key"]) -> Float[Tensor, "batch heads query key"]:
        """log E with E ~ Exponential(1)."""
        return self.uniform(like).log_().neg_().log_().flatten(-3)[..., : like.shape[-1]]

    def normal(
        self, like: Float[Tensor, "batch heads query key"], stream: int = WEIGHTS
    ) -> Float[Tensor, "batch heads query key"]:
        """Standard normal, by Box and Muller: words 0 and 1, and words 2 and 3, make two draws each."""
        uniform = self.uniform(like, stream)
        radius = (uniform[..., 0::2, :].log() * -2.0).sqrt()
        angle = uniform[..., 1::2, :] * (2.0 * math.pi)
        pair = torch.stack((radius * angle.cos(), radius * angle.sin()), -2)
        return pair.flatten(-4)[..., : like.shape[-1]]

    def normal_at(self, places: Places, stream: int, dtype: torch.dtype) -> Tensor:
        """`normal` of a list of pairs."""
        *rows, key = places
        one, other = (
            self.uniform_at((*rows, word), stream, dtype) for word in (key.bitwise_and(~16), key.bitwise_or(16))
        )
        radius, angle = (one.log() * -2.0).sqrt(), other * (2.0 * math.pi)
        return radius * torch.where(key.bitwise_and(16) == 0, angle.cos(), angle.sin())

    def kept(self, like: Float[Tensor, "batch heads query key"], dropout_p: float) -> Tensor:
        """True for the pairs that dropout leaves."""
        return self.bits(like, DROPOUT).flatten(-3)[..., : like.shape[-1]] >= dropout_threshold(dropout_p)


def log_exponential(like: Float[Tensor, "*shape"], generator: Noise = None) -> Float[Tensor, "*shape"]:
    """log E with E ~ Exponential(1), of the shape, dtype and device of `like`.

    By inversion of torch's uniform draws, which is several times faster than its exponential ones on a processor. A draw of 0 counts
    as half of the smallest other one, so its logarithm is never -inf.
    """
    if isinstance(generator, CounterNoise):
        return generator.log_exponential(like)
    uniform = torch.empty_like(like).uniform_(generator=generator)
    return uniform.neg_().log1p_().neg_().clamp_min_(torch.finfo(like.dtype).eps / 4).log_()


def standard_normal(like: Float[Tensor, "*shape"], generator: Noise = None) -> Float[Tensor, "*shape"]:
    """N(0, 1), of the shape, dtype and device of `like`."""
    if isinstance(generator, CounterNoise):
        return generator.normal(like)
    return torch.empty_like(like).normal_(generator=generator)


def dropout_threshold(dropout_p: float) -> int:
    """The number of 23 random bits below which a weight is dropped: a whole number, so that all backends agree."""
    return round(dropout_p * 2**23)


def _as_uniform(bits: Tensor, dtype: torch.dtype) -> Tensor:
    if bits.dtype == torch.int32 and dtype == torch.float32:  # the same number, from its bits
        return bits.bitwise_or_(0x3F800000).view(torch.float32).sub_(1.0 - 2.0**-24)
    return bits.to(dtype).add_(0.5).mul_(2.0**-23)


def _hash_bits(key: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """In place where it can: this is done for every pair. Shifts copy the sign, which torch has no cheaper way to avoid."""
    mixed = key ^ first
    mixed.bitwise_xor_(mixed >> 16).mul_(_signed(0x85EBCA6B)).bitwise_xor_(second)
    mixed.bitwise_xor_(mixed >> 13).mul_(_signed(0xC2B2AE35))
    return mixed.bitwise_right_shift_(9).bitwise_and_(0x7FFFFF)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _as_int32(words: Tensor) -> Tensor:
    """Words of 32 bits in int64 as int32 of the same bits."""
    return (((words & _MASK) ^ 0x80000000) - 0x80000000).to(torch.int32)
