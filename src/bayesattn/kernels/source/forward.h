// The forward pass.
#pragma once

#include <atomic>

#include "ordinary.h"

// Weights of one row and one block, relative to the row's origin, in place of its noise; gives the factor of what was summed before.
template <int KIND, bool MASKED>
static inline float weigh(const float* line, float* noise, float noise_scale, RunningTotal& total) {
    Vector logits[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        logits[i] = load(line + i * WIDTH);
        if (KIND == GAMMA_DRAWS) logits[i] = MASKED ? (logits[i] > all(NOT_ALLOWED) ? load(noise + i * WIDTH) : logits[i]) : load(noise + i * WIDTH);
        else if (KIND != NO_NOISE) logits[i] += load(noise + i * WIDTH) * noise_scale;
    }
    const float factor = total.add<MASKED>(logits);
    for (int i = 0; i < VECTORS; i++) store(noise + i * WIDTH, logits[i]);
    return factor;
}

// log of the sum of exponentials of the scores of each row; 0 in an empty row.
static std::vector<float> score_totals(const Problem& p, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t kv = h / (p.heads / p.key_heads), limit = key_limit(p, b), tile = p.query_tile;
    Buffer key_tile(p.features * BLOCK), scores(tile * BLOCK), room(is_converted(p) ? std::max<int64_t>(tile, BLOCK) * p.features : 0);
    std::vector<RunningTotal> totals(q_end - q_begin);
    for (int64_t k0 = 0; k0 < limit && !(p.causal && k0 >= q_end); k0 += BLOCK) {
        turned_right_side(p, at(p, p.key, p.key_stride, b, kv, k0), p.key_stride[2], std::min<int64_t>(BLOCK, limit - k0), p.features, (float)p.scale, key_tile.data(), room.data());
        for (int64_t q0 = q_begin; q0 < q_end; q0 += tile) {
            const int64_t rows = std::min(tile, q_end - q0);
            if (p.causal && k0 > q0 + rows - 1) continue;
            const Words query = left_side(p, at(p, p.query, p.query_stride, b, h, q0), p.query_stride[2], rows, p.features, room.data());
            multiply<false, false>(p, rows, BLOCK, p.features, query, {key_tile.data(), BLOCK}, scores.data(), BLOCK, nullptr, (float)p.scale);
            mask_tile(p, b, h, q0, rows, k0, limit, scores.data());
            for (int64_t row = 0; row < rows; row++) {
                Vector phi[VECTORS];
                for (int i = 0; i < VECTORS; i++) phi[i] = load(scores.data() + row * BLOCK + i * WIDTH);
                totals[q0 - q_begin + row].add<true>(phi);
            }
        }
    }
    std::vector<float> logs(q_end - q_begin);
    for (size_t row = 0; row < logs.size(); row++) logs[row] = totals[row].sum() > 0 ? totals[row].log() : 0.0f;
    return logs;
}

// Log concentrations of a tile of scores; what is masked has some number.
static inline void concentrations(const float* scores, int64_t rows, const float* of_row, float* out) {
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < VECTORS; i++)
            store(out + row * BLOCK + i * WIDTH, maximum(load(scores + row * BLOCK + i * WIDTH) + of_row[row], all(SMALLEST_LOG_CONCENTRATION)));
}

