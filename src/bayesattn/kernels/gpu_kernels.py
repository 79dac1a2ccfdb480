"""The Triton kernels of attention: the design of source/attention.cpp for a GPU, the same noise, the same sums.

A program takes a tile of queries and walks over the keys, or, for the gradients of keys and values, the other way round. Nothing of
size queries × keys is stored, the noise is made again where it is needed, and no sum is shared between programs: results repeat.

Triton compiles what it finds in these functions, so they have no types of Python's but those it knows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from bayesattn.kernels.gpu_gamma import (
    SMALLEST_LOG_CONCENTRATION,
    WITH_SLOPES,
    WITHOUT_SLOPES,
    digamma_of_one_plus,
    gamma_of,
    trigamma_of_one_plus,
)
from bayesattn.kernels.gpu_noise import BLOCK, GAMMA, NO_NOISE, bits_of, noise_of

NOTHING, SUM, SHARES, SQUARES, SQUARES_LOG, SQUARES_SHARE, DIVERGENCES = (tl.constexpr(place) for place in range(7))
LOWEST = tl.constexpr(-1e30)  # in place of -inf: the difference of two of them is a number


@triton.jit
def log_gamma_of_one_plus(a):
    """lgamma(1 + a), 0 <= a: five steps up, then Stirling's series."""
    x, z = a + 1.0, a + 6.0
    product = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0)
    inverse = 1.0 / z
    square = inverse * inverse
    series = ((square * 7.9365079365e-4 - 2.7777777778e-3) * square + 8.3333333333e-2) * inverse
    return (z - 0.5) * tl.log(z) - z + 0.91893853320 + series - tl.log(product)


