// Counter-based noise, the same as in numerics/counter_noise.py: a function of (seed, batch, head, query, key).
#pragma once

#include "vector.h"

enum Generator { PHILOX = 0, HASH = 1 };
enum Noise { NO_NOISE = 0, LOG_EXPONENTIAL = 1, NORMAL = 2, GAMMA_DRAWS = 3 };
enum Stream { WEIGHTS = 0, DROPOUT = 1 };

constexpr uint32_t MULTIPLIER_0 = 0xD2511F53u, MULTIPLIER_1 = 0xCD9E8D57u;
constexpr uint32_t WEYL_0 = 0x9E3779B9u, WEYL_1 = 0xBB67AE85u;
constexpr uint32_t ROW_COUNTER = 0x80000000u;

static inline void philox(uint32_t counter[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)counter[0] * MULTIPLIER_0, p1 = (uint64_t)counter[2] * MULTIPLIER_1;
        uint32_t c0 = (uint32_t)(p1 >> 32) ^ counter[1] ^ k0, c2 = (uint32_t)(p0 >> 32) ^ counter[3] ^ k1;
        counter[0] = c0, counter[1] = (uint32_t)p1, counter[2] = c2, counter[3] = (uint32_t)p0;
        k0 += WEYL_0, k1 += WEYL_1;
    }
}

// Products of 32 bits are made in lanes of 64: even and odd counters apart, put together at the end. What is above the low
// 32 bits of a lane never matters, because the products do not read it.
#if defined(__AVX512F__)
struct Lanes {
    typedef __m512i Type;
    static constexpr int COUNTERS = 16;
    static Type fill(uint64_t x) { return _mm512_set1_epi64((long long)x); }
    static Type steps() { return _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0); }
    static Type add(Type a, Type b) { return _mm512_add_epi64(a, b); }
    static Type multiply(Type a, Type b) { return _mm512_mul_epu32(a, b); }
    static Type high(Type a) { return _mm512_shuffle_epi32(a, _MM_PERM_DDBB); }  // not a shift: the port of the products is the busy one
    static Type exclusive_or(Type a, Type b, Type c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
    static void join(uint32_t* to, Type even, Type odd) {
        _mm512_storeu_si512(to, _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA));
    }
};
#elif defined(__AVX2__)
struct Lanes {
    typedef __m256i Type;
    static constexpr int COUNTERS = 8;
    static Type fill(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
    static Type steps() { return _mm256_set_epi64x(6, 4, 2, 0); }
    static Type add(Type a, Type b) { return _mm256_add_epi64(a, b); }
    static Type multiply(Type a, Type b) { return _mm256_mul_epu32(a, b); }
    static Type high(Type a) { return _mm256_shuffle_epi32(a, 0xF5); }
    static Type exclusive_or(Type a, Type b, Type c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
    static void join(uint32_t* to, Type even, Type odd) {
        _mm256_storeu_si256((__m256i*)to, _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA));
    }
};
#endif

// The noise of one row: what is the same for all its blocks of keys.
struct NoiseRow {
    uint32_t query, first, second;

    NoiseRow() = default;
    NoiseRow(int64_t generator, uint64_t seed, int64_t example, int64_t head, int64_t query_index, int stream) : query((uint32_t)query_index) {
        const uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        if (generator == HASH) {
            uint32_t counter[4] = {ROW_COUNTER, query, (uint32_t)head, (uint32_t)example + ((uint32_t)stream << 24)};
            philox(counter, k0, k1);
            first = counter[0], second = counter[1];
        } else {  // the part of Philox's first two rounds that no key has a part in
            const uint64_t of_head = (uint64_t)(uint32_t)head * MULTIPLIER_1;
            const uint64_t product = (uint64_t)((uint32_t)(of_head >> 32) ^ query ^ k0) * MULTIPLIER_0;
            first = (uint32_t)(product >> 32) ^ (k1 + WEYL_1), second = (uint32_t)product;
        }
    }
};

// The noise of one block of keys: what is the same for all rows of a head.
struct NoiseBlock {
    int64_t generator;
    uint32_t k0, k1, head, example, block;
    alignas(64) uint32_t hashed[BLOCK];
#if defined(__AVX2__)
    // What Philox has after two rounds that no row has a part in: the first word's product of the third round (its high and low word),
    // the second word, and the fourth of the first round.
    static constexpr int GROUPS = 16 / Lanes::COUNTERS;
    Lanes::Type high[GROUPS][2], low[GROUPS][2], c1[GROUPS][2], c3[GROUPS][2];
    uint64_t round_keys[10][2];
#endif

