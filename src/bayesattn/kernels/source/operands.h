// The two sides of a product of tiles, from numbers of any type. Float32 is read where it lies; bfloat16 as words of two numbers, where the
// processor multiplies pairs; what is left is converted to float32, tile by tile.
#pragma once

#include "halves.h"
#include "matmul.h"

// Rows of words of 32 bits: numbers of float32, or pairs of bfloat16.
struct Words {
    const float* start;
    int64_t step;
};

static inline bool in_pairs(const Problem& p) { return CAN_PAIR && p.type == BFLOAT16; }
static inline bool is_converted(const Problem& p) { return p.type != FLOAT32 && !in_pairs(p); }
static inline int64_t words_of(const Problem& p, int64_t numbers) { return in_pairs(p) ? (numbers + 1) / 2 : numbers; }

static inline Words converted(const Problem& p, const void* from, int64_t step, int64_t rows, int64_t columns, float* room) {
    with_type(p.type, [&](auto type) {
        for (int64_t row = 0; row < rows; row++)
            for (int64_t column = 0; column < columns; column += WIDTH)
                store(room + row * columns + column, load_as<decltype(type)::value>(from, row * step + column));
    });
    return {room, columns};
}

// Rows as the left side of a product over their columns. The room is used for what must be converted.
static inline Words left_side(const Problem& p, const void* from, int64_t step, int64_t rows, int64_t columns, float* room) {
    if (is_converted(p)) return converted(p, from, step, rows, columns, room);
    return {static_cast<const float*>(from), in_pairs(p) ? step / 2 : step};
}

// Rows as the right side of a product over the rows; an odd one has 0 beside it.
static inline Words right_side(const Problem& p, const void* from, int64_t step, int64_t rows, int64_t columns, float* room) {
    if (p.type == FLOAT32) return {static_cast<const float*>(from), step};
    if (!in_pairs(p)) return converted(p, from, step, rows, columns, room);
    for (int64_t row = 0; row < rows; row += 2)
        for (int64_t column = 0; column < columns; column += WIDTH) {
            const WordVector low = __builtin_convertvector(load_halves(from, row * step + column), WordVector);
            const WordVector high = row + 1 < rows ? __builtin_convertvector(load_halves(from, (row + 1) * step + column), WordVector) : WordVector{};
            *reinterpret_cast<WordVector*>(room + row / 2 * columns + column) = low | (high << 16);
        }
    return {room, columns};
}

// Rows as the right side of a product over their columns: a tile [columns x BLOCK], times the factor unless it is in pairs.
static inline void turned_right_side(const Problem& p, const void* from, int64_t step, int64_t rows, int64_t columns, float factor, float* tile, float* room) {
#if defined(__AVX512F__)
    if (in_pairs(p)) return transpose_pairs(static_cast<const float*>(from), step / 2, rows, columns / 2, tile);
#endif
    const Words words = left_side(p, from, step, rows, columns, room);
    transpose(words.start, words.step, rows, columns, factor, tile);
}

// A tile of weights [rows x BLOCK] as the left side of a product over the keys: in place.
static inline void weights_over_keys(const Problem& p, float* tile, int64_t rows) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
    for (float* line = tile; in_pairs(p) && line < tile + rows * BLOCK; line += BLOCK)
        for (int half = 0; half < 2; half++) {
            const __m512bh pairs = _mm512_cvtne2ps_pbh((__m512)load(line + half * 2 * WIDTH + WIDTH), (__m512)load(line + half * 2 * WIDTH));
            store(line + half * WIDTH, (Vector)pairs);
        }
#endif
}

// The same for a product over the rows.
static inline const float* weights_over_rows(const Problem& p, const float* tile, int64_t rows, float* room) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
    if (in_pairs(p)) {
        alignas(64) uint16_t order[32];
        for (int lane = 0; lane < 16; lane++) order[2 * lane] = (uint16_t)lane, order[2 * lane + 1] = (uint16_t)(16 + lane);
        const __m512i places = _mm512_load_si512(order);
        for (int64_t row = 0; row < rows; row += 2)
            for (int i = 0; i < VECTORS; i++) {
                const float* one = tile + row * BLOCK + i * WIDTH;
                const Vector other = row + 1 < rows ? load(one + BLOCK) : Vector{};
                const __m512bh both = _mm512_cvtne2ps_pbh((__m512)other, (__m512)load(one));
                _mm512_storeu_si512(room + row / 2 * BLOCK + i * WIDTH, _mm512_permutexvar_epi16(places, (__m512i)both));
            }
        return room;
    }
#endif
    return tile;
}

// C = A B over so many numbers, or where it is ADDED, factor * C + A B with a factor for each row.
template <bool TRANSPOSED, bool ADDED>
static void multiply(const Problem& p, int64_t rows, int64_t columns, int64_t numbers, Words a, Words b, float* c, int64_t c_step, const float* factor = nullptr,
                     float scale = 1.0f) {
    if (in_pairs(p)) multiply_words<CAN_PAIR, TRANSPOSED, ADDED>(rows, columns, words_of(p, numbers), a.start, a.step, b.start, b.step, c, c_step, factor, scale);
    else multiply_words<false, TRANSPOSED, ADDED>(rows, columns, numbers, a.start, a.step, b.start, b.step, c, c_step, factor, scale);
}
