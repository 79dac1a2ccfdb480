// Attention with random weights, tiled: forward and backward, nothing of size queries x keys is ever stored.
//
// The noise is a function of its place (noise.h), so that the backward pass makes it again. Rows of queries are
// independent and every sum over keys or queries runs in index order: the result depends neither on the number of
// threads nor on the size of the query tiles. Both passes say whether they computed it: see ordinary.h.
#include "backward.h"
#include "forward.h"

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

extern "C" int64_t bayesattn_problem_size() { return sizeof(Problem); }