// All keys for the queries [q_begin, q_end) of one head: tiles of keys outside, so that each is transposed once for all queries.
template <int KIND, int MODE>
static void forward_rows(const Problem& p, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t count = q_end - q_begin, kv = h / (p.heads / p.key_heads), limit = key_limit(p, b), tile = p.query_tile;
    Buffer key_tile(p.features * BLOCK), scores(tile * BLOCK), weights(tile * BLOCK), drops(p.dropout_threshold ? tile * BLOCK : 0), factor(tile), sums(p.samples * count * p.values);
    Buffer room(is_converted(p) ? std::max<int64_t>(tile, BLOCK) * p.features : 0), value_room(p.type == FLOAT32 ? 0 : p.values * BLOCK);
    std::fill_n(sums.data(), p.samples * count * p.values, 0.0f);
    std::vector<RunningTotal> totals(p.samples * count);
    std::vector<RowSums> statistics(MODE == WITHOUT ? 0 : count);
    std::vector<NoiseRow> noise_rows(p.samples * count), dropout_rows(p.dropout_threshold ? p.samples * count : 0);
    for (int64_t s = 0; s < p.samples; s++)
        for (int64_t row = 0; row < count; row++) {
            if (KIND != NO_NOISE) noise_rows[s * count + row] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, q_begin + row, WEIGHTS);
            if (p.dropout_threshold) dropout_rows[s * count + row] = NoiseRow(p.generator, p.seed, s * p.batch + b, h, q_begin + row, DROPOUT);
        }
    std::vector<float> of_row(count);  // what the statistics need of a row
    if (uses_gamma(p)) of_row = score_totals(p, b, h, q_begin, q_end);
    for (int64_t row = 0; row < count; row++)
        of_row[row] = uses_gamma(p) ? per_row(p.noise_scale, p.noise_scale_stride, b, h, q_begin + row) - of_row[row]
                                    : per_row(p.prior_total, p.prior_total_stride, b, h, q_begin + row);
    float padded[BLOCK];
    for (int64_t k0 = 0; k0 < limit && !(p.causal && k0 >= q_end); k0 += BLOCK) {
        const int64_t width = std::min<int64_t>(BLOCK, limit - k0), block = k0 / BLOCK;
        turned_right_side(p, at(p, p.key, p.key_stride, b, kv, k0), p.key_stride[2], width, p.features, (float)p.scale, key_tile.data(), room.data());
        const float* prior = prior_block(p, b, h, k0, padded);
        const Words value = right_side(p, at(p, p.value, p.value_stride, b, kv, k0), p.value_stride[2], width, p.values, value_room.data());
        for (int64_t q0 = q_begin; q0 < q_end; q0 += tile) {
            const int64_t rows = std::min(tile, q_end - q0);
            if (p.causal && k0 > q0 + rows - 1) continue;
            const Words query = left_side(p, at(p, p.query, p.query_stride, b, h, q0), p.query_stride[2], rows, p.features, room.data());
            multiply<false, false>(p, rows, BLOCK, p.features, query, {key_tile.data(), BLOCK}, scores.data(), BLOCK, nullptr, (float)p.scale);
            const bool masked = mask_tile(p, b, h, q0, rows, k0, limit, scores.data());
            for (int64_t row = 0; MODE != WITHOUT && row < rows; row++) {
                RowSums& of = statistics[q0 - q_begin + row];
                const float prior_total = of_row[q0 - q_begin + row];
                if (masked) of.add<MODE, true>(p, scores.data() + row * BLOCK, prior, prior_total);
                else of.add<MODE, false>(p, scores.data() + row * BLOCK, prior, prior_total);
            }
            for (int64_t s = 0; s < p.samples; s++) {
                const int64_t first = s * count + q0 - q_begin;
                if (KIND == GAMMA_DRAWS) {
                    concentrations(scores.data(), rows, &of_row[q0 - q_begin], weights.data());
                    GammaBlock(p.generator, p.seed, s * p.batch + b, h, block).draw<false>(q0, rows, weights.data(), nullptr);
                } else {
                    NoiseBlock(p.generator, p.seed, s * p.batch + b, h, block, WEIGHTS).draw<KIND>(&noise_rows[first], rows, weights.data());
                }
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
                weights_over_keys(p, weights.data(), rows);
                multiply<false, true>(p, rows, p.values, width, {weights.data(), BLOCK}, value, sums.data() + first * p.values, p.values, factor.data());
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
            with_type(p.type, [&](auto type) {
                for (int64_t d = 0; d < p.values; d += WIDTH)
                    store_as<decltype(type)::value>(p.output, at_row * p.values + d, load(sums.data() + at_sum * p.values + d) * inverse);
            });
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
