// The backward pass.
#pragma once

#include <thread>

#include "forward.h"

// Gradients of one row. A block takes scores and the gradient of the weights, and leaves the weights as used (in `line`), and the gradient of the
// scores, times the scale (in `gradient`).
struct alignas(64) RowGradient {
    Vector noise_scale_gradient{};
    float delta, log_total, noise_scale, prior_total, of_total, of_first, of_second, of_exponentials, total;
    float prior_total_gradient = 0, sharpness_gradient = 0;

    template <int KIND, int MODE, bool MASKED>
    inline void block(const Problem& p, const float* noise, const float* slopes, const float* drops, float* line, float* gradient,
                      const float* prior_logits, float* prior_gradient) {
        for (int i = 0; i < VECTORS; i++) {
            const Vector phi = load(line + i * WIDTH);
            const Vector logits = KIND == NO_NOISE ? phi : KIND == GAMMA_DRAWS ? load(noise + i * WIDTH) : phi + load(noise + i * WIDTH) * noise_scale;
            const Vector weight = where_allowed<MASKED>(phi, exponential(logits - log_total));
            Vector of_weight = load(gradient + i * WIDTH), used = weight;
            if (drops) of_weight = dropped(p, drops + i * WIDTH, of_weight), used = dropped(p, drops + i * WIDTH, weight);
            Vector of_score = weight * (of_weight - delta), of_concentration{};
            if (KIND == GAMMA_DRAWS) of_concentration = of_score * load(slopes + i * WIDTH), of_score = Vector{};
            else if (KIND != NO_NOISE) noise_scale_gradient += of_score * load(noise + i * WIDTH);
            if (MODE == USUAL) of_score += where_allowed<MASKED>(phi, of_total * exponential(phi - total) + of_first);
            if (MODE == GENERAL) of_score += general(p, i, phi, of_concentration, prior_logits, prior_gradient);
            store(line + i * WIDTH, used);
            store(gradient + i * WIDTH, of_score * (float)p.scale);
        }
    }

    Vector general(const Problem& p, int i, Vector phi, Vector of_concentration, const float* prior_logits, float* prior_gradient) {
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
            case GAMMA: {
                const Vector log_q = maximum(x + prior_total, all(SMALLEST_LOG_CONCENTRATION)), q = exponential(log_q);
                const Vector distance = q - std::exp((float)p.log_concentration);
                of_concentration += of_second * q + of_first * (1.0f + q * distance * Inverses(q).trigamma() - exponential((float)p.log_concentration - log_q));
                break;
            }
        }
        if (p.prior_logits) {
            of_prior = where_allowed<true>(phi, of_prior);
            store(prior_gradient + i * WIDTH, load(prior_gradient + i * WIDTH) + of_prior);
            if (p.statistics != SQUARES_LOG) prior_total_gradient -= sum_of(of_prior);
        }
        if (uses_gamma(p)) {
            of_concentration = x + prior_total > all(SMALLEST_LOG_CONCENTRATION) ? of_concentration : Vector{};
            noise_scale_gradient += where_allowed<true>(phi, of_concentration);
            of_score += of_concentration;
        }
        if (p.wants_total) of_score += of_total * exponential(x - total);
        if (p.wants_exponential) of_score += of_exponentials * slope_of_linear_tail(x);
        return where_allowed<true>(phi, of_score);
    }

    // After a first walk over all keys: a concentration moves with its score, and with the total of its row.
    void sum_of_concentrations() {
        sharpness_gradient = sum_of(noise_scale_gradient);
        of_total -= sharpness_gradient;
    }
};

template <int KIND, int MODE>
struct Backward {
    const Problem& p;
    const int64_t group, tile, tiles, plane;
    std::vector<RowGradient> state;
    std::vector<NoiseRow> noise_rows, dropout_rows;
    std::vector<std::atomic<int64_t>> added;  // for each tile of queries, the blocks of keys whose part its gradients have
    Buffer wide_grad_query;                   // where the gradients of queries of 16 bits are added up
    float* const grad_query;

    explicit Backward(const Problem& p)
        : p(p), group(p.heads / p.key_heads), tile(p.query_tile), tiles((p.queries + tile - 1) / tile), plane(p.batch * p.heads * p.queries),
          state(plane), noise_rows(KIND == NO_NOISE || KIND == GAMMA_DRAWS ? 0 : plane), dropout_rows(p.dropout_threshold ? plane : 0),
          added(p.batch * p.heads * tiles), wide_grad_query(p.type == FLOAT32 ? 0 : plane * p.features),
          grad_query(p.type == FLOAT32 ? static_cast<float*>(p.grad_query) : wide_grad_query.data()) {}

