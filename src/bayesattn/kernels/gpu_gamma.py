"""Gamma draws in logarithms and their derivatives in Triton: the numbers of `numerics.counter_gamma`, see there.

Triton compiles what it finds in these functions, so they have no types of Python's but those it knows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesattn.kernels.gpu_noise import NORMAL, bits_of, noise_of, uniform

TRIALS, FIRST_STREAM = tl.constexpr(6), tl.constexpr(2)
WITHOUT_SLOPES, WITH_SLOPES = tl.constexpr(0), tl.constexpr(1)
SMALLEST_LOG_CONCENTRATION = tl.constexpr(-46.0517019)


@triton.jit
def digamma_of_one_plus(a):
    """psi(1 + a), 0 <= a: five steps up, then the asymptotic series at a + 6."""
    x, z = a + 1.0, a + 6.0
    inverse = 1.0 / z
    square = inverse * inverse
    series = ((square * -3.9682539683e-3 + 8.3333333333e-3) * square - 8.3333333333e-2) * square
    steps = 1.0 / x + 1.0 / (x + 1.0) + 1.0 / (x + 2.0) + 1.0 / (x + 3.0) + 1.0 / (x + 4.0)
    return tl.log(z) - inverse * 0.5 + series - steps


@triton.jit
def trigamma_of_one_plus(a):
    inverse = 1.0 / (a + 6.0)
    square = inverse * inverse
    series = ((square * 2.3809523810e-2 - 3.3333333333e-2) * square + 1.6666666667e-1) * square * inverse
    found = inverse + square * 0.5 + series
    for step in tl.static_range(1, 6):  # pyright: ignore
        found += 1.0 / ((a + step) * (a + step))
    return found


@triton.jit
def fifth_degree(u, c0, c1, c2, c3, c4, c5):
    return ((((c0 * u + c1) * u + c2) * u + c3) * u + c4) * u + c5


@triton.jit
def log_slope(a, root, log_boosted):
    """d log G / d a of G = exp(log_boosted) = (a + 2/3) root^3 ~ Gamma(a + 1)."""
    d = a + 0.6666666666666666
    u, t = 4.0 / (3.0 * d) - 1.0, (root - 1.9) / 1.5
    # fmt: off
    of = a * 0.0
    of = of * t + fifth_degree(u, -4.01834961e-04, 1.95733747e-02, -1.13580468e-01, 2.06784981e-01, -1.46918589e-01, 4.20759251e-02)
    of = of * t + fifth_degree(u, -3.64086657e-03, 1.50398185e-01, -4.44360303e-01, 4.39954078e-01, -1.54087278e-01, -1.53040062e-02)
    of = of * t + fifth_degree(u, -5.84435729e-02, 3.18581018e-01, -4.50664510e-01, 2.04718412e-01, -6.56633998e-03, 3.89384845e-02)
    of = of * t + fifth_degree(u, -9.85616463e-02, 2.05335163e-01, -6.57386679e-02, -8.98505503e-02, 5.80270537e-02, -7.22306745e-02)
    of = of * t + fifth_degree(u, -2.89430675e-02, -1.21395374e-02, 1.11182424e-01, -9.77469730e-02, 3.64608011e-02, 6.94194970e-02)
    of = of * t + fifth_degree(u, 2.27246955e-02, -5.91372325e-02, 4.54492652e-02, 1.52038612e-03, -3.63510051e-02, -4.18869989e-02)
    of = of * t + fifth_degree(u, 1.14541903e-02, -1.50792840e-02, -4.56799993e-03, 9.85544770e-03, 3.30890262e-02, -4.36743582e-02)
    of = of * t + fifth_degree(u, -2.51926628e-04, 1.16546029e-03, 2.86662225e-04, -4.21153053e-03, -3.05537350e-02, 2.17143834e-01)
    of = of * t + fifth_degree(u, -2.51507159e-04, 4.72161725e-04, -1.63220231e-03, 7.09416140e-03, 1.38536182e-02, 2.84887658e-01)
    of = of * t + fifth_degree(u, -1.09064010e-04, 2.06144991e-04, 6.45121552e-04, -5.64953759e-03, 3.22981142e-03, 8.36451713e-02)
    # fmt: on
    fitted = (1.0 - (1.5 * (root - 1.0) - of) / root) / d
    x = tl.exp(tl.minimum(log_boosted, 0.0))
    digamma, term, series = digamma_of_one_plus(a), a * 0.0 + 1.0, a * 0.0
    for n in tl.static_range(1, 9):  # pyright: ignore
        inverse = 1.0 / (a + n)
        digamma += inverse
        term *= inverse
        series += term * (digamma - log_boosted)
        term *= x
    return tl.where(log_boosted < 0.0, series, fitted)


@triton.jit
def gamma_of(
    seed, example, head, query, block, log_q, generator: tl.constexpr, rows: tl.constexpr, wants_slopes: tl.constexpr
):
    """Log draws of a tile, [rows, 64], and their derivatives by the log concentrations (0 unless wanted)."""
    a = tl.exp(log_q)
    d = a + 0.6666666666666666
    spread = 1.0 / (3.0 * tl.sqrt(d))
    # until every pair of the tile has its draw
    root, is_open = a * 0.0 + 1.0, log_q == log_q
    trial, left = example * 0, example * 0 + 1
    while (left > 0) & (trial < TRIALS):  # pyright: ignore
        stream = example + ((FIRST_STREAM + 2 * trial) << 24)
        normal = noise_of(seed, stream, head, query, block, NORMAL, generator, rows)
        drawn = uniform(bits_of(seed, stream + (1 << 24), head, query, block, generator, rows))
        tried = 1.0 + normal * spread
        log_tried = tl.log(tl.maximum(tried, 1e-30))
        bound = 0.5 * normal * normal + d * (1.0 - tried * tried * tried + 3.0 * log_tried)
        taken = is_open & (tried > 0.0) & (tl.log(drawn) < bound)
        root = tl.where(taken, tried, root)
        is_open = is_open & (taken == 0)
        left = tl.max(tl.max(is_open.to(tl.int32), 1), 0)
        trial += 1
    boost = tl.log(uniform(bits_of(seed, example, head, query, block, generator, rows))) * tl.exp(-log_q)
    log_boosted = tl.log(d) + 3.0 * tl.log(root)
    slope = a * 0.0
    if wants_slopes:
        slope = a * log_slope(a, root, log_boosted) - boost
    return log_boosted + boost, slope
