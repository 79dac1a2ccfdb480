// Attention with random weights, tiled: forward and backward, nothing of size queries x keys is ever stored.
//
// The noise is a function of its place (noise.h), so that the backward pass makes it again. Rows of queries are
// independent and every sum over keys or queries runs in index order: the result depends neither on the number of
// threads nor on the size of the query tiles.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tile.h"

// Floats that begin at a cache line: a vector that crosses two is read twice.
struct Buffer {
    std::unique_ptr<char[]> memory;
    float* start;

    explicit Buffer(int64_t size) : memory(new char[size * sizeof(float) + 64]) {
        start = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64);
    }
    float* data() { return start; }
    float& operator[](int64_t place) { return start[place]; }
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

// Weights of one row and one block, relative to the row's origin, in place of its noise; gives the factor of what was summed before.
template <int KIND, bool MASKED>
static inline float weigh(const float* line, float* noise, float noise_scale, RunningTotal& total) {
    Vector logits[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        logits[i] = load(line + i * WIDTH);
        if (KIND != NO_NOISE) logits[i] += load(noise + i * WIDTH) * noise_scale;
    }
    const float factor = total.add<MASKED>(logits);
    for (int i = 0; i < VECTORS; i++) store(noise + i * WIDTH, logits[i]);
    return factor;
}

// x after dropout, by the random words of its places.
static inline Vector dropped(const Problem& p, const float* words, Vector x) {
    return NoiseBlock::bits(words) >= (int32_t)p.dropout_threshold ? x * (float)p.dropout_factor : Vector{};
}

// All keys for the queries [q_begin, q_end) of one head: tiles of keys outside, so that each is transposed once for all queries.
template <int KIND, int MODE>
static void forward_rows(const Problem& p, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t count = q_end - q_begin, kv = h / (p.heads / p.key_heads), limit = key_limit(p, b), tile = p.query_tile;
    Buffer key_tile(p.features * BLOCK), scores(tile * BLOCK), weights(tile * BLOCK), drops(p.dropout_threshold ? tile * BLOCK : 0), factor(tile), sums(p.samples * count * p.values);
    std::fill_n(sums.data(), p.samples * count * p.values, 0.0f);
    std::vector<RunningTotal> totals(p.samples * count);
    std::vector<RowSums> statistics(MODE == WITHOUT ? 0 : count);
    std::vector<NoiseRow> noise_rows(p.samples * count), dropout_rows(p.dropout_threshold ? p.samples * count : 0);
    for (int64_t s = 0; s < p.samples; s++)
        for (int64_t row = 0; row < count; row++) {
            if (KIND != NO_NOISE) noise_rows[s * count + row] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, q_begin + row, WEIGHTS);
            if (p.dropout_threshold) dropout_rows[s * count + row] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, q_begin + row, DROPOUT);
        }
    float padded[BLOCK];
    for (int64_t k0 = 0; k0 < limit && !(p.causal && k0 >= q_end); k0 += BLOCK) {
        const int64_t width = std::min<int64_t>(BLOCK, limit - k0), block = k0 / BLOCK;
        transpose(at(p.key, p.key_stride, b, kv, k0), p.key_stride[2], width, p.features, (float)p.scale, key_tile.data());
        const float* prior = prior_block(p, b, h, k0, padded);
        const float* value = at(p.value, p.value_stride, b, kv, k0);
        for (int64_t q0 = q_begin; q0 < q_end; q0 += tile) {
            const int64_t rows = std::min(tile, q_end - q0);
            if (p.causal && k0 > q0 + rows - 1) continue;
            multiply<false>(rows, BLOCK, p.features, at(p.query, p.query_stride, b, h, q0), p.query_stride[2], key_tile.data(), BLOCK, scores.data(), BLOCK, nullptr);
            const bool masked = mask_tile(p, b, h, q0, rows, k0, limit, scores.data());
            for (int64_t row = 0; MODE != WITHOUT && row < rows; row++) {
                RowSums& of = statistics[q0 - q_begin + row];
                const float prior_total = per_row(p.prior_total, p.prior_total_stride, b, h, q0 + row);
                if (masked) of.add<MODE, true>(p, scores.data() + row * BLOCK, prior, prior_total);
                else of.add<MODE, false>(p, scores.data() + row * BLOCK, prior, prior_total);
            }
            for (int64_t s = 0; s < p.samples; s++) {
                const int64_t first = s * count + q0 - q_begin;
                NoiseBlock(p.generator, p.seed, s * p.batch + b, h, block, WEIGHTS).draw<KIND>(&noise_rows[first], rows, weights.data());
                for (int64_t row = 0; row < rows; row++) {
                    const float* line = scores.data() + row * BLOCK;
                    float* to = weights.data() + row * BLOCK;
                    const float noise_scale = per_row(p.noise_scale, p.noise_scale_stride, b, h, q0 + row);
                    factor[row] = masked ? weigh<KIND, true>(line, to, noise_scale, totals[first + row])
                                         : weigh<KIND, false>(line, to, noise_scale, totals[first + row]);
                }
                if (p.dropout_threshold) {
                    NoiseBlock(p.generator, p.seed, s * p.batch + b, h, block, DROPOUT).words(&dropout_rows[first], rows, drops.data());
                    for (int64_t i = 0; i < rows * BLOCK; i += WIDTH) store(weights.data() + i, dropped(p, drops.data() + i, load(weights.data() + i)));
                }
                multiply<false>(rows, p.values, width, weights.data(), BLOCK, value, p.value_stride[2], sums.data() + first * p.values, p.values, factor.data());
            }
        }
    }
    for (int64_t s = 0; s < p.samples; s++) {
        for (int64_t row = 0; row < count; row++) {
            const int64_t at_sum = s * count + row, at_row = ((s * p.batch + b) * p.heads + h) * p.queries + q_begin + row;
            const float total = totals[at_sum].sum();
            // an empty row: zeros, and a total of +inf, with which every weight is 0 in the backward pass
            p.log_total[at_row] = total > 0 ? totals[at_sum].log() : INFINITY;
            const float inverse = total > 0 ? 1.0f / total : 0.0f;
            for (int64_t d = 0; d < p.values; d++) p.output[at_row * p.values + d] = sums[at_sum * p.values + d] * inverse;
        }
    }
    const int64_t plane = p.batch * p.heads * p.queries;
    const RowSums nothing;
    for (int64_t row = 0; row < count; row++) {
        const RowSums& of = MODE == WITHOUT ? nothing : statistics[row];
        float* to = p.row_statistics + (b * p.heads + h) * p.queries + q_begin + row;
        to[TOTAL * plane] = of.total.sum() > 0 ? of.total.log() : 0.0f;
        to[FIRST * plane] = MODE == USUAL ? sum_of(of.usual) : (float)of.first;
        to[SECOND * plane] = (float)of.second, to[EXPONENTIAL * plane] = (float)of.exponentials;
    }
}

