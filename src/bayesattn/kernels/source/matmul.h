// Small matrix products on tiles that lie in cache. Columns come in multiples of 16, rows in any number.
#pragma once

#include <algorithm>
#include <utility>

#include "halves.h"
#include "vector.h"

typedef int32_t Word __attribute__((may_alias));

// sum + one * right; of PAIRED words, which are two numbers of bfloat16, the sum of both products.
template <bool PAIRED>
__attribute__((always_inline)) static inline Vector multiply_add(Vector sum, const float* one, Vector right) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
    if (PAIRED) {  // as whole numbers: arithmetic on a pair as if it were a float32 could change it
        const __m512i both = _mm512_set1_epi32(*reinterpret_cast<const Word*>(one));
        return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)both, (__m512bh)right);
    }
#endif
    return sum + *one * right;
}

// C[ROWS x COLUMNS vectors] = A B, or where it is ADDED, factor * C + A B. A[row, k] is at a[row * a_step + k], or where it is TRANSPOSED, in a
// tile, at a[k * BLOCK + row]. The depth and the steps of A and B count words of 32 bits. What is PAIRED and not ADDED is multiplied by `scale`.
template <bool PAIRED, int ROWS, int COLUMNS, bool TRANSPOSED, bool ADDED>
__attribute__((always_inline)) static inline void multiply_block(int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                                 float* c, int64_t c_step, const float* factor, float scale) {
    Vector sum[ROWS][COLUMNS];
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 4
        for (int column = 0; column < COLUMNS; column++)
            sum[row][column] = ADDED ? load(c + row * c_step + column * WIDTH) * factor[row] : Vector{};
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        Vector right[COLUMNS];
#pragma GCC unroll 4
        for (int column = 0; column < COLUMNS; column++) right[column] = load(b + k * b_step + column * WIDTH);
#pragma GCC unroll 16
        for (int row = 0; row < ROWS; row++) {
            const float* one = TRANSPOSED ? a + k * BLOCK + row : a + row * a_step + k;
#pragma GCC unroll 4
            for (int column = 0; column < COLUMNS; column++) sum[row][column] = multiply_add<PAIRED>(sum[row][column], one, right[column]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 4
        for (int column = 0; column < COLUMNS; column++)
            store(c + row * c_step + column * WIDTH, PAIRED && !ADDED ? sum[row][column] * scale : sum[row][column]);
}

// Rows that are multiplied at once by so many vectors of columns: 16 accumulators of the 32 registers that AVX-512 has, 8 of 16 elsewhere.
constexpr int rows_at_once(int columns) { return (WIDTH == 16 ? 16 : 8) / columns; }

template <bool PAIRED, int COLUMNS, bool TRANSPOSED, bool ADDED>
__attribute__((noinline)) static void multiply_columns(int64_t rows, int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                       float* c, int64_t c_step, const float* factor, float scale) {
    constexpr int ROWS = rows_at_once(COLUMNS);
    const int64_t step = TRANSPOSED ? 1 : a_step;
    int64_t row = 0;
    for (; row + ROWS <= rows; row += ROWS)
        multiply_block<PAIRED, ROWS, COLUMNS, TRANSPOSED, ADDED>(depth, a + row * step, a_step, b, b_step, c + row * c_step, c_step, ADDED ? factor + row : nullptr, scale);
    for (; row < rows; row++)
        multiply_block<PAIRED, 1, COLUMNS, TRANSPOSED, ADDED>(depth, a + row * step, a_step, b, b_step, c + row * c_step, c_step, ADDED ? factor + row : nullptr, scale);
}

template <bool PAIRED, bool TRANSPOSED, bool ADDED>
static void multiply_words(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
                           int64_t c_step, const float* factor, float scale) {
    int64_t column = 0;
    for (; column + 4 * WIDTH <= columns; column += 4 * WIDTH)
        multiply_columns<PAIRED, 4, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor, scale);
    for (; column + 2 * WIDTH <= columns; column += 2 * WIDTH)
        multiply_columns<PAIRED, 2, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor, scale);
    for (; column < columns; column += WIDTH)
        multiply_columns<PAIRED, 1, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor, scale);
}

// [a0 b0 a1 b1 ...] of the lower or the upper half of both.
template <bool UPPER, size_t... I>
static inline Vector interleave(Vector a, Vector b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, ((UPPER ? WIDTH / 2 : 0) + I / 2 + (I % 2 ? WIDTH : 0))...);
}

// WIDTH rows become WIDTH columns: each step interleaves row i with row i + WIDTH / 2, and after log2(WIDTH) steps all are in place.
static inline void transpose_square(Vector square[WIDTH]) {
    for (int step = 1; step < WIDTH; step *= 2) {
        Vector next[WIDTH];
        for (int i = 0; i < WIDTH / 2; i++) {
            next[2 * i] = interleave<false>(square[i], square[i + WIDTH / 2], std::make_index_sequence<WIDTH>());
            next[2 * i + 1] = interleave<true>(square[i], square[i + WIDTH / 2], std::make_index_sequence<WIDTH>());
        }
        for (int i = 0; i < WIDTH; i++) square[i] = next[i];
    }
}

// Rows of a matrix as the columns of a tile [features x BLOCK], times a factor; columns beyond `rows` are 0.
static inline void transpose(const float* from, int64_t step, int64_t rows, int64_t features, float factor, float* tile) {
    for (int64_t f = 0; f < features; f += WIDTH) {
        for (int64_t first = 0; first < BLOCK; first += WIDTH) {
            Vector square[WIDTH];
            for (int i = 0; i < WIDTH; i++) square[i] = first + i < rows ? load(from + (first + i) * step + f) * factor : Vector{};
            transpose_square(square);
            for (int i = 0; i < WIDTH; i++) store(tile + (f + i) * BLOCK + first, square[i]);
        }
    }
}

#if defined(__AVX512F__)
// The same of pairs as they are; their number need not be a multiple of WIDTH.
static inline void transpose_pairs(const float* from, int64_t step, int64_t rows, int64_t pairs, float* tile) {
    for (int64_t f = 0; f < pairs; f += WIDTH) {
        const int64_t left = std::min<int64_t>(WIDTH, pairs - f);
        const __mmask16 inside = (__mmask16)((1u << left) - 1);
        for (int64_t first = 0; first < BLOCK; first += WIDTH) {
            Vector square[WIDTH];
            for (int i = 0; i < WIDTH; i++)
                square[i] = first + i < rows ? (Vector)_mm512_maskz_loadu_ps(inside, from + (first + i) * step + f) : Vector{};
            transpose_square(square);
            for (int i = 0; i < left; i++) store(tile + (f + i) * BLOCK + first, square[i]);
        }
    }
}
#endif