    // Where the tiles of one thread lie.
    struct Room {
        Buffer key_tile, value_tile, scores, gradients, noise, slopes, drops, grad_key, grad_value;
        // what is made of numbers of 16 bits: rows of queries or keys as they are, queries and upstream gradients as right sides, keys too, weights
        Buffer rows, query_room, upstream_room, key_room, weight_pairs, gradient_pairs;
        Words keys;

        explicit Room(const Problem& p)
            : key_tile(p.features * BLOCK), value_tile(p.values * BLOCK), scores(p.query_tile * BLOCK), gradients(p.query_tile * BLOCK),
              noise(p.query_tile * BLOCK), slopes(KIND == GAMMA_DRAWS ? p.query_tile * BLOCK : 0), drops(p.dropout_threshold ? p.query_tile * BLOCK : 0),
              grad_key(p.features * BLOCK), grad_value(p.values * BLOCK),
              rows(is_converted(p) ? std::max<int64_t>(p.query_tile, BLOCK) * std::max(p.features, p.values) : 0),
              query_room(p.type == FLOAT32 ? 0 : p.query_tile * p.features), upstream_room(p.type == FLOAT32 ? 0 : p.query_tile * p.values),
              key_room(p.type == FLOAT32 ? 0 : BLOCK * p.features), weight_pairs(in_pairs(p) ? (p.query_tile + 1) / 2 * BLOCK : 0),
              gradient_pairs(in_pairs(p) ? (p.query_tile + 1) / 2 * BLOCK : 0) {}

        int64_t load_keys(const Problem& p, int64_t b, int64_t kv, int64_t k0) {
            const int64_t width = std::min<int64_t>(BLOCK, key_limit(p, b) - k0);
            const void *key = at(p, p.key, p.key_stride, b, kv, k0), *value = at(p, p.value, p.value_stride, b, kv, k0);
            turned_right_side(p, key, p.key_stride[2], width, p.features, (float)p.scale, key_tile.data(), rows.data());
            turned_right_side(p, value, p.value_stride[2], width, p.values, 1.0f, value_tile.data(), rows.data());
            keys = right_side(p, key, p.key_stride[2], width, p.features, key_room.data());
            return width;
        }
    };

    // What the blocks of keys need of the rows of some queries.
    void begin_rows(int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
        for (int64_t query = q_begin; query < q_end; query++) {
            const int64_t row = (b * p.heads + h) * p.queries + query;
            const void *out = offset(p, static_cast<const void*>(p.output), row * p.values), *of_out = at(p, p.grad_output, p.grad_output_stride, b, h, query);
            Vector dot{};
            with_type(p.type, [&](auto type) {
                for (int64_t d = 0; d < p.values; d += WIDTH) dot += load_as<decltype(type)::value>(out, d) * load_as<decltype(type)::value>(of_out, d);
            });
            std::fill_n(grad_query + row * p.features, p.features, 0.0f);
            RowGradient& of = state[row];
            if (!noise_rows.empty()) noise_rows[row] = NoiseRow(p.generator, p.seed, b, h, query, WEIGHTS);
            if (p.dropout_threshold) dropout_rows[row] = NoiseRow(p.generator, p.seed, b, h, query, DROPOUT);
            of.delta = sum_of(dot), of.log_total = p.log_total[row];
            of.total = p.row_statistics[TOTAL * plane + row];
            of.noise_scale = per_row(p.noise_scale, p.noise_scale_stride, b, h, query);
            of.prior_total = uses_gamma(p) ? of.noise_scale - of.total : per_row(p.prior_total, p.prior_total_stride, b, h, query);
            const float* upstream = p.grad_statistics + row;
            of.of_total = upstream[TOTAL * plane], of.of_first = upstream[FIRST * plane];
            of.of_second = upstream[SECOND * plane], of.of_exponentials = upstream[EXPONENTIAL * plane];
        }
        if (!uses_gamma(p)) return;
        Room room(p);
        const int64_t limit = key_limit(p, b);
        for (int64_t k0 = 0; k0 < limit && !(p.causal && k0 >= q_end); k0 += BLOCK) {
            room.load_keys(p, b, h / group, k0);
            float padded[BLOCK], unused[BLOCK] = {};
            const float* prior = prior_block(p, b, h, k0, padded);
            const Streams streams(p, b, h, k0 / BLOCK);
            for (int64_t q0 = q_begin; q0 < q_end; q0 += tile) {
                const int64_t rows = std::min(tile, q_end - q0);
                if (p.causal && k0 > q0 + rows - 1) continue;
                add_rows(room, b, h, q0, rows, prior, unused, make_tile(room, streams, b, h, q0, rows, k0));
            }
        }
        for (int64_t query = q_begin; query < q_end; query++) state[(b * p.heads + h) * p.queries + query].sum_of_concentrations();
    }

