"""The noise of attention in Triton: the numbers of `numerics.counter_noise`, from the same counters.

Triton compiles what it finds in these functions, so they have no types of Python's but those it knows.
"""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = tl.constexpr(64)  # keys whose noise is made together
ROW_COUNTER = tl.constexpr(0x80000000)
NO_NOISE, LOG_EXPONENTIAL, NORMAL, GAMMA = (tl.constexpr(place) for place in range(4))
PHILOX = tl.constexpr(0)


@triton.jit
def in_key_order(w0, w1, w2, w3, rows: tl.constexpr):
    """Four words of sixteen lanes as [rows, 64]: key 16 · word + lane."""
    words = tl.join(tl.join(w0, w1), tl.join(w2, w3))  # [rows, lane, low bit of the word, its high bit]
    return tl.reshape(tl.permute(words, (0, 3, 2, 1)), (rows, BLOCK))


@triton.jit
def philox_words(seed, example, head, query, block):
    """The four words of each lane of a block of keys, for each row: those of `noise.philox`."""
    lane = (block * 16 + tl.arange(0, 16))[None, :]
    return tl.philox(seed, lane, query[:, None], head, example)


@triton.jit
def hash_words(seed, example, head, query, block):
    """A 32-bit hash of the key with two words of its row."""
    first, second, _, _ = tl.philox(seed, tl.full(query.shape, ROW_COUNTER, tl.uint32), query, head, example)
    key = (tl.arange(0, BLOCK) + block * BLOCK).to(tl.uint32) * 0x9E3779B1
    mixed = key[None, :] ^ first[:, None]
    mixed = ((mixed ^ shifted(mixed, 16)) * 0x85EBCA6B) ^ second[:, None]
    return (mixed ^ shifted(mixed, 13)) * 0xC2B2AE35


@triton.jit
def shifted(words, by):
    """To the right, with copies of the sign."""
    return (words.to(tl.int32, bitcast=True) >> by).to(tl.uint32, bitcast=True)


@triton.jit
def bits_of(seed, example, head, query, block, generator: tl.constexpr, rows: tl.constexpr):
    """23 random bits for each pair of a tile."""
    if generator == PHILOX:
        w0, w1, w2, w3 = philox_words(seed, example, head, query, block)
        words = in_key_order(w0, w1, w2, w3, rows)
    else:
        words = hash_words(seed, example, head, query, block)
    return words >> 9


@triton.jit
def uniform(bits):
    return (bits.to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def noise_of(seed, example, head, query, block, kind: tl.constexpr, generator: tl.constexpr, rows: tl.constexpr):
    """The noise of a tile, [rows, 64]."""
    drawn = uniform(bits_of(seed, example, head, query, block, generator, rows))
    if kind == LOG_EXPONENTIAL:
        return tl.log(-tl.log(drawn))
    # Box and Muller: words 0 and 1, and words 2 and 3, make two draws each
    pairs = tl.permute(tl.reshape(drawn, (rows, 2, 2, 16)), (0, 1, 3, 2))
    one, other = tl.split(pairs)
    radius, angle = tl.sqrt(-2.0 * tl.log(one)), other * 6.283185307179586
    normal = tl.join(radius * tl.cos(angle), radius * tl.sin(angle))
    return tl.reshape(tl.permute(normal, (0, 1, 3, 2)), (rows, BLOCK))
