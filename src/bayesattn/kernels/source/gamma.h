// Gamma draws in logarithms and their derivatives, the same as in numerics/counter_gamma.py: see there.
#pragma once

#include <vector>

#include "noise.h"

constexpr int TRIALS = 6, FIRST_STREAM = 2;
constexpr float SMALLEST_LOG_CONCENTRATION = -46.0517019f;

// 1 / (a + 1), ..., 1 / (a + 8): a division for each four.
struct Inverses {
    Vector of[8];

    explicit Inverses(Vector a) {
        for (int half = 0; half < 8; half += 4) {
            const Vector x0 = a + (half + 1.0f), x1 = a + (half + 2.0f), x2 = a + (half + 3.0f), x3 = a + (half + 4.0f);
            const Vector low = x0 * x1, high = x2 * x3, both = 1.0f / (low * high), of_low = both * high, of_high = both * low;
            of[half] = x1 * of_low, of[half + 1] = x0 * of_low, of[half + 2] = x3 * of_high, of[half + 3] = x2 * of_high;
        }
    }

    // psi(1 + a) and its derivative: five steps up, then the asymptotic series at a + 6.
    Vector digamma(Vector a) const {
        const Vector square = of[5] * of[5];
        const Vector series = ((square * -3.9682539683e-3f + 8.3333333333e-3f) * square - 8.3333333333e-2f) * square;
        return logarithm(a + 6.0f) - of[5] * 0.5f + series - (of[0] + of[1] + of[2] + of[3] + of[4]);
    }
    Vector trigamma() const {
        const Vector square = of[5] * of[5];
        const Vector series = ((square * 2.3809523810e-2f - 3.3333333333e-2f) * square + 1.6666666667e-1f) * square * of[5];
        Vector steps = of[5] + square * 0.5f + series;
        for (int i = 0; i < 5; i++) steps += of[i] * of[i];
        return steps;
    }
};

constexpr float CORRECTION[10][6] = {
    {-4.01834961e-04f, 1.95733747e-02f, -1.13580468e-01f, 2.06784981e-01f, -1.46918589e-01f, 4.20759251e-02f},
    {-3.64086657e-03f, 1.50398185e-01f, -4.44360303e-01f, 4.39954078e-01f, -1.54087278e-01f, -1.53040062e-02f},
    {-5.84435729e-02f, 3.18581018e-01f, -4.50664510e-01f, 2.04718412e-01f, -6.56633998e-03f, 3.89384845e-02f},
    {-9.85616463e-02f, 2.05335163e-01f, -6.57386679e-02f, -8.98505503e-02f, 5.80270537e-02f, -7.22306745e-02f},
    {-2.89430675e-02f, -1.21395374e-02f, 1.11182424e-01f, -9.77469730e-02f, 3.64608011e-02f, 6.94194970e-02f},
    {2.27246955e-02f, -5.91372325e-02f, 4.54492652e-02f, 1.52038612e-03f, -3.63510051e-02f, -4.18869989e-02f},
    {1.14541903e-02f, -1.50792840e-02f, -4.56799993e-03f, 9.85544770e-03f, 3.30890262e-02f, -4.36743582e-02f},
    {-2.51926628e-04f, 1.16546029e-03f, 2.86662225e-04f, -4.21153053e-03f, -3.05537350e-02f, 2.17143834e-01f},
    {-2.51507159e-04f, 4.72161725e-04f, -1.63220231e-03f, 7.09416140e-03f, 1.38536182e-02f, 2.84887658e-01f},
    {-1.09064010e-04f, 2.06144991e-04f, 6.45121552e-04f, -5.64953759e-03f, 3.22981142e-03f, 8.36451713e-02f},
};

// d log G / d a of G = exp(log_boosted) = (a + 2/3) root^3 ~ Gamma(a + 1).
static inline Vector log_slope(Vector a, Vector root, Vector log_boosted) {
    const Vector inverse = 1.0f / (a + 0.666666667f), u = inverse * 1.33333333f - 1.0f, t = (root - 1.9f) * 0.666666667f;
    Vector correction{};
#pragma GCC unroll 10
    for (int j = 0; j < 10; j++) {
        Vector inner = all(CORRECTION[j][0]);
#pragma GCC unroll 5
        for (int i = 1; i < 6; i++) inner = inner * u + CORRECTION[j][i];
        correction = correction * t + inner;
    }
    const Vector fitted = (1.0f - (1.5f * (root - 1.0f) - correction) / root) * inverse;
    const Vector x = exponential(minimum(log_boosted, Vector{}));
    const Inverses inverses(a);
    Vector term = all(1.0f), digamma = inverses.digamma(a) - log_boosted, series{};
    for (int n = 0; n < 8; n++) {
        digamma += inverses.of[n], term *= inverses.of[n];
        series += term * digamma;
        term *= x;
    }
    return log_boosted < Vector{} ? series : fitted;
}