    // The noise of one block of keys.
    struct Streams {
        NoiseBlock noise, dropout;
        std::vector<GammaBlock> gamma;

        Streams(const Problem& p, int64_t b, int64_t h, int64_t block)
            : noise(p.generator, p.seed, b, h, block, WEIGHTS), dropout(p.generator, p.seed, b, h, block, DROPOUT) {
            if (KIND == GAMMA_DRAWS) gamma.emplace_back(p.generator, p.seed, b, h, block);
        }
    };

    // Scores, gradients of the weights, and noise of a tile. True if anything in it is masked.
    bool make_tile(Room& room, const Streams& streams, int64_t b, int64_t h, int64_t q0, int64_t rows, int64_t k0) {
        const int64_t row = (b * p.heads + h) * p.queries + q0;
        const Words query = left_side(p, at(p, p.query, p.query_stride, b, h, q0), p.query_stride[2], rows, p.features, room.rows.data());
        multiply<false, false>(p, rows, BLOCK, p.features, query, {room.key_tile.data(), BLOCK}, room.scores.data(), BLOCK, nullptr, (float)p.scale);
        const bool masked = mask_tile(p, b, h, q0, rows, k0, key_limit(p, b), room.scores.data());
        const Words upstream = left_side(p, at(p, p.grad_output, p.grad_output_stride, b, h, q0), p.grad_output_stride[2], rows, p.values, room.rows.data());
        multiply<false, false>(p, rows, BLOCK, p.values, upstream, {room.value_tile.data(), BLOCK}, room.gradients.data(), BLOCK);
        if (KIND == GAMMA_DRAWS) {
            std::vector<float> of_row(rows);
            for (int64_t r = 0; r < rows; r++) of_row[r] = state[row + r].prior_total;
            concentrations(room.scores.data(), rows, of_row.data(), room.noise.data());
            streams.gamma[0].template draw<true>(q0, rows, room.noise.data(), room.slopes.data());
        } else if (KIND != NO_NOISE) {
            streams.noise.template draw<KIND>(&noise_rows[row], rows, room.noise.data());
        }
        if (p.dropout_threshold) streams.dropout.words(&dropout_rows[row], rows, room.drops.data());
        return masked;
    }

    void add_rows(Room& room, int64_t b, int64_t h, int64_t q0, int64_t rows, const float* prior, float* prior_gradient, bool masked) {
        for (int64_t r = 0; r < rows; r++) {
            RowGradient& of = state[(b * p.heads + h) * p.queries + q0 + r];
            float *line = room.scores.data() + r * BLOCK, *gradient = room.gradients.data() + r * BLOCK;
            const float *drops = p.dropout_threshold ? room.drops.data() + r * BLOCK : nullptr, *noise = room.noise.data() + r * BLOCK;
            const float* slopes = room.slopes.data() + r * BLOCK;
            if (masked) of.template block<KIND, MODE, true>(p, noise, slopes, drops, line, gradient, prior, prior_gradient);
            else of.template block<KIND, MODE, false>(p, noise, slopes, drops, line, gradient, prior, prior_gradient);
        }
    }

