// Attention with random weights, tiled: forward and backward, nothing of size queries x keys is ever stored.
//
// The noise is a function of its place (noise.h), so that the backward pass makes it again. Rows of queries are
// independent and every sum over keys or queries runs in index order: the result depends neither on the number of
// threads nor on the size of the query tiles.
#include "backward.h"
#include "forward.h"

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
    if (p->noise == GAMMA_DRAWS) forward<GAMMA_DRAWS, GENERAL>(*p);
    else if (p->noise == LOG_EXPONENTIAL) forward_by_mode<LOG_EXPONENTIAL>(*p);
    else if (p->noise == NORMAL) forward_by_mode<NORMAL>(*p);
    else forward_by_mode<NO_NOISE>(*p);
}

extern "C" void bayesattn_backward(const Problem* p) {
    if (p->noise == GAMMA_DRAWS) backward<GAMMA_DRAWS, GENERAL>(*p);
    else if (p->noise == LOG_EXPONENTIAL) backward_by_mode<LOG_EXPONENTIAL>(*p);
    else if (p->noise == NORMAL) backward_by_mode<NORMAL>(*p);
    else backward_by_mode<NO_NOISE>(*p);
}

extern "C" int64_t bayesattn_problem_size() { return sizeof(Problem); }
