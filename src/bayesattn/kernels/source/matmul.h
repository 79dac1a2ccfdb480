// Small matrix products on tiles that lie in cache. Columns come in multiples of 16, rows in any number.
#pragma once

#include <utility>

#include "vector.h"

// C[ROWS x COLUMNS vectors] = A B, or where it is ADDED, factor * C + A B. A[row, k] is at a[row * a_step + k], or where it is TRANSPOSED, in a
// tile, at a[k * BLOCK + row].
template <int ROWS, int COLUMNS, bool TRANSPOSED, bool ADDED>
__attribute__((always_inline)) static inline void multiply_block(int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                                 float* c, int64_t c_step, const float* factor) {
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
            const float one = TRANSPOSED ? a[k * BLOCK + row] : a[row * a_step + k];
#pragma GCC unroll 4
            for (int column = 0; column < COLUMNS; column++) sum[row][column] += one * right[column];
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 4
        for (int column = 0; column < COLUMNS; column++) store(c + row * c_step + column * WIDTH, sum[row][column]);
}

// Rows that are multiplied at once by so many vectors of columns: 16 accumulators of the 32 registers that AVX-512 has, 8 of 16 elsewhere.
constexpr int rows_at_once(int columns) { return (WIDTH == 16 ? 16 : 8) / columns; }

template <int COLUMNS, bool TRANSPOSED, bool ADDED>
__attribute__((noinline)) static void multiply_columns(int64_t rows, int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                       float* c, int64_t c_step, const float* factor) {
    constexpr int ROWS = rows_at_once(COLUMNS);
    const int64_t step = TRANSPOSED ? 1 : a_step;
    int64_t row = 0;
    for (; row + ROWS <= rows; row += ROWS)
        multiply_block<ROWS, COLUMNS, TRANSPOSED, ADDED>(depth, a + row * step, a_step, b, b_step, c + row * c_step, c_step, ADDED ? factor + row : nullptr);
    for (; row < rows; row++)
        multiply_block<1, COLUMNS, TRANSPOSED, ADDED>(depth, a + row * step, a_step, b, b_step, c + row * c_step, c_step, ADDED ? factor + row : nullptr);
}

// C = A B, or where it is ADDED, factor * C + A B with a factor for each row.
template <bool TRANSPOSED, bool ADDED>
static void multiply(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
                     int64_t c_step, const float* factor = nullptr) {
    int64_t column = 0;
    for (; column + 4 * WIDTH <= columns; column += 4 * WIDTH)
        multiply_columns<4, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor);
    for (; column + 2 * WIDTH <= columns; column += 2 * WIDTH)
        multiply_columns<2, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor);
    for (; column < columns; column += WIDTH)
        multiply_columns<1, TRANSPOSED, ADDED>(rows, depth, a, a_step, b + column, b_step, c + column, c_step, factor);
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