    NoiseBlock(int64_t generator, uint64_t seed, int64_t example_index, int64_t head_index, int64_t block_index, int stream)
        : generator(generator), k0((uint32_t)seed), k1((uint32_t)(seed >> 32)), head((uint32_t)head_index),
          example((uint32_t)example_index + ((uint32_t)stream << 24)), block((uint32_t)block_index) {
        if (generator == HASH) {
            for (uint32_t lane = 0; lane < BLOCK; lane++) hashed[lane] = (block * BLOCK + lane) * 0x9E3779B1u;
            return;
        }
#if defined(__AVX2__)
        typedef Lanes::Type Type;
        const Type zero = Lanes::fill(0), m0 = Lanes::fill(MULTIPLIER_0), m1 = Lanes::fill(MULTIPLIER_1);
        const uint64_t of_head = (uint64_t)head * MULTIPLIER_1;
        for (int round = 0; round < 10; round++) round_keys[round][0] = k0 + round * WEYL_0, round_keys[round][1] = k1 + round * WEYL_1;
        for (int group = 0; group < GROUPS; group++) {
            for (int odd = 0; odd < 2; odd++) {
                const Type lane = Lanes::add(Lanes::fill(block * 16 + group * Lanes::COUNTERS + odd), Lanes::steps());
                const Type p0 = Lanes::multiply(lane, m0);
                const Type p1 = Lanes::multiply(Lanes::exclusive_or(Lanes::high(p0), Lanes::fill(example ^ k1), zero), m1);
                const Type c0 = Lanes::exclusive_or(Lanes::high(p1), Lanes::fill((uint32_t)of_head ^ (k0 + WEYL_0)), zero);
                low[group][odd] = Lanes::multiply(c0, m0), high[group][odd] = Lanes::high(low[group][odd]);
                c1[group][odd] = p1, c3[group][odd] = p0;
            }
        }
#endif
    }

    // The words of ROWS rows: several at once, because one alone waits for its products.
    template <int ROWS>
    inline void philox_words(const NoiseRow* rows, float* words) const {
#if defined(__AVX2__)
        typedef Lanes::Type Type;
        constexpr int CHAINS = 2 * ROWS;
        const Type m0 = Lanes::fill(MULTIPLIER_0), m1 = Lanes::fill(MULTIPLIER_1), zero = Lanes::fill(0);
        for (int group = 0; group < GROUPS; group++) {
            Type a[CHAINS], b[CHAINS], c[CHAINS], d[CHAINS];
            {
                const Type key0 = Lanes::fill(round_keys[2][0]), key1 = Lanes::fill(round_keys[2][1]);
#pragma GCC unroll 8
                for (int i = 0; i < CHAINS; i++) {
                    const NoiseRow& row = rows[i / 2];
                    const Type p1 = Lanes::multiply(Lanes::exclusive_or(c3[group][i % 2], Lanes::fill(row.first), zero), m1);
                    a[i] = Lanes::exclusive_or(Lanes::high(p1), c1[group][i % 2], key0), b[i] = p1;
                    c[i] = Lanes::exclusive_or(high[group][i % 2], Lanes::fill(row.second), key1), d[i] = low[group][i % 2];
                }
            }
#pragma GCC unroll 8
            for (int round = 3; round < 10; round++) {
                const Type key0 = Lanes::fill(round_keys[round][0]), key1 = Lanes::fill(round_keys[round][1]);
#pragma GCC unroll 8
                for (int i = 0; i < CHAINS; i++) {
                    const Type p0 = Lanes::multiply(a[i], m0), p1 = Lanes::multiply(c[i], m1);
                    a[i] = Lanes::exclusive_or(Lanes::high(p1), b[i], key0);
                    c[i] = Lanes::exclusive_or(Lanes::high(p0), d[i], key1);
                    b[i] = p1, d[i] = p0;
                }
            }
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; row++) {
                uint32_t* to = reinterpret_cast<uint32_t*>(words) + row * BLOCK + group * Lanes::COUNTERS;
                const int i = 2 * row;
                Lanes::join(to, a[i], a[i + 1]), Lanes::join(to + 16, b[i], b[i + 1]);
                Lanes::join(to + 32, c[i], c[i + 1]), Lanes::join(to + 48, d[i], d[i + 1]);
            }
        }
#else
        for (int row = 0; row < ROWS; row++)
            for (uint32_t lane = 0; lane < 16; lane++) {
                uint32_t counter[4] = {block * 16 + lane, rows[row].query, head, example};
                philox(counter, k0, k1);
                for (int word = 0; word < 4; word++) std::memcpy(words + row * BLOCK + 16 * word + lane, counter + word, 4);
            }
#endif
    }

