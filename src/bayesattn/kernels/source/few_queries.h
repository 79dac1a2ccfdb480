// The forward pass of few queries, as when a model generates from a long cache: spans of keys are shared out, too. What is large is looked at
// once: whether its numbers are ordinary (ordinary.h) is seen in the scores and the sums that are made of it.
#pragma once

#include "forward.h"

constexpr int64_t FEW_QUERIES = 16;
constexpr int64_t FEW_ROWS = 4;      // of one head of keys: up to so many, a product for each key costs less than turning a tile of keys
constexpr int64_t SPAN = 8 * BLOCK;  // keys whose sums are made together, whatever the number of threads

static inline bool has_few_queries(const Problem& p) { return p.queries <= FEW_QUERIES && !p.causal && !uses_gamma(p); }

// The sum of each vector's numbers, in one vector.
static inline Vector sums_of(Vector parts[WIDTH]) {
    for (int count = WIDTH / 2; count > 0; count /= 2)
        for (int i = 0; i < count; i++)
            parts[i] = interleave<false>(parts[i], parts[i + count], std::make_index_sequence<WIDTH>()) +
                       interleave<true>(parts[i], parts[i + count], std::make_index_sequence<WIDTH>());
    return parts[0];
}

// A word of each of WIDTH places, 0 behind the last of them.
template <bool PAIRED>
static inline Vector load_words(const float* from, int64_t left) {
#if defined(__AVX512F__)
    if (PAIRED && left < WIDTH) return (Vector)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), from);
#endif
    return load(from);
}

template <bool PAIRED>
static inline Vector multiply_add_words(Vector sum, Vector a, Vector b) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
    if (PAIRED) return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
    return sum + a * b;
}

// Scores of a block of keys for ROWS queries, whose words are padded with 0 to whole vectors.
template <bool PAIRED, int ROWS>
static void dot_products(const float* keys, int64_t step, int64_t width, int64_t words, const float* queries, int64_t query_step, float scale, float* scores) {
    for (int64_t first = 0; first < BLOCK; first += WIDTH) {
        Vector parts[ROWS][WIDTH] = {};
        for (int64_t key = first; key < std::min<int64_t>(first + WIDTH, width); key++) {
            Vector sums[ROWS] = {};
            for (int64_t word = 0; word < words; word += WIDTH) {
                const Vector of_key = load_words<PAIRED>(keys + key * step + word, words - word);
#pragma GCC unroll 4
                for (int row = 0; row < ROWS; row++) sums[row] = multiply_add_words<PAIRED>(sums[row], of_key, load(queries + row * query_step + word));
            }
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; row++) parts[row][key - first] = sums[row];
        }
        for (int row = 0; row < ROWS; row++) store(scores + row * BLOCK + first, sums_of(parts[row]) * scale);
    }
}

template <bool PAIRED>
static void dot_products(int64_t rows, Words keys, int64_t width, int64_t words, const float* queries, int64_t query_step, float scale, float* scores) {
    static_assert(FEW_ROWS == 4);
    const auto of_rows = rows == 1 ? dot_products<PAIRED, 1> : rows == 2 ? dot_products<PAIRED, 2> : rows == 3 ? dot_products<PAIRED, 3> : dot_products<PAIRED, 4>;
    of_rows(keys.start, keys.step, width, words, queries, query_step, scale, scores);
}

template <int KIND, int MODE>
struct FewQueries {
    const Problem& p;
    const int64_t group, rows, spans, draws;  // a row is a query of one of the heads that share keys; a draw is a row of one sample
    std::vector<RunningTotal> totals;         // of each span and draw
    std::vector<RowSums> statistics;          // of each span and row
    Buffer sums;                              // of values, of each span and draw
    std::atomic<bool> ordinary{true};

    explicit FewQueries(const Problem& p)
        : p(p), group(p.heads / p.key_heads), rows(group * p.queries), spans((p.keys + SPAN - 1) / SPAN), draws(p.samples * rows),
          totals(p.batch * p.key_heads * spans * draws), statistics(MODE == WITHOUT ? 0 : p.batch * p.key_heads * spans * rows),
          sums(p.batch * p.key_heads * spans * draws * p.values) {}

    // The queries of one head of keys, row by row, their words padded with 0 to whole vectors.
    void gather(int64_t b, int64_t kv, float* to, int64_t step) const {
        std::fill_n(to, rows * step, 0.0f);
        for (int64_t row = 0; row < rows; row++) {
            const void* from = at(p, p.query, p.query_stride, b, kv * group + row / p.queries, row % p.queries);
            if (is_converted(p)) converted(p, from, 0, 1, p.features, to + row * step);
            else std::memcpy(to + row * step, from, words_of(p, p.features) * sizeof(float));
        }
    }