    // All gradients of one block of keys: tiles of queries of every head of its group. Blocks of a head may run at the same time; each waits for the
    // one before it at every tile, whose gradients they add to in the order of the keys, and so runs one tile behind it.
    void key_block(Room& room, int64_t b, int64_t kv, int64_t block) {
        const int64_t k0 = block * BLOCK, width = room.load_keys(p, b, kv, k0);
        std::fill_n(room.grad_key.data(), BLOCK * p.features, 0.0f), std::fill_n(room.grad_value.data(), BLOCK * p.values, 0.0f);
        const std::vector<float> ones(std::max<int64_t>(tile, BLOCK), 1.0f);
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
            float padded[BLOCK], prior_gradient[BLOCK] = {};
            const float* prior = prior_block(p, b, h, k0, padded);
            const Streams streams(p, b, h, block);
            for (int64_t q0 = p.causal ? k0 / tile * tile : 0; q0 < p.queries; q0 += tile) {
                const int64_t rows = std::min(tile, p.queries - q0);
                const bool masked = make_tile(room, streams, b, h, q0, rows, k0);
                std::atomic<int64_t>& before = added[(b * p.heads + h) * tiles + q0 / tile];
                while (before.load(std::memory_order_acquire) < block) std::this_thread::yield();
                add_rows(room, b, h, q0, rows, prior, prior_gradient, masked);
                const Words weights = {weights_over_rows(p, room.scores.data(), rows, room.weight_pairs.data()), BLOCK};
                const Words gradients = {weights_over_rows(p, room.gradients.data(), rows, room.gradient_pairs.data()), BLOCK};
                weights_over_keys(p, room.gradients.data(), rows);
                float* of_queries = grad_query + ((b * p.heads + h) * p.queries + q0) * p.features;
                multiply<false, true>(p, rows, p.features, width, {room.gradients.data(), BLOCK}, room.keys, of_queries, p.features, ones.data());
                before.store(block + 1, std::memory_order_release);
                const Words upstream = right_side(p, at(p, p.grad_output, p.grad_output_stride, b, h, q0), p.grad_output_stride[2], rows, p.values, room.upstream_room.data());
                multiply<true, true>(p, width, p.values, rows, weights, upstream, room.grad_value.data(), p.values, ones.data());
                const Words query = right_side(p, at(p, p.query, p.query_stride, b, h, q0), p.query_stride[2], rows, p.features, room.query_room.data());
                multiply<true, true>(p, width, p.features, rows, gradients, query, room.grad_key.data(), p.features, ones.data());
            }
            if (p.prior_logits) {
                float* to = p.grad_prior_logits + (b * p.heads + h) * p.keys + k0;
                for (int64_t j = 0; j < width; j++) to[j] = prior_gradient[j];
            }
        }
        const int64_t first = (b * p.key_heads + kv) * p.keys + k0;
        write(p.grad_key, first * p.features, room.grad_key.data(), width * p.features);
        write(p.grad_value, first * p.values, room.grad_value.data(), width * p.values);
    }

    void write(void* to, int64_t place, const float* from, int64_t count) const {
        with_type(p.type, [&](auto type) {
            for (int64_t i = 0; i < count; i += WIDTH) store_as<decltype(type)::value, true>(to, place + i, load(from + i));
        });
    }

    // False if some numbers are not ordinary: then the gradients are worth nothing.
    bool run() {
        const int64_t most_rows = std::max<int64_t>(1, 512 / tile) * tile, parts = (p.queries + most_rows - 1) / most_rows;
        const int64_t heads = p.batch * p.key_heads, blocks = (p.keys + BLOCK - 1) / BLOCK;
        std::atomic<bool> ordinary{true};
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)p.threads)
        for (int64_t item = 0; item < p.batch * p.heads * parts; item++) {
            const int64_t b = item / parts / p.heads, h = item / parts % p.heads, begin = item % parts * most_rows;
            const int64_t end = std::min(begin + most_rows, p.queries);
            if (ordinary && !is_ordinary(p, b, h, begin, end)) ordinary = false;
            if (ordinary) begin_rows(b, h, begin, end);
        }
        if (!ordinary) return false;
        // as many whole heads as keep all threads busy, whose tiles then stay in one cache; the rest block by block
        const int64_t whole = heads / p.threads * p.threads, items = whole + (heads - whole) * blocks;
#pragma omp parallel num_threads((int)p.threads)
        {
            Room room(p);
#pragma omp for schedule(monotonic : dynamic, 1)
            for (int64_t item = 0; item < items; item++) {
                const int64_t head = item < whole ? item : whole + (item - whole) / blocks;
                const int64_t begin = item < whole ? 0 : (item - whole) % blocks, end = item < whole ? blocks : begin + 1;
                for (int64_t block = begin; block < end && block * BLOCK < key_limit(p, head / p.key_heads); block++)
                    key_block(room, head / p.key_heads, head % p.key_heads, block);
            }
        }
#pragma omp parallel for num_threads((int)p.threads)
        for (int64_t row = 0; row < plane; row++) {
            const RowGradient& of = state[row];
            if (p.type != FLOAT32) write(p.grad_query, row * p.features, grad_query + row * p.features, p.features);
            if (p.grad_noise_scale) p.grad_noise_scale[row] = uses_gamma(p) ? of.sharpness_gradient : sum_of(of.noise_scale_gradient);
            if (p.grad_prior_total) p.grad_prior_total[row] = of.prior_total_gradient;
        }
        return true;
    }
};

template <int KIND, int MODE>
static bool backward(const Problem& p) {
    return Backward<KIND, MODE>(p).run();
}