// Gradients of one row and one block. In: scores, and the gradient of the weights. Out: the weights as used (in `line`), and the gradient of the
// scores, times the scale (in `gradient`).
struct alignas(64) RowGradient {
    Vector noise_scale_gradient{};
    float delta, log_total, noise_scale, prior_total, of_total, of_first, of_second, of_exponentials, total;
    float prior_total_gradient = 0;

    template <int KIND, int MODE, bool MASKED>
    inline void block(const Problem& p, const float* noise, const float* drops, float* line, float* gradient, const float* prior_logits,
                      float* prior_gradient) {
        for (int i = 0; i < VECTORS; i++) {
            const Vector phi = load(line + i * WIDTH);
            const Vector weight = where_allowed<MASKED>(phi, exponential((KIND == NO_NOISE ? phi : phi + load(noise + i * WIDTH) * noise_scale) - log_total));
            Vector of_weight = load(gradient + i * WIDTH), used = weight;
            if (drops) of_weight = dropped(p, drops + i * WIDTH, of_weight), used = dropped(p, drops + i * WIDTH, weight);
            Vector of_score = weight * (of_weight - delta);
            if (KIND != NO_NOISE) noise_scale_gradient += of_score * load(noise + i * WIDTH);
            if (MODE == USUAL) of_score += where_allowed<MASKED>(phi, of_total * exponential(phi - total) + of_first);
            if (MODE == GENERAL) of_score += general(p, i, phi, prior_logits, prior_gradient);
            store(line + i * WIDTH, used);
            store(gradient + i * WIDTH, of_score * (float)p.scale);
        }
    }

    Vector general(const Problem& p, int i, Vector phi, const float* prior_logits, float* prior_gradient) {
        const Vector x = where_allowed<true>(phi, phi);
        Vector of_score{}, of_prior{};
        switch (p.statistics) {
            case SUM:
                of_score = all(of_first);
                break;
            case SHARES: {
                const Vector log_share = load(prior_logits + i * WIDTH) - prior_total, share = exponential(log_share);
                const Vector alpha = exponential(log_share + (float)p.log_concentration);
                of_score = of_first * share;
                of_prior = of_first * share * x + of_second * (alpha * digamma_of_one_plus(alpha) - 1.0f);
                break;
            }
            case SQUARES:
                of_score = of_first + 2.0f * of_second * x;
                break;
            case SQUARES_LOG:
                of_score = of_first + 2.0f * of_second * (x - load(prior_logits + i * WIDTH));
                of_prior = -of_score;
                break;
            case SQUARES_SHARE: {
                const Vector share = exponential(load(prior_logits + i * WIDTH) - prior_total);
                of_score = of_first + 2.0f * of_second * (x - share);
                of_prior = -of_score * share;
                break;
            }
        }
        if (p.prior_logits) {
            of_prior = where_allowed<true>(phi, of_prior);
            store(prior_gradient + i * WIDTH, load(prior_gradient + i * WIDTH) + of_prior);
            if (p.statistics != SQUARES_LOG) prior_total_gradient -= sum_of(of_prior);
        }
        if (p.wants_total) of_score += of_total * exponential(x - total);
        if (p.wants_exponential) of_score += of_exponentials * slope_of_linear_tail(x);
        return where_allowed<true>(phi, of_score);
    }
};