    inline void hash_words(const NoiseRow& row, float* words) const {
        for (int i = 0; i < VECTORS; i++) {
            WordVector word = *reinterpret_cast<const WordVector*>(hashed + i * WIDTH) ^ row.first;
            word = ((word ^ (WordVector)((IntVector)word >> 16)) * 0x85EBCA6Bu) ^ row.second;
            word = (word ^ (WordVector)((IntVector)word >> 13)) * 0xC2B2AE35u;
            *reinterpret_cast<WordVector*>(words + i * WIDTH) = word;
        }
    }

    // 32 random bits for each key of the block, for some rows.
    void words(const NoiseRow* rows, int64_t count, float* out) const {
        if (generator == HASH) {
            for (int64_t row = 0; row < count; row++) hash_words(rows[row], out + row * BLOCK);
            return;
        }
        int64_t row = 0;
        for (; row + 2 <= count; row += 2) philox_words<2>(rows + row, out + row * BLOCK);
        if (row < count) philox_words<1>(rows + row, out + row * BLOCK);
    }

    // 23 random bits, of the words of one vector of keys.
    static inline IntVector bits(const float* words) {
        const WordVector word = *reinterpret_cast<const WordVector*>(words) >> 9;
        return (IntVector)word;
    }

    // (bits + 1/2) / 2^23, exact in float32.
    static inline Vector uniform(const float* words) { return bits_as_float(bits(words) | 0x3f800000) - (1.0f - 0x1p-24f); }

    // The noise of some rows. In passes over all of them, so that each has many independent steps in flight.
    template <int KIND>
    void draw(const NoiseRow* rows, int64_t count, float* out) const {
        if (KIND == NO_NOISE) return;
        words(rows, count, out);
        if (KIND == LOG_EXPONENTIAL) {
            for (int64_t at = 0; at < count * BLOCK; at += BLOCK) {
                Vector x[VECTORS];
                for (int i = 0; i < VECTORS; i++) x[i] = uniform(out + at + i * WIDTH);
                short_logarithms<VECTORS>(x);
                short_logarithms<VECTORS>(x);
                for (int i = 0; i < VECTORS; i++) store(out + at + i * WIDTH, x[i]);
            }
            return;
        }
        for (int64_t at = 0; at < count * BLOCK; at += 2 * 16) {  // words 0 and 1, then words 2 and 3, of each row
            for (int lane = 0; lane < 16; lane += WIDTH) {
                float *one = out + at + lane, *other = one + 16;
                Vector cosine, sine, logarithm[1] = {uniform(one)};
                short_logarithms<1>(logarithm);
                const Vector radius = square_root(logarithm[0] * -2.0f);
                cosine_and_sine(uniform(other), cosine, sine);
                store(one, radius * cosine), store(other, radius * sine);
            }
        }
    }
};
