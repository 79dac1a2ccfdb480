// A tile of scores: products, bias, mask, and the rows' statistics.
#pragma once

#include <algorithm>
#include <vector>

#include "gamma.h"
#include "noise.h"
#include "operands.h"
#include "problem.h"

constexpr float NOT_ALLOWED = -INFINITY;  // in a tile of scores: this pair is masked

static inline int64_t key_limit(const Problem& p, int64_t b) {
    return p.key_lengths && p.key_lengths[b] < p.keys ? p.key_lengths[b] : p.keys;
}

// Adds the bias and marks what is masked. True if anything is.
static inline bool mask_tile(const Problem& p, int64_t b, int64_t h, int64_t q0, int64_t rows, int64_t k0, int64_t limit,
                             float* scores) {
    const bool edge = limit - k0 < BLOCK, diagonal = p.causal && k0 + BLOCK - 1 > q0;
    if (!edge && !diagonal && !p.bias && !p.allowed) return false;
    const int64_t width = edge ? limit - k0 : BLOCK;
    for (int64_t row = 0; row < rows; row++) {
        float* line = scores + row * BLOCK;
        if (p.bias) {
            const float* bias = p.bias + b * p.bias_stride[0] + h * p.bias_stride[1] + (q0 + row) * p.bias_stride[2] + k0 * p.bias_stride[3];
            for (int64_t j = 0; j < width; j++) line[j] += bias[j * p.bias_stride[3]];
        }
        if (p.allowed) {
            const uint8_t* allowed = p.allowed + b * p.allowed_stride[0] + h * p.allowed_stride[1] +
                                     (q0 + row) * p.allowed_stride[2] + k0 * p.allowed_stride[3];
            for (int64_t j = 0; j < width; j++) line[j] = allowed[j * p.allowed_stride[3]] ? line[j] : NOT_ALLOWED;
        }
        int64_t end = width;
        if (diagonal && q0 + row - k0 + 1 < end) end = q0 + row - k0 + 1 < 0 ? 0 : q0 + row - k0 + 1;
        for (int64_t j = end; j < BLOCK; j++) line[j] = NOT_ALLOWED;
    }
    return edge || diagonal || p.allowed;
}

// exp(x) up to 60, its tangent beyond, and its derivative.
static inline Vector exponential_with_linear_tail(Vector x) {
    return exponential(minimum(x, all(60.0f))) * (1.0f + maximum(x - 60.0f, Vector{}));
}

static inline Vector slope_of_linear_tail(Vector x) { return exponential(minimum(x, all(60.0f))); }

// x where a score is not masked, else 0.
template <bool MASKED>
static inline Vector where_allowed(Vector score, Vector x) {
    return MASKED ? (score > all(NOT_ALLOWED) ? x : Vector{}) : x;
}

// Sums of exponentials of a row, relative to exp(origin). The origin follows the maximum only when that has grown by more than SLACK: it need
// not be the maximum, as long as nothing overflows, and the sums need not be scaled for every new one.
constexpr float SLACK = 16.0f;
struct alignas(64) RunningTotal {
    Vector total{};
    float origin = -INFINITY;

    // exp(logits - origin), in place; gives the factor of what was summed before.
    template <bool MASKED>
    inline float add(Vector logits[VECTORS]) {
        Vector most = logits[0];
        for (int i = 1; i < VECTORS; i++) most = maximum(most, logits[i]);
        float factor = 1.0f;
        if (any_above(most, origin + SLACK)) {
            const float top = maximum_of(most);
            factor = std::exp(origin - top), origin = top;
            total *= factor;
        }
        const float from = MASKED && origin == -INFINITY ? 0.0f : origin;
        for (int i = 0; i < VECTORS; i++) {
            logits[i] = where_allowed<MASKED>(logits[i], exponential(logits[i] - from));
            total += logits[i];
        }
        return factor;
    }

    float sum() const { return sum_of(total); }
    float log() const { return origin + std::log(sum()); }
};

// How much of the statistics a loop has to know: nothing, the sum and total of the usual KL, or any of them.
enum Mode { WITHOUT = 0, USUAL = 1, GENERAL = 2 };

