// Numbers of 16 bits: read into vectors of float32, and rounded back to the nearest, ties to even, as torch does.
#pragma once

#include <type_traits>

#include "problem.h"
#include "vector.h"

// Whether the processor multiplies pairs of bfloat16 and adds the products up in float32.
#if defined(__AVX512F__) && defined(__AVX512BF16__)
constexpr bool CAN_PAIR = true;
#else
constexpr bool CAN_PAIR = false;
#endif

typedef uint16_t HalfVector __attribute__((vector_size(WIDTH * 2), aligned(2), may_alias));

static inline HalfVector load_halves(const void* from, int64_t place) {
    return *reinterpret_cast<const HalfVector*>(static_cast<const uint16_t*>(from) + place);
}

template <int TYPE>
static inline Vector load_as(const void* from, int64_t place) {
    if (TYPE == FLOAT32) return load(static_cast<const float*>(from) + place);
    const IntVector half = (IntVector)__builtin_convertvector(load_halves(from, place), WordVector);
    if (TYPE == BFLOAT16) return bits_as_float(half << 16);
    const IntVector size = (half & 0x7fff) << 13, bits = float_as_bits(bits_as_float(size) * 0x1p112f);
    return bits_as_float(bits | ((size >= 0x0f800000) & 0x7f800000) | ((half & 0x8000) << 16));
}

// Float16 that is LIMITED stays a number if x is one.
template <int TYPE, bool LIMITED = false>
static inline void store_as(void* to, int64_t place, Vector x) {
    if (TYPE == FLOAT32) return store(static_cast<float*>(to) + place, x);
    const IntVector bits = float_as_bits(x), size = bits & 0x7fffffff, none = size > 0x7f800000;
    IntVector half;
    if (TYPE == BFLOAT16) {
        const WordVector rounded = (WordVector)(bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        half = none ? IntVector{} + 0x7fc0 : (IntVector)rounded;
    } else {
        const IntVector small = float_as_bits(bits_as_float(size) + 0.5f) - 0x3f000000, usual = (size - 0x37fff001 + ((size >> 13) & 1)) >> 13;
        half = size < 0x38800000 ? small : size < 0x47800000 ? usual : IntVector{} + 0x7c00;
        if (LIMITED) half = ((half == 0x7c00) & (size < 0x7f800000)) ? IntVector{} + 0x7bff : half;
        half = (none ? IntVector{} + 0x7e00 : half) | ((bits >> 16) & 0x8000);
    }
    *reinterpret_cast<HalfVector*>(static_cast<uint16_t*>(to) + place) = __builtin_convertvector((WordVector)half, HalfVector);
}

// Calls the function with the type as a constant.
template <typename Function>
static inline void with_type(int64_t type, Function function) {
    if (type == FLOAT32) function(std::integral_constant<int, FLOAT32>());
    else if (type == BFLOAT16) function(std::integral_constant<int, BFLOAT16>());
    else function(std::integral_constant<int, FLOAT16>());
}