@triton.jit
def matrix(base, row, stride, rows_end, columns: tl.constexpr, padded: tl.constexpr):
    """Rows of a matrix whose last dimension is contiguous, 0 beyond its ends."""
    column = tl.arange(0, padded)
    inside = (row < rows_end)[:, None] & (column < columns)[None, :]
    return tl.load(base + row[:, None].to(tl.int64) * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def store_matrix(base, row, stride, rows_end, values, columns: tl.constexpr, padded: tl.constexpr):
    column = tl.arange(0, padded)
    inside = (row < rows_end)[:, None] & (column < columns)[None, :]
    tl.store(base + row[:, None].to(tl.int64) * stride + column[None, :], values, mask=inside)


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def scores_of(
    query, key, row, column, limit, queries, scale,
    bias, bias_row, bias_column, allowed, allowed_row, allowed_column,
    has_bias: tl.constexpr, has_allowed: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    """Scores of a tile, 0 where masked, and where they are not."""
    inside = (row < queries)[:, None] & (column < limit)[None, :]
    scores = product(query, tl.trans(key)) * scale
    row, column = row[:, None].to(tl.int64), column[None, :].to(tl.int64)
    if causal:
        inside = inside & (column <= row)
    if has_allowed:
        inside = inside & (tl.load(allowed + row * allowed_row + column * allowed_column, mask=inside, other=0) != 0)
    if has_bias:
        scores += tl.load(bias + row * bias_row + column * bias_column, mask=inside, other=0.0)
    return tl.where(inside, scores, 0.0), inside


@triton.jit
def pair_statistics(phi, inside, prior_logit, prior_total, log_concentration, statistics: tl.constexpr):
    """What is summed into `first` and `second` of posteriors/fused_form.py."""
    first, second = phi, phi * 0.0
    log_share = prior_logit[None, :] - prior_total[:, None]
    if statistics == SHARES:
        log_alpha = log_share + log_concentration
        first = tl.exp(log_share) * phi
        second = log_gamma_of_one_plus(tl.exp(log_alpha)) - log_alpha
    if statistics == SQUARES_LOG:
        first = phi - prior_logit[None, :]
    if statistics == SQUARES_SHARE:
        first = phi - tl.exp(log_share)
    if statistics >= SQUARES and statistics != DIVERGENCES:
        second = first * first
    if statistics == DIVERGENCES:  # the total is what makes a log concentration of a score
        log_q = tl.maximum(phi - prior_total[:, None], SMALLEST_LOG_CONCENTRATION)
        second = tl.exp(log_q)
        distance, p = second - tl.exp(log_concentration), tl.zeros((1,), tl.float32) + tl.exp(log_concentration)
        constant = log_gamma_of_one_plus(p) - log_concentration - 1.0
        first = log_q - log_gamma_of_one_plus(second) + distance * digamma_of_one_plus(second)
        first += tl.exp(log_concentration - log_q) + constant[:, None]
    return tl.where(inside, first, 0.0), tl.where(inside, second, 0.0)


@triton.jit
def pair_slopes(
    phi, inside, prior_logit, prior_total, log_concentration, of_total, of_first, of_second, of_exponentials, total,
    statistics: tl.constexpr, wants_total: tl.constexpr, wants_exponentials: tl.constexpr,
):  # fmt: skip
    """Gradients of the statistics: of the scores, and of the log shares (of the prior logits for SQUARES_LOG)."""
    of_score, of_share = phi * 0.0, phi * 0.0
    log_share = prior_logit[None, :] - prior_total[:, None]
    of_first, of_second = of_first[:, None], of_second[:, None]
    if statistics == SUM:
        of_score += of_first
    if statistics == SHARES:
        share, alpha = tl.exp(log_share), tl.exp(log_share + log_concentration)
        of_score += of_first * share
        of_share = of_first * share * phi + of_second * (alpha * digamma_of_one_plus(alpha) - 1.0)
    if statistics == SQUARES:
        of_score += of_first + 2.0 * of_second * phi
    if statistics == SQUARES_LOG:
        of_score += of_first + 2.0 * of_second * (phi - prior_logit[None, :])
        of_share = -of_score
    if statistics == SQUARES_SHARE:
        share = tl.exp(log_share)
        of_score += of_first + 2.0 * of_second * (phi - share)
        of_share = -of_score * share
    if wants_total:
        of_score += of_total[:, None] * tl.exp(phi - total[:, None])
    if wants_exponentials:
        of_score += of_exponentials[:, None] * tl.exp(tl.minimum(phi, 60.0))
    return tl.where(inside, of_score, 0.0), tl.where(inside, of_share, 0.0)


@triton.jit
def slope_of_concentration(
    phi, inside, of_logits, slope, concentration, of_first, of_second, log_concentration, statistics: tl.constexpr
):  # fmt: skip
    """Gradients of the log concentrations, from those of the log draws and from the KL's."""
    log_q = tl.maximum(phi - concentration[:, None], SMALLEST_LOG_CONCENTRATION)
    gradient = of_logits * slope
    if statistics == DIVERGENCES:
        q = tl.exp(log_q)
        distance = q - tl.exp(log_concentration)
        of_divergence = 1.0 + q * distance * trigamma_of_one_plus(q) - tl.exp(log_concentration - log_q)
        gradient += of_first[:, None] * of_divergence
        gradient += of_second[:, None] * q
    return tl.where(inside & (log_q > SMALLEST_LOG_CONCENTRATION), gradient, 0.0)


@triton.jit
def forward_kernel(
    query, key, value, allowed, bias, key_lengths, noise_scale, prior_logits, prior_total, score_total,
    output, log_total, row_statistics,
    query_b, query_h, query_r, key_b, key_h, key_r, value_b, value_h, value_r,
    allowed_b, allowed_h, allowed_r, allowed_c, bias_b, bias_h, bias_r, bias_c,
    batch, heads, groups, queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
    has_allowed: tl.constexpr, has_bias: tl.constexpr, has_lengths: tl.constexpr, has_prior: tl.constexpr, causal: tl.constexpr,
    noise: tl.constexpr, generator: tl.constexpr, dropout: tl.constexpr, statistics: tl.constexpr,
    wants_total: tl.constexpr, wants_exponentials: tl.constexpr,
    features: tl.constexpr, features_padded: tl.constexpr, values: tl.constexpr, values_padded: tl.constexpr, rows: tl.constexpr,
    blocks, total_is_given: tl.constexpr,
):  # fmt: skip
    """Output, log total and statistics of a tile of queries of one head of one sample, over one part of the keys: so many blocks."""
    head, example = tl.program_id(1) % heads, tl.program_id(1) // heads  # the example counts on over the samples
    tiles = tl.cdiv(queries, rows)
    tile, part = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    b = (example % batch).to(tl.int64)
    h, kv = head.to(tl.int64), (head // groups).to(tl.int64)
    row = tile * rows + tl.arange(0, rows)
    query_tile = matrix(query + b * query_b + h * query_h, row, query_r, queries, features, features_padded)
    at_row = (b * heads + h) * queries + row
    real = row < queries
    limit = keys
    if has_lengths:
        limit = tl.minimum(tl.load(key_lengths + b), keys).to(tl.int32)
    end = limit
    if causal:
        end = tl.minimum(limit, (tile + 1) * rows)
    row_noise_scale = at_row.to(tl.float32) * 0.0
    row_prior_total = row_noise_scale
    if noise != NO_NOISE or statistics == DIVERGENCES:
        row_noise_scale = tl.load(noise_scale + at_row, mask=real, other=0.0)
    if has_prior:
        row_prior_total = tl.load(prior_total + at_row, mask=real, other=0.0)
    most = tl.full((rows,), LOWEST, tl.float32)
    mass = tl.zeros((rows,), tl.float32)
    sums = tl.zeros((rows, values_padded), tl.float32)
    score_most, score_mass = most, mass
    first, second, exponentials = mass, mass, mass
    if total_is_given:
        row_prior_total = tl.load(score_total + at_row, mask=real, other=0.0) - row_noise_scale
    elif noise == GAMMA or statistics == DIVERGENCES:
        # concentrations are shares of the row: a first walk for its total
        for block in range(tl.cdiv(end, BLOCK)):
            column = tl.arange(0, BLOCK) + block * BLOCK
            key_tile = matrix(key + b * key_b + kv * key_h, column, key_r, limit, features, features_padded)
            phi, inside = scores_of(
                query_tile, key_tile, row, column, limit, queries, scale,
                bias + b * bias_b + h * bias_h, bias_r, bias_c, allowed + b * allowed_b + h * allowed_h, allowed_r, allowed_c,
                has_bias, has_allowed, causal,
            )  # fmt: skip
            new = tl.maximum(most, tl.max(tl.where(inside, phi, LOWEST), 1))
            mass = mass * tl.exp(most - new) + tl.sum(tl.exp(tl.where(inside, phi - new[:, None], LOWEST)), 1)
            most = new
        row_prior_total = tl.where(mass > 0, most + tl.log(tl.maximum(mass, 1e-30)), 0.0) - row_noise_scale
        most, mass = score_most, score_mass
    for block in range(part * blocks, tl.minimum((part + 1) * blocks, tl.cdiv(end, BLOCK))):
        column = tl.arange(0, BLOCK) + block * BLOCK
        key_tile = matrix(key + b * key_b + kv * key_h, column, key_r, limit, features, features_padded)
        phi, inside = scores_of(
            query_tile, key_tile, row, column, limit, queries, scale,
            bias + b * bias_b + h * bias_h, bias_r, bias_c, allowed + b * allowed_b + h * allowed_h, allowed_r, allowed_c,
            has_bias, has_allowed, causal,
        )  # fmt: skip
        if statistics != NOTHING:
            logit = column.to(tl.float32) * 0.0
            if has_prior:
                logit = tl.load(prior_logits + (b * heads + h) * keys + column, mask=column < keys, other=0.0)
            one, two = pair_statistics(phi, inside, logit, row_prior_total, log_concentration, statistics)
            first += tl.sum(one, 1)
            second += tl.sum(two, 1)
        if wants_exponentials:
            exponential = tl.exp(tl.minimum(phi, 60.0)) * (1.0 + tl.maximum(phi - 60.0, 0.0))
            exponentials += tl.sum(tl.where(inside, exponential, 0.0), 1)
        if wants_total:
            new = tl.maximum(score_most, tl.max(tl.where(inside, phi, LOWEST), 1))
            exponential = tl.exp(tl.where(inside, phi - new[:, None], LOWEST))
            score_mass = score_mass * tl.exp(score_most - new) + tl.sum(exponential, 1)
            score_most = new
        if noise == GAMMA:
            log_q = tl.maximum(phi - row_prior_total[:, None], SMALLEST_LOG_CONCENTRATION)
            phi, _ = gamma_of(seed, example, head, row, block, log_q, generator, rows, WITHOUT_SLOPES)
        elif noise != NO_NOISE:
            phi += row_noise_scale[:, None] * noise_of(seed, example, head, row, block, noise, generator, rows)
        new = tl.maximum(most, tl.max(tl.where(inside, phi, LOWEST), 1))
        weights = tl.exp(tl.where(inside, phi - new[:, None], LOWEST))
        factor = tl.exp(most - new)
        mass = mass * factor + tl.sum(weights, 1)
        most = new
        if dropout:
            kept = bits_of(seed, example + (1 << 24), head, row, block, generator, rows) >= dropout_threshold
            weights = tl.where(kept, weights * dropout_factor, 0.0)
        value_tile = matrix(value + b * value_b + kv * value_h, column, value_r, limit, values, values_padded)
        sums = sums * factor[:, None] + product(weights, value_tile)
    # an empty row: zeros, and a total of +inf, with which every weight is 0 in the backward pass
    filled = mass > 0
    mass = tl.where(filled, mass, 1.0)
    sums = sums / mass[:, None]
    at_output = ((part * (tl.num_programs(1) // heads) + example).to(tl.int64) * heads + h) * queries
    store_matrix(output + at_output * values, row, values, queries, sums, values, values_padded)
    tl.store(log_total + at_output + row, tl.where(filled, most + tl.log(mass), float("inf")), mask=real)
    if (example < batch) & (part == 0):  # the statistics are the same for all samples
        plane = (b * 0 + batch) * heads * queries
        total = tl.where(score_mass > 0, score_most + tl.log(tl.maximum(score_mass, 1e-30)), 0.0)
        tl.store(row_statistics + at_row, total, mask=real)
        tl.store(row_statistics + plane + at_row, first, mask=real)
        tl.store(row_statistics + 2 * plane + at_row, second, mask=real)
        tl.store(row_statistics + 3 * plane + at_row, exponentials, mask=real)


@triton.jit
def backward_tile(
    query_tile, key_tile, value_tile, upstream_tile, row, column, limit, block, example, head,
    bias, bias_r, bias_c, allowed, allowed_r, allowed_c, noise_scale, prior_logits, prior_total,
    delta, log_total, row_statistics, grad_statistics, plane, row_sum,
    queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
    has_allowed: tl.constexpr, has_bias: tl.constexpr, has_prior: tl.constexpr, causal: tl.constexpr,
    noise: tl.constexpr, generator: tl.constexpr, dropout: tl.constexpr, statistics: tl.constexpr,
    wants_total: tl.constexpr, wants_exponentials: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """Of one tile: the weights as used, and the gradients of scores, noise scale (for each pair) and log shares.

    Log concentrations are the scores less the total of their row, plus the noise scale: `row_sum` is the row's sum of their gradients.
    """
    real = row < queries
    phi, inside = scores_of(
        query_tile, key_tile, row, column, limit, queries, scale, bias, bias_r, bias_c, allowed, allowed_r, allowed_c,
        has_bias, has_allowed, causal,
    )  # fmt: skip
    logits = phi
    drawn = phi * 0.0
    concentration = row.to(tl.float32) * 0.0
    if noise == GAMMA or statistics == DIVERGENCES:
        concentration = tl.load(row_statistics + row, mask=real, other=0.0)
        concentration -= tl.load(noise_scale + row, mask=real, other=0.0)
    if noise == GAMMA:
        log_q = tl.maximum(phi - concentration[:, None], SMALLEST_LOG_CONCENTRATION)
        logits, drawn = gamma_of(seed, example, head, row, block, log_q, generator, rows, WITH_SLOPES)
    elif noise != NO_NOISE:
        drawn = noise_of(seed, example, head, row, block, noise, generator, rows)
        logits = phi + tl.load(noise_scale + row, mask=real, other=0.0)[:, None] * drawn
    row_total = tl.load(log_total + row, mask=real, other=0.0)
    weights = tl.exp(tl.where(inside, logits - row_total[:, None], LOWEST))
    of_weights = product(upstream_tile, tl.trans(value_tile))
    used = weights
    if dropout:
        kept = bits_of(seed, example + (1 << 24), head, row, block, generator, rows) >= dropout_threshold
        of_weights = tl.where(kept, of_weights * dropout_factor, 0.0)
        used = tl.where(kept, weights * dropout_factor, 0.0)
    of_scores = weights * (of_weights - tl.load(delta + row, mask=real, other=0.0)[:, None])
    of_noise_scale = of_scores * drawn
    if noise == GAMMA or statistics == DIVERGENCES:
        of_noise_scale = slope_of_concentration(
            phi, inside, of_scores, drawn, concentration, tl.load(grad_statistics + plane + row, mask=real, other=0.0),
            tl.load(grad_statistics + 2 * plane + row, mask=real, other=0.0), log_concentration, statistics,
        )  # fmt: skip
        share = tl.where(inside, tl.exp(phi - tl.load(row_statistics + row, mask=real, other=0.0)[:, None]), 0.0)
        if noise == GAMMA:
            of_scores = of_scores * 0.0
        of_scores += of_noise_scale - share * row_sum[:, None]
    of_share = phi * 0.0
    if statistics != NOTHING or wants_total or wants_exponentials:
        logit, row_prior_total = column.to(tl.float32) * 0.0, row.to(tl.float32) * 0.0
        if has_prior:
            logit = tl.load(prior_logits + column, mask=column < keys, other=0.0)
            row_prior_total = tl.load(prior_total + row, mask=real, other=0.0)
        extra, of_share = pair_slopes(
            phi, inside, logit, row_prior_total, log_concentration,
            tl.load(grad_statistics + row, mask=real, other=0.0), tl.load(grad_statistics + plane + row, mask=real, other=0.0),
            tl.load(grad_statistics + 2 * plane + row, mask=real, other=0.0),
            tl.load(grad_statistics + 3 * plane + row, mask=real, other=0.0), tl.load(row_statistics + row, mask=real, other=0.0),
            statistics, wants_total, wants_exponentials,
        )  # fmt: skip
        of_scores += extra
    return used, of_scores * scale, of_noise_scale, of_share


@triton.jit
def backward_query_kernel(
    query, key, value, allowed, bias, key_lengths, noise_scale, prior_logits, prior_total,
    grad_output, delta, log_total, row_statistics, grad_statistics, grad_query, grad_noise_scale, grad_prior_total,
    query_b, query_h, query_r, key_b, key_h, key_r, value_b, value_h, value_r,
    allowed_b, allowed_h, allowed_r, allowed_c, bias_b, bias_h, bias_r, bias_c,
    batch, heads, groups, queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
    has_allowed: tl.constexpr, has_bias: tl.constexpr, has_lengths: tl.constexpr, has_prior: tl.constexpr, causal: tl.constexpr,
    noise: tl.constexpr, generator: tl.constexpr, dropout: tl.constexpr, statistics: tl.constexpr,
    wants_total: tl.constexpr, wants_exponentials: tl.constexpr,
    features: tl.constexpr, features_padded: tl.constexpr, values: tl.constexpr, values_padded: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of queries of one head."""
    head, example = tl.program_id(1) % heads, tl.program_id(1) // heads
    b, h, kv = example.to(tl.int64), head.to(tl.int64), (head // groups).to(tl.int64)
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    first_row, plane = (b * heads + h) * queries, (b * 0 + batch) * heads * queries
    query_tile = matrix(query + b * query_b + h * query_h, row, query_r, queries, features, features_padded)
    upstream_tile = matrix(grad_output + first_row * values, row, values, queries, values, values_padded)
    limit = keys
    if has_lengths:
        limit = tl.minimum(tl.load(key_lengths + b), keys).to(tl.int32)
    end = limit
    if causal:
        end = tl.minimum(limit, (tl.program_id(0) + 1) * rows)
    of_query = tl.zeros((rows, features_padded), tl.float32)
    of_noise_scale, of_prior_total = tl.zeros((rows,), tl.float32), tl.zeros((rows,), tl.float32)
    row_sum = of_noise_scale
    if noise == GAMMA or statistics == DIVERGENCES:  # a first walk for the sum of the concentrations' gradients
        for block in range(tl.cdiv(end, BLOCK)):
            column = tl.arange(0, BLOCK) + block * BLOCK
            key_tile = matrix(key + b * key_b + kv * key_h, column, key_r, limit, features, features_padded)
            value_tile = matrix(value + b * value_b + kv * value_h, column, value_r, limit, values, values_padded)
            _, _, of_scale, _ = backward_tile(
                query_tile, key_tile, value_tile, upstream_tile, row, column, limit, block, example, head,
                bias + b * bias_b + h * bias_h, bias_r, bias_c, allowed + b * allowed_b + h * allowed_h, allowed_r, allowed_c,
                noise_scale + first_row, prior_logits + (b * heads + h) * keys, prior_total + first_row,
                delta + first_row, log_total + first_row, row_statistics + first_row, grad_statistics + first_row, plane, row_sum,
                queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
                has_allowed, has_bias, has_prior, causal, noise, generator, dropout, statistics, wants_total, wants_exponentials, rows,
            )  # fmt: skip
            of_noise_scale += tl.sum(of_scale, 1)
        row_sum, of_noise_scale = of_noise_scale, row_sum
    for block in range(tl.cdiv(end, BLOCK)):
        column = tl.arange(0, BLOCK) + block * BLOCK
        key_tile = matrix(key + b * key_b + kv * key_h, column, key_r, limit, features, features_padded)
        value_tile = matrix(value + b * value_b + kv * value_h, column, value_r, limit, values, values_padded)
        _, of_scores, of_scale, of_share = backward_tile(
            query_tile, key_tile, value_tile, upstream_tile, row, column, limit, block, example, head,
            bias + b * bias_b + h * bias_h, bias_r, bias_c, allowed + b * allowed_b + h * allowed_h, allowed_r, allowed_c,
            noise_scale + first_row, prior_logits + (b * heads + h) * keys, prior_total + first_row,
            delta + first_row, log_total + first_row, row_statistics + first_row, grad_statistics + first_row, plane, row_sum,
            queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
            has_allowed, has_bias, has_prior, causal, noise, generator, dropout, statistics, wants_total, wants_exponentials, rows,
        )  # fmt: skip
        of_query += product(of_scores, key_tile)
        of_noise_scale += tl.sum(of_scale, 1)
        of_prior_total -= tl.sum(of_share, 1)
    store_matrix(grad_query + first_row * features, row, features, queries, of_query, features, features_padded)
    if noise != NO_NOISE or statistics == DIVERGENCES:
        tl.store(grad_noise_scale + first_row + row, of_noise_scale, mask=row < queries)
    if has_prior and statistics != SQUARES_LOG:
        tl.store(grad_prior_total + first_row + row, of_prior_total, mask=row < queries)


@triton.jit
def backward_key_kernel(
    query, key, value, allowed, bias, key_lengths, noise_scale, prior_logits, prior_total,
    grad_output, delta, log_total, row_statistics, grad_statistics, grad_key, grad_value, grad_prior_logits, grad_noise_scale,
    query_b, query_h, query_r, key_b, key_h, key_r, value_b, value_h, value_r,
    allowed_b, allowed_h, allowed_r, allowed_c, bias_b, bias_h, bias_r, bias_c,
    batch, heads, groups, queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
    has_allowed: tl.constexpr, has_bias: tl.constexpr, has_lengths: tl.constexpr, has_prior: tl.constexpr, causal: tl.constexpr,
    noise: tl.constexpr, generator: tl.constexpr, dropout: tl.constexpr, statistics: tl.constexpr,
    wants_total: tl.constexpr, wants_exponentials: tl.constexpr,
    features: tl.constexpr, features_padded: tl.constexpr, values: tl.constexpr, values_padded: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and values of one key head, from every query head of its group."""
    key_heads = heads // groups
    kv, example, block = tl.program_id(1) % key_heads, tl.program_id(1) // key_heads, tl.program_id(0)
    b = example.to(tl.int64)
    plane = (b * 0 + batch) * heads * queries
    column = tl.arange(0, BLOCK) + block * BLOCK
    limit = keys
    if has_lengths:
        limit = tl.minimum(tl.load(key_lengths + b), keys).to(tl.int32)
    key_tile = matrix(key + b * key_b + kv.to(tl.int64) * key_h, column, key_r, limit, features, features_padded)
    value_tile = matrix(value + b * value_b + kv.to(tl.int64) * value_h, column, value_r, limit, values, values_padded)
    of_key = tl.zeros((BLOCK, features_padded), tl.float32)
    of_value = tl.zeros((BLOCK, values_padded), tl.float32)
    start = 0
    if causal:
        start = block * BLOCK // rows
    for group in range(groups):
        head = kv * groups + group
        h = head.to(tl.int64)
        first_row = (b * heads + h) * queries
        of_prior_logits = tl.zeros((BLOCK,), tl.float32)
        for tile in range(start, tl.cdiv(queries, rows)):
            row = tile * rows + tl.arange(0, rows)
            query_tile = matrix(query + b * query_b + h * query_h, row, query_r, queries, features, features_padded)
            upstream_tile = matrix(grad_output + first_row * values, row, values, queries, values, values_padded)
            row_sum = row.to(tl.float32) * 0.0
            if noise == GAMMA or statistics == DIVERGENCES:
                row_sum = tl.load(grad_noise_scale + first_row + row, mask=row < queries, other=0.0)
            used, of_scores, _, of_share = backward_tile(
                query_tile, key_tile, value_tile, upstream_tile, row, column, limit, block, example, head,
                bias + b * bias_b + h * bias_h, bias_r, bias_c, allowed + b * allowed_b + h * allowed_h, allowed_r, allowed_c,
                noise_scale + first_row, prior_logits + (b * heads + h) * keys, prior_total + first_row,
                delta + first_row, log_total + first_row, row_statistics + first_row, grad_statistics + first_row, plane, row_sum,
                queries, keys, seed, scale, dropout_threshold, dropout_factor, log_concentration,
                has_allowed, has_bias, has_prior, causal, noise, generator, dropout, statistics, wants_total, wants_exponentials, rows,
            )  # fmt: skip
            of_value += product(tl.trans(used), upstream_tile)
            of_key += product(tl.trans(of_scores), query_tile)
            of_prior_logits += tl.sum(of_share, 0)
        if has_prior:
            tl.store(grad_prior_logits + (b * heads + h) * keys + column, of_prior_logits, mask=column < keys)
    at_key = (b * key_heads + kv) * keys
    store_matrix(grad_key + at_key * features, column, features, keys, of_key, features, features_padded)
    store_matrix(grad_value + at_key * values, column, values, keys, of_value, values, values_padded)
