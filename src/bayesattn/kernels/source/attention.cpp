// Attention with random weights, tiled: forward and backward, nothing of size queries x keys is ever stored.
//
// The noise is a function of its place (noise.h), so that the backward pass makes it again. Rows of queries are
// independent and every sum over keys or queries runs in index order: the result depends neither on the number of
// threads nor on the size of the query tiles. Both passes say whether they computed it: see ordinary.h.
#include <atomic>

#include "backward.h"
#include "dropout.h"
#include "few_queries.h"
#include "forward.h"

// False if some numbers are not ordinary: then nothing is computed.
template <int KIND, int MODE>
static bool forward(const Problem& p) {
    if constexpr (KIND != GAMMA_DRAWS)
        if (has_few_queries(p)) return FewQueries<KIND, MODE>(p).run();
    // many samples share a tile of scores: fewer rows at once then, so that their sums stay in cache
    const int64_t most_rows = std::max<int64_t>(1, 512 / (p.query_tile * p.samples)) * p.query_tile;
    const int64_t blocks = (p.queries + most_rows - 1) / most_rows, items = p.batch * p.heads * blocks;
    std::atomic<bool> ordinary{true};
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)p.threads)
    for (int64_t item = 0; item < items; item++) {
        const int64_t b = item / blocks / p.heads, h = item / blocks % p.heads, begin = item % blocks * most_rows;
        const int64_t end = std::min(begin + most_rows, p.queries);
        if (ordinary && !is_ordinary(p, b, h, begin, end)) ordinary = false;
        if (ordinary) forward_rows<KIND, MODE>(p, b, h, begin, end);
    }
    return ordinary;
}

template <int KIND>
static bool forward_by_mode(const Problem& p) {
    const Mode mode = mode_of(p);
    return mode == WITHOUT ? forward<KIND, WITHOUT>(p) : mode == USUAL ? forward<KIND, USUAL>(p) : forward<KIND, GENERAL>(p);
}

template <int KIND>
static bool backward_by_mode(const Problem& p) {
    const Mode mode = mode_of(p);
    return mode == WITHOUT ? backward<KIND, WITHOUT>(p) : mode == USUAL ? backward<KIND, USUAL>(p) : backward<KIND, GENERAL>(p);
}

extern "C" int64_t bayesattn_forward(const Problem* p) {
    if (p->noise == GAMMA_DRAWS) return forward<GAMMA_DRAWS, GENERAL>(*p);
    if (p->noise == LOG_EXPONENTIAL) return forward_by_mode<LOG_EXPONENTIAL>(*p);
    return p->noise == NORMAL ? forward_by_mode<NORMAL>(*p) : forward_by_mode<NO_NOISE>(*p);
}

extern "C" int64_t bayesattn_backward(const Problem* p) {
    if (p->noise == GAMMA_DRAWS) return backward<GAMMA_DRAWS, GENERAL>(*p);
    if (p->noise == LOG_EXPONENTIAL) return backward_by_mode<LOG_EXPONENTIAL>(*p);
    return p->noise == NORMAL ? backward_by_mode<NORMAL>(*p) : backward_by_mode<NO_NOISE>(*p);
}

extern "C" int64_t bayesattn_dropout(const void* input, void* output, int64_t count, int64_t type, int64_t generator, uint64_t seed, int64_t threshold, double factor, int64_t threads) {
    with_type(type, [&](auto type) { drop<decltype(type)::value>(input, output, count, generator, seed, (int32_t)threshold, (float)factor, threads); });
    return true;
}

extern "C" int64_t bayesattn_problem_size() { return sizeof(Problem); }