// All gradients of one key head: tiles of keys outside, tiles of queries of every head of its group inside.
template <int KIND, int MODE>
static void backward_head(const Problem& p, int64_t b, int64_t kv) {
    const int64_t group = p.heads / p.key_heads, limit = key_limit(p, b), tile = p.query_tile, plane = p.batch * p.heads * p.queries;
    Buffer key_tile(p.features * BLOCK), value_tile(p.values * BLOCK), scores(tile * BLOCK), gradients(tile * BLOCK), noise(tile * BLOCK), drops(p.dropout_threshold ? tile * BLOCK : 0);
    const std::vector<float> ones(std::max<int64_t>(tile, BLOCK), 1.0f);
    std::vector<RowGradient> state(group * p.queries);
    std::vector<NoiseRow> noise_rows(group * p.queries), dropout_rows(p.dropout_threshold ? group * p.queries : 0);
    for (int64_t g = 0; g < group; g++) {
        const int64_t h = kv * group + g;
        for (int64_t query = 0; query < p.queries; query++) {
            const int64_t row = (b * p.heads + h) * p.queries + query;
            const float *out = p.output + row * p.values, *of_out = at(p.grad_output, p.grad_output_stride, b, h, query);
            Vector dot{};
            for (int64_t d = 0; d < p.values; d += WIDTH) dot += load(out + d) * load(of_out + d);
            RowGradient& of = state[g * p.queries + query];
            if (KIND != NO_NOISE) noise_rows[g * p.queries + query] = NoiseRow(p.generator, p.seed, b, h, query, WEIGHTS);
            if (p.dropout_threshold) dropout_rows[g * p.queries + query] = NoiseRow(p.generator, p.seed, b, h, query, DROPOUT);
            of.delta = sum_of(dot), of.log_total = p.log_total[row];
            of.noise_scale = per_row(p.noise_scale, p.noise_scale_stride, b, h, query);
            of.prior_total = per_row(p.prior_total, p.prior_total_stride, b, h, query);
            of.total = p.row_statistics[TOTAL * plane + row];
            const float* upstream = p.grad_statistics + row;
            of.of_total = upstream[TOTAL * plane], of.of_first = upstream[FIRST * plane];
            of.of_second = upstream[SECOND * plane], of.of_exponentials = upstream[EXPONENTIAL * plane];
        }
    }
    for (int64_t k0 = 0; k0 < limit; k0 += BLOCK) {
        const int64_t width = std::min<int64_t>(BLOCK, limit - k0), block = k0 / BLOCK;
        const float *key = at(p.key, p.key_stride, b, kv, k0), *value = at(p.value, p.value_stride, b, kv, k0);
        transpose(key, p.key_stride[2], width, p.features, (float)p.scale, key_tile.data());
        transpose(value, p.value_stride[2], width, p.values, 1.0f, value_tile.data());
        float* grad_key = p.grad_key + ((b * p.key_heads + kv) * p.keys + k0) * p.features;
        float* grad_value = p.grad_value + ((b * p.key_heads + kv) * p.keys + k0) * p.values;
        for (int64_t g = 0; g < group; g++) {
            const int64_t h = kv * group + g;
            float padded[BLOCK], prior_gradient[BLOCK] = {};
            const float* prior = prior_block(p, b, h, k0, padded);
            const NoiseBlock noise_block(p.generator, p.seed, b, h, block, WEIGHTS), dropout(p.generator, p.seed, b, h, block, DROPOUT);
            for (int64_t q0 = p.causal ? k0 / tile * tile : 0; q0 < p.queries; q0 += tile) {
                const int64_t rows = std::min(tile, p.queries - q0);
                const float* query = at(p.query, p.query_stride, b, h, q0);
                const float* of_out = at(p.grad_output, p.grad_output_stride, b, h, q0);
                multiply<false>(rows, BLOCK, p.features, query, p.query_stride[2], key_tile.data(), BLOCK, scores.data(), BLOCK, nullptr);
                const bool masked = mask_tile(p, b, h, q0, rows, k0, limit, scores.data());
                multiply<false>(rows, BLOCK, p.values, of_out, p.grad_output_stride[2], value_tile.data(), BLOCK, gradients.data(), BLOCK, nullptr);
                noise_block.draw<KIND>(&noise_rows[g * p.queries + q0], rows, noise.data());
                if (p.dropout_threshold) dropout.words(&dropout_rows[g * p.queries + q0], rows, drops.data());
                for (int64_t row = 0; row < rows; row++) {
                    RowGradient& of = state[g * p.queries + q0 + row];
                    float *line = scores.data() + row * BLOCK, *gradient = gradients.data() + row * BLOCK;
                    const float *drop_line = p.dropout_threshold ? drops.data() + row * BLOCK : nullptr, *noise_line = noise.data() + row * BLOCK;
                    if (masked) of.block<KIND, MODE, true>(p, noise_line, drop_line, line, gradient, prior, prior_gradient);
                    else of.block<KIND, MODE, false>(p, noise_line, drop_line, line, gradient, prior, prior_gradient);
                }
                multiply<true>(width, p.values, rows, scores.data(), BLOCK, of_out, p.grad_output_stride[2], grad_value, p.values, ones.data());
                multiply<true>(width, p.features, rows, gradients.data(), BLOCK, query, p.query_stride[2], grad_key, p.features, ones.data());
                float* grad_query = p.grad_query + ((b * p.heads + h) * p.queries + q0) * p.features;
                multiply<false>(rows, p.features, width, gradients.data(), BLOCK, key, p.key_stride[2], grad_query, p.features, ones.data());
            }
            if (p.prior_logits) {
                float* to = p.grad_prior_logits + (b * p.heads + h) * p.keys + k0;
                for (int64_t j = 0; j < width; j++) to[j] = prior_gradient[j];
            }
        }
    }
    for (int64_t g = 0; g < group; g++)
        for (int64_t query = 0; query < p.queries; query++) {
            const int64_t row = (b * p.heads + kv * group + g) * p.queries + query;
            if (p.grad_noise_scale) p.grad_noise_scale[row] = sum_of(state[g * p.queries + query].noise_scale_gradient);
            if (p.grad_prior_total) p.grad_prior_total[row] = state[g * p.queries + query].prior_total_gradient;
        }
}