// The Gamma draws of one block of keys.
struct GammaBlock {
    int64_t generator, example, head;
    uint64_t seed;
    std::vector<NoiseBlock> streams;  // the boost's, then the normal and uniform one of each try

    GammaBlock(int64_t generator, uint64_t seed, int64_t example, int64_t head, int64_t block)
        : generator(generator), example(example), head(head), seed(seed) {
        streams.reserve(1 + 2 * TRIALS);
        streams.emplace_back(generator, seed, example, head, block, (int)WEIGHTS);
        for (int stream = FIRST_STREAM; stream < FIRST_STREAM + 2 * TRIALS; stream++) streams.emplace_back(generator, seed, example, head, block, stream);
    }

    NoiseRow row(int64_t query, int stream) const { return NoiseRow(generator, seed, example, head, query, stream); }

    // A try for one row: roots of what it takes of `open`, which then has what is still to be done. True if that is nothing.
    template <bool FIRST>
    inline bool propose(int64_t query, int trial, const Vector d[VECTORS], const Vector spread[VECTORS], IntVector open[VECTORS], Vector roots[VECTORS]) const {
        const int stream = FIRST_STREAM + 2 * trial;
        alignas(64) float normal[BLOCK], words[BLOCK];
        const NoiseRow of_normal = row(query, stream), of_uniform = row(query, stream + 1);
        streams[1 + 2 * trial].draw<NORMAL>(&of_normal, 1, normal);
        streams[2 + 2 * trial].words(&of_uniform, 1, words);
        IntVector left{};
        for (int i = 0; i < VECTORS; i++) {
            const Vector z = load(normal + i * WIDTH), root = 1.0f + z * spread[i], positive = maximum(root, all(1e-30f));
            const Vector bound = 0.5f * z * z + d[i] * (1.0f - root * root * root + 3.0f * logarithm(positive));
            const IntVector taken = (root > Vector{}) & (logarithm(NoiseBlock::uniform(words + i * WIDTH)) < bound);
            if (FIRST) roots[i] = taken ? root : all(1.0f), open[i] = ~taken;
            else roots[i] = (open[i] & taken) ? root : roots[i], open[i] &= ~taken;
            left |= open[i];
        }
        return !any(left);
    }

    // Log draws of some rows in place of their log concentrations, and the derivatives of one by the other.
    template <bool SLOPES>
    void draw(int64_t first_query, int64_t count, float* logs, float* slopes) const {
        alignas(64) float words[BLOCK];
        for (int64_t r = 0; r < count; r++) {
            float* line = logs + r * BLOCK;
            const int64_t query = first_query + r;
            Vector a[VECTORS], d[VECTORS], spread[VECTORS], roots[VECTORS];
            IntVector open[VECTORS];
            for (int i = 0; i < VECTORS; i++) {
                a[i] = exponential(load(line + i * WIDTH)), d[i] = a[i] + 0.666666667f;
                spread[i] = 0.333333333f / square_root(d[i]);
            }
            bool done = propose<true>(query, 0, d, spread, open, roots);
            for (int trial = 1; trial < TRIALS && !done; trial++) done = propose<false>(query, trial, d, spread, open, roots);
            const NoiseRow of_boost = row(query, WEIGHTS);
            streams[0].words(&of_boost, 1, words);
            for (int i = 0; i < VECTORS; i++) {
                const Vector boost = logarithm(NoiseBlock::uniform(words + i * WIDTH)) * exponential(-load(line + i * WIDTH));
                const Vector log_boosted = logarithm(d[i] * roots[i] * roots[i] * roots[i]);
                store(line + i * WIDTH, log_boosted + boost);
                if (SLOPES) store(slopes + r * BLOCK + i * WIDTH, a[i] * log_slope(a[i], roots[i], log_boosted) - boost);
            }
        }
    }
};
