// Which numbers the tiles are written for. NaN, infinities, and numbers so large that a sum of the kernel might overflow where plain torch's
// does not, are not computed here: the caller is told, and computes them in plain torch.
#pragma once

#include "problem.h"
#include "tile.h"

constexpr float LARGEST_SCORE = 1e18f;  // its square, too, is a number
constexpr float LARGEST_VALUE = 1e25f;  // times exp(SLACK), summed over the keys
constexpr float LARGEST_NOISE_SCALE = 1e36f;
constexpr float LARGEST_LOG_SHARPNESS = 80.0f;  // its exponential is a number

// The largest |x|: as whole numbers, infinity is above all numbers, and NaN above infinity.
struct Largest {
    IntVector most{};

    void add(Vector x) {
        const IntVector size = float_as_bits(x) & 0x7fffffff;
        most = size > most ? size : most;
    }
    void add(float x) { add(all(x)); }
    // Rows of a tensor. Numbers of 16 bits are compared as they are.
    void add(const Problem& p, const void* from, int64_t step, int64_t rows, int64_t columns) {
        if (p.type == FLOAT32) {
            for (int64_t row = 0; row < rows; row++)
                for (int64_t column = 0; column < columns; column += WIDTH) add(load_as<FLOAT32>(from, row * step + column));
            return;
        }
        HalfVector largest{};
        for (int64_t row = 0; row < rows; row++)
            for (int64_t column = 0; column < columns; column += WIDTH) {
                const HalfVector size = load_halves(from, row * step + column) & 0x7fff;
                largest = size > largest ? size : largest;
            }
        with_type(p.type, [&](auto type) { add(load_as<decltype(type)::value>(&largest, 0)); });
    }
    // Not a number if any was not.
    float value() const {
        int32_t bits = 0;
        for (int lane = 0; lane < WIDTH; lane++) bits = most[lane] > bits ? most[lane] : bits;
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
};

// Whether the numbers of some queries of a head are ordinary that belong to rows, and the prior's, masked ones too. The bias is looked at elsewhere.
static bool is_ordinary_beside_tensors(const Problem& p, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t plane = p.batch * p.heads * p.queries;
    Largest of_noise, of_prior, upstream;
    for (int64_t row = q_begin; row < q_end; row++) {
        const float scale = per_row(p.noise_scale, p.noise_scale_stride, b, h, row);
        of_noise.add(uses_gamma(p) && scale > LARGEST_LOG_SHARPNESS ? INFINITY : scale);
        of_prior.add(per_row(p.prior_total, p.prior_total_stride, b, h, row));
        for (int64_t plane_of = 0; p.grad_output && plane_of < PLANES; plane_of++)
            upstream.add(p.grad_statistics[plane_of * plane + (b * p.heads + h) * p.queries + row]);
    }
    for (int64_t k = 0; p.prior_logits && k < p.keys; k++) of_prior.add(*at(p.prior_logits, p.prior_logits_stride, b, h, k));
    return of_noise.value() < LARGEST_NOISE_SCALE && of_prior.value() < LARGEST_SCORE && upstream.value() < INFINITY;
}

// Whether all of them are, with the queries, keys and values.
static bool is_ordinary(const Problem& p, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t kv = h / (p.heads / p.key_heads);
    Largest query, key, value, upstream;
    query.add(p, at(p, p.query, p.query_stride, b, h, q_begin), p.query_stride[2], q_end - q_begin, p.features);
    key.add(p, at(p, p.key, p.key_stride, b, kv, 0), p.key_stride[2], p.keys, p.features);
    value.add(p, at(p, p.value, p.value_stride, b, kv, 0), p.value_stride[2], p.keys, p.values);
    if (p.grad_output) upstream.add(p, at(p, p.grad_output, p.grad_output_stride, b, h, q_begin), p.grad_output_stride[2], q_end - q_begin, p.values);
    return query.value() * key.value() * (float)p.features * std::fabs((float)p.scale) < LARGEST_SCORE && value.value() < LARGEST_VALUE &&
           upstream.value() < INFINITY && is_ordinary_beside_tensors(p, b, h, q_begin, q_end);
}