static inline Mode mode_of(const Problem& p) {
    if (!p.statistics && !p.wants_total && !p.wants_exponential) return WITHOUT;
    return p.statistics == SUM && p.wants_total && !p.wants_exponential ? USUAL : GENERAL;
}

// Whether anything depends on Gamma concentrations, exp(sharpness + score - total of the row), and so on those totals.
static inline bool uses_gamma(const Problem& p) { return p.noise == GAMMA_DRAWS || p.statistics == GAMMA; }

// For GAMMA, prior_total is what makes a log concentration of a score.
struct RowSums {
    RunningTotal total;
    Vector usual{};
    double first = 0, second = 0, exponentials = 0;

    template <int MODE, bool MASKED>
    inline void add(const Problem& p, const float* line, const float* prior_logits, float prior_total) {
        Vector phi[VECTORS];
        for (int i = 0; i < VECTORS; i++) phi[i] = load(line + i * WIDTH);
        if (MODE == USUAL)
            for (int i = 0; i < VECTORS; i++) usual += where_allowed<MASKED>(phi[i], phi[i]);
        if (MODE == GENERAL) add_general(p, phi, prior_logits, prior_total);
        if (MODE == USUAL || p.wants_total) total.add<MASKED>(phi);
    }

    void add_general(const Problem& p, const Vector phi[VECTORS], const float* prior_logits, float prior_total) {
        Vector one{}, two{}, three{};
        for (int i = 0; i < VECTORS; i++) {
            const Vector x = where_allowed<true>(phi[i], phi[i]);
            Vector a{}, c{};
            switch (p.statistics) {
                case SUM:
                    a = x;
                    break;
                case SHARES: {
                    const Vector log_share = load(prior_logits + i * WIDTH) - prior_total;
                    const Vector log_alpha = log_share + (float)p.log_concentration;
                    a = exponential(log_share) * x;
                    c = log_gamma_of_one_plus(exponential(log_alpha)) - log_alpha;
                    break;
                }
                case GAMMA: {
                    const Vector log_q = maximum(x + prior_total, all(SMALLEST_LOG_CONCENTRATION)), q = exponential(log_q);
                    a = log_q - log_gamma_of_one_plus(q) + (q - std::exp((float)p.log_concentration)) * Inverses(q).digamma(q) +
                        exponential((float)p.log_concentration - log_q) + (float)p.divergence_constant;
                    c = q;
                    break;
                }
                case SQUARES:
                    a = x, c = x * x;
                    break;
                case SQUARES_LOG:
                    a = x - load(prior_logits + i * WIDTH), c = a * a;
                    break;
                case SQUARES_SHARE:
                    a = x - exponential(load(prior_logits + i * WIDTH) - prior_total), c = a * a;
                    break;
            }
            one += where_allowed<true>(phi[i], a), two += where_allowed<true>(phi[i], c);
            if (p.wants_exponential) three += where_allowed<true>(phi[i], exponential_with_linear_tail(x));
        }
        first += sum_of(one), second += sum_of(two), exponentials += sum_of(three);
    }
};

// Prior logits of one block of keys, padded to the block.
static inline const float* prior_block(const Problem& p, int64_t b, int64_t h, int64_t k0, float* padded) {
    if (!p.prior_logits) return nullptr;
    const float* line = p.prior_logits + b * p.prior_logits_stride[0] + h * p.prior_logits_stride[1];
    for (int64_t j = 0; j < BLOCK; j++) padded[j] = k0 + j < p.keys ? line[(k0 + j) * p.prior_logits_stride[2]] : 0.0f;
    return padded;
}

static inline float per_row(const float* base, const int64_t* stride, int64_t b, int64_t h, int64_t row) {
    return base ? *at(base, stride, b, h, row) : 0.0f;
}

// x after dropout, by the random words of its places.
static inline Vector dropped(const Problem& p, const float* words, Vector x) {
    return NoiseBlock::bits(words) >= (int32_t)p.dropout_threshold ? x * (float)p.dropout_factor : Vector{};
}