    void span(int64_t item) {
        const int64_t head = item / spans, b = head / p.key_heads, kv = head % p.key_heads;
        const int64_t limit = key_limit(p, b), begin = item % spans * SPAN, end = std::min(begin + SPAN, p.keys);
        const int64_t words = words_of(p, p.features), query_step = (words + WIDTH - 1) / WIDTH * WIDTH;
        const bool turned = rows > FEW_ROWS;
        Buffer queries(rows * query_step), scores(rows * BLOCK), weights(rows * BLOCK), drops(p.dropout_threshold ? rows * BLOCK : 0), factor(rows);
        Buffer key_tile(turned ? p.features * BLOCK : 0), key_room(is_converted(p) ? p.features * BLOCK : 0), value_room(p.type == FLOAT32 ? 0 : p.values * BLOCK);
        gather(b, kv, queries.data(), query_step);
        std::vector<NoiseRow> noise_rows(draws), dropout_rows(p.dropout_threshold ? draws : 0);
        for (int64_t draw = 0; draw < draws; draw++) {
            const int64_t s = draw / rows, h = kv * group + draw % rows / p.queries, query = draw % p.queries;
            if (KIND != NO_NOISE) noise_rows[draw] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, query, WEIGHTS);
            if (p.dropout_threshold) dropout_rows[draw] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, query, DROPOUT);
        }
        RunningTotal* of_draws = totals.data() + item * draws;
        float* sum = sums.data() + item * draws * p.values;
        std::fill_n(sum, draws * p.values, 0.0f);
        Largest largest, behind;
        for (int64_t k0 = begin; k0 < std::min(end, limit); k0 += BLOCK) {
            const int64_t width = std::min<int64_t>(BLOCK, limit - k0), block = k0 / BLOCK;
            const void* key = at(p, p.key, p.key_stride, b, kv, k0);
            if (turned) {
                // of float32, the scale is in the tile
                turned_right_side(p, key, p.key_stride[2], width, p.features, (float)p.scale, key_tile.data(), key_room.data());
                multiply<false, false>(p, rows, BLOCK, p.features, {queries.data(), query_step}, {key_tile.data(), BLOCK}, scores.data(), BLOCK, nullptr, (float)p.scale);
            } else {
                const Words keys = left_side(p, key, p.key_stride[2], width, p.features, key_room.data());
                const auto products = in_pairs(p) ? dot_products<CAN_PAIR> : dot_products<false>;
                products(rows, keys, width, words, queries.data(), query_step, (float)p.scale, scores.data());
            }
            for (int64_t i = 0; i < rows * BLOCK; i += WIDTH) largest.add(load(scores.data() + i));
            bool masked = false;
            for (int64_t row = 0; row < rows; row += p.queries)
                masked = mask_tile(p, b, kv * group + row / p.queries, 0, p.queries, k0, limit, scores.data() + row * BLOCK);
            if (MODE != WITHOUT) add_statistics(item, b, kv, k0, masked, scores.data());
            const Words value = right_side(p, at(p, p.value, p.value_stride, b, kv, k0), p.value_stride[2], width, p.values, value_room.data());
            for (int64_t s = 0; s < p.samples; s++) {
                const int64_t first = s * rows, example = s * p.batch + b;
                for (int64_t row = 0; row < rows; row += p.queries) {
                    const int64_t h = kv * group + row / p.queries;
                    NoiseBlock(p.generator, p.seed, example, h, block, WEIGHTS).draw<KIND>(&noise_rows[first + row], p.queries, weights.data() + row * BLOCK);
                    if (p.dropout_threshold)
                        NoiseBlock(p.generator, p.seed, example, h, block, DROPOUT).words(&dropout_rows[first + row], p.queries, drops.data() + row * BLOCK);
                }
                for (int64_t row = 0; row < rows; row++) {
                    const float* line = scores.data() + row * BLOCK;
                    float* to = weights.data() + row * BLOCK;
                    const float noise_scale = per_row(p.noise_scale, p.noise_scale_stride, b, kv * group + row / p.queries, row % p.queries);
                    factor[row] = masked ? weigh<KIND, true>(line, to, noise_scale, of_draws[first + row])
                                         : weigh<KIND, false>(line, to, noise_scale, of_draws[first + row]);
                }
                for (int64_t i = 0; p.dropout_threshold && i < rows * BLOCK; i += WIDTH)
                    store(weights.data() + i, dropped(p, drops.data() + i, load(weights.data() + i)));
                weights_over_keys(p, weights.data(), rows);
                multiply<false, true>(p, rows, p.values, width, {weights.data(), BLOCK}, value, sum + first * p.values, p.values, factor.data());
            }
        }
        const int64_t from = std::max(begin, std::min(limit, end));  // behind the length: masked values count 0 times, and 0 * NaN is NaN
        behind.add(p, at(p, p.value, p.value_stride, b, kv, from), p.value_stride[2], end - from, p.values);
        if (!(largest.value() < LARGEST_SCORE && behind.value() < INFINITY)) ordinary = false;
    }

    void add_statistics(int64_t item, int64_t b, int64_t kv, int64_t k0, bool masked, const float* scores) {
        for (int64_t row = 0; row < rows; row++) {
            const int64_t h = kv * group + row / p.queries;
            float padded[BLOCK];
            const float* prior = prior_block(p, b, h, k0, padded);
            const float prior_total = per_row(p.prior_total, p.prior_total_stride, b, h, row % p.queries);
            RowSums& of = statistics[item * rows + row];
            if (masked) of.add<MODE, true>(p, scores + row * BLOCK, prior, prior_total);
            else of.add<MODE, false>(p, scores + row * BLOCK, prior, prior_total);
        }
    }

    // The spans of one head of keys, put together in their order.
    void join(int64_t head) {
        const int64_t b = head / p.key_heads, kv = head % p.key_heads;
        Buffer sum(p.values);
        Largest largest;
        for (int64_t draw = 0; draw < draws; draw++) {
            const int64_t row = draw % rows, h = kv * group + row / p.queries, example = draw / rows * p.batch + b;
            const int64_t at_row = (example * p.heads + h) * p.queries + row % p.queries;
            float origin = -INFINITY, total = 0.0f;
            for (int64_t s = 0; s < spans; s++) origin = std::max(origin, totals[(head * spans + s) * draws + draw].origin);
            std::fill_n(sum.data(), p.values, 0.0f);
            for (int64_t s = 0; s < spans; s++) {
                const int64_t place = (head * spans + s) * draws + draw;
                const float share = origin == -INFINITY ? 1.0f : std::exp(totals[place].origin - origin);
                total += totals[place].sum() * share;
                for (int64_t d = 0; d < p.values; d += WIDTH) store(sum.data() + d, load(sum.data() + d) + load(sums.data() + place * p.values + d) * share);
            }
            p.log_total[at_row] = total > 0 ? origin + std::log(total) : INFINITY;  // as in forward.h
            const float inverse = total > 0 ? 1.0f / total : 0.0f;
            with_type(p.type, [&](auto type) {
                for (int64_t d = 0; d < p.values; d += WIDTH) {
                    largest.add(load(sum.data() + d));
                    store_as<decltype(type)::value>(p.output, at_row * p.values + d, load(sum.data() + d) * inverse);
                }
            });
        }
        if (!(largest.value() < INFINITY)) ordinary = false;
        const int64_t plane = p.batch * p.heads * p.queries;
        for (int64_t row = 0; row < rows; row++) {
            float origin = -INFINITY, total = 0.0f, usual = 0.0f;
            double first = 0, second = 0, exponentials = 0;
            for (int64_t s = 0; MODE != WITHOUT && s < spans; s++) origin = std::max(origin, statistics[(head * spans + s) * rows + row].total.origin);
            for (int64_t s = 0; MODE != WITHOUT && s < spans; s++) {
                const RowSums& of = statistics[(head * spans + s) * rows + row];
                total += of.total.sum() * (origin == -INFINITY ? 1.0f : std::exp(of.total.origin - origin));
                usual += sum_of(of.usual), first += of.first, second += of.second, exponentials += of.exponentials;
            }
            float* to = p.row_statistics + (b * p.heads + kv * group + row / p.queries) * p.queries + row % p.queries;
            to[TOTAL * plane] = total > 0 ? origin + std::log(total) : 0.0f;
            to[FIRST * plane] = MODE == USUAL ? usual : (float)first;
            to[SECOND * plane] = (float)second, to[EXPONENTIAL * plane] = (float)exponentials;
        }
    }

    bool run() {
        const int64_t heads = p.batch * p.key_heads;
#pragma omp parallel num_threads((int)p.threads)
        {
#pragma omp for schedule(dynamic, 1)
            for (int64_t item = 0; item < heads * spans; item++) span(item);
#pragma omp for
            for (int64_t head = 0; head < heads; head++) {
                for (int64_t h = head % p.key_heads * group; h < (head % p.key_heads + 1) * group; h++)
                    if (!is_ordinary_beside_tensors(p, head / p.key_heads, h, 0, p.queries)) ordinary = false;
                join(head);
            }
        }
        return ordinary;
    }
};