template <int KIND, int MODE>
static void forward(const Problem& p) {
    // many samples share a tile of scores: fewer rows at once then, so that their sums stay in cache
    const int64_t most_rows = std::max<int64_t>(1, 512 / (p.query_tile * p.samples)) * p.query_tile;
    const int64_t blocks = (p.queries + most_rows - 1) / most_rows, items = p.batch * p.heads * blocks;
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)p.threads)
    for (int64_t item = 0; item < items; item++) {
        const int64_t head = item / blocks, begin = item % blocks * most_rows;
        forward_rows<KIND, MODE>(p, head / p.heads, head % p.heads, begin, std::min(begin + most_rows, p.queries));
    }
}

template <int KIND, int MODE>
static void backward(const Problem& p) {
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)p.threads)
    for (int64_t item = 0; item < p.batch * p.key_heads; item++) backward_head<KIND, MODE>(p, item / p.key_heads, item % p.key_heads);
}

template <int KIND>
static void forward_by_mode(const Problem& p) {
    const Mode mode = mode_of(p);
    mode == WITHOUT ? forward<KIND, WITHOUT>(p) : mode == USUAL ? forward<KIND, USUAL>(p) : forward<KIND, GENERAL>(p);
}

template <int KIND>
static void backward_by_mode(const Problem& p) {
    const Mode mode = mode_of(p);
    mode == WITHOUT ? backward<KIND, WITHOUT>(p) : mode == USUAL ? backward<KIND, USUAL>(p) : backward<KIND, GENERAL>(p);
}

extern "C" void bayesattn_forward(const Problem* p) {
    if (p->noise == LOG_EXPONENTIAL) forward_by_mode<LOG_EXPONENTIAL>(*p);
    else if (p->noise == NORMAL) forward_by_mode<NORMAL>(*p);
    else forward_by_mode<NO_NOISE>(*p);
}

extern "C" void bayesattn_backward(const Problem* p) {
    if (p->noise == LOG_EXPONENTIAL) backward_by_mode<LOG_EXPONENTIAL>(*p);
    else if (p->noise == NORMAL) backward_by_mode<NORMAL>(*p);
    else backward_by_mode<NO_NOISE>(*p);
}

extern "C" int64_t bayesattn_problem_size() { return sizeof(Problem); }
