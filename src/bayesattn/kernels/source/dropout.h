// Dropout of any tensor: number i is that of key i % 64 of query i / 64, in the first head of the first example.
#pragma once

#include <vector>

#include "halves.h"
#include "noise.h"

template <int TYPE>
static void drop(const void* from, void* to, int64_t count, int64_t generator, uint64_t seed, int32_t threshold, float factor, int64_t threads) {
    constexpr int64_t ROWS = 64, PART = ROWS * BLOCK, SIZE = TYPE == FLOAT32 ? 4 : 2;
#pragma omp parallel num_threads((int)threads)
    {
        const NoiseBlock block(generator, seed, 0, 0, 0, DROPOUT);
        Buffer words(PART), last(BLOCK);
        std::vector<NoiseRow> rows(ROWS);
#pragma omp for
        for (int64_t part = 0; part < (count + PART - 1) / PART; part++) {
            const int64_t end = std::min(PART, count - part * PART), used = (end + BLOCK - 1) / BLOCK;
            for (int64_t row = 0; row < used; row++) rows[row] = NoiseRow(generator, seed, 0, 0, part * ROWS + row, DROPOUT);
            block.words(rows.data(), used, words.data());
            const auto drop_vector = [&](const void* source, int64_t place, void* target, int64_t word) {
                const Vector factors = NoiseBlock::bits(words.data() + word) >= threshold ? all(factor) : Vector{};
                store_as<TYPE>(target, place, load_as<TYPE>(source, place) * factors);
            };
            const int64_t whole = end / WIDTH * WIDTH;
            for (int64_t i = 0; i < whole; i += WIDTH) drop_vector(static_cast<const char*>(from) + part * PART * SIZE, i, static_cast<char*>(to) + part * PART * SIZE, i);
            if (whole == end) continue;
            const int64_t offset = (part * PART + whole) * SIZE;
            std::memset(last.data(), 0, BLOCK * sizeof(float));
            std::memcpy(last.data(), static_cast<const char*>(from) + offset, (end - whole) * SIZE);
            drop_vector(last.data(), 0, last.data(), whole);
            std::memcpy(static_cast<char*>(to) + offset, last.data(), (end - whole) * SIZE);
        }
    }
}
