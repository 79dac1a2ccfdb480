// Vectors of the width that the compiler's target has, and the functions of them that attention needs.
//
// Compile without -ffast-math: `exponential` rounds by adding and subtracting a large number, which it would fold away.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX2__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif
constexpr int BLOCK = 64;  // keys whose noise is made together, and the width of a tile
constexpr int VECTORS = BLOCK / WIDTH;

typedef float Vector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef int32_t IntVector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef uint32_t WordVector __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));

static inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
static inline void store(float* to, Vector values) { *reinterpret_cast<Vector*>(to) = values; }
static inline Vector all(float value) { return Vector{} + value; }
#if defined(__AVX512F__)
static inline Vector maximum(Vector a, Vector b) { return (Vector)_mm512_max_ps((__m512)a, (__m512)b); }
static inline Vector minimum(Vector a, Vector b) { return (Vector)_mm512_min_ps((__m512)a, (__m512)b); }
static inline bool any_above(Vector a, float limit) { return _mm512_cmp_ps_mask((__m512)a, _mm512_set1_ps(limit), _CMP_GT_OQ); }
#elif defined(__AVX2__)
static inline Vector maximum(Vector a, Vector b) { return (Vector)_mm256_max_ps((__m256)a, (__m256)b); }
static inline Vector minimum(Vector a, Vector b) { return (Vector)_mm256_min_ps((__m256)a, (__m256)b); }
static inline bool any_above(Vector a, float limit) { return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, _mm256_set1_ps(limit), _CMP_GT_OQ)); }
#else
static inline Vector maximum(Vector a, Vector b) { return a > b ? a : b; }
static inline Vector minimum(Vector a, Vector b) { return a < b ? a : b; }
static inline bool any_above(Vector a, float limit) {
    bool any = false;
    for (int lane = 0; lane < WIDTH; lane++) any |= a[lane] > limit;
    return any;
}
#endif
static inline Vector bits_as_float(IntVector bits) { return reinterpret_cast<Vector&>(bits); }
static inline IntVector float_as_bits(Vector values) { return reinterpret_cast<IntVector&>(values); }

static inline bool any(IntVector lanes) {
    int32_t some = 0;
    for (int lane = 0; lane < WIDTH; lane++) some |= lanes[lane];
    return some;
}

static inline Vector square_root(Vector x) {
#if defined(__AVX512F__)
    return (Vector)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (Vector)_mm256_sqrt_ps((__m256)x);
#else
    for (int lane = 0; lane < WIDTH; lane++) x[lane] = std::sqrt(x[lane]);
    return x;
#endif
}

static inline float sum_of(Vector x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float total = 0;
    for (int lane = 0; lane < WIDTH; lane++) total += x[lane];
    return total;
#endif
}

static inline float maximum_of(Vector x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float most = x[0];
    for (int lane = 1; lane < WIDTH; lane++) most = x[lane] > most ? x[lane] : most;
    return most;
#endif
}

// exp(x) for x up to 88. Below -87 it stays at exp(-87): where 0 is meant, select it.
static inline Vector exponential(Vector x) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, in the low bits of the sum
    x = maximum(x, all(-87.0f));
    const Vector rounded = x * 1.44269504089f + shift;
    const Vector rest = x * 1.44269504089f - (rounded - shift);
    Vector series = rest * 1.32647e-3f + 9.67151e-3f;
    series = series * rest + 5.550734e-2f;
    series = series * rest + 2.4022242e-1f;
    series = series * rest + 6.9314698e-1f;
    series = series * rest + 1.0f;
    return bits_as_float(float_as_bits(series) + (float_as_bits(rounded) << 23));
}

// log(x) for normal x > 0, relative error near 1 as small as elsewhere.
__attribute__((always_inline)) static inline Vector logarithm(Vector x) {
    IntVector bits = float_as_bits(x);
    IntVector exponent = (bits - 0x3f3504f3) >> 23;
    Vector f = bits_as_float(bits - (exponent << 23)) - 1.0f;
    Vector e = __builtin_convertvector(exponent, Vector);
    Vector z = f * f;
    Vector y = f * 7.0376836292e-2f - 1.1514610310e-1f;
    y = y * f + 1.1676998740e-1f;
    y = y * f - 1.2420140846e-1f;
    y = y * f + 1.4249322787e-1f;
    y = y * f - 1.6668057665e-1f;
    y = y * f + 2.0000714765e-1f;
    y = y * f - 2.4999993993e-1f;
    y = y * f + 3.3333331174e-1f;
    y = y * f * z;
    y = y - e * 2.12194440e-4f;
    y = y - z * 0.5f;
    return f + y + e * 0.693359375f;
}

// log |x| in place for normal x, relative error 4e-6 below 1, which is where the noise needs it: |x| = mantissa * 2^exponent,
// 1/2 <= mantissa < 1. Of COUNT vectors side by side: the steps of one alone wait for each other.
template <int COUNT>
static inline void short_logarithms(Vector x[COUNT]) {
    static constexpr float SERIES[] = {-0.31108924746513367f, -0.4033607840538025f, 0.3136714696884155f, -0.5008954405784607f, 0.9999935030937195f};
    Vector f[COUNT], y[COUNT], exponent[COUNT];
#pragma GCC unroll 16
    for (int i = 0; i < COUNT; i++) {
#if defined(__AVX512F__)
        f[i] = (Vector)_mm512_getmant_ps((__m512)x[i], _MM_MANT_NORM_p5_1, _MM_MANT_SIGN_zero) - 1.0f;
        exponent[i] = (Vector)_mm512_getexp_ps((__m512)x[i]);
#else
        const IntVector bits = float_as_bits(x[i]);
        f[i] = bits_as_float((bits & 0x7fffff) | 0x3f000000) - 1.0f;
        exponent[i] = __builtin_convertvector(((bits >> 23) & 0xff) - 127, Vector);
#endif
        y[i] = all(-0.8463761806488037f);
    }
#pragma GCC unroll 8
    for (float coefficient : SERIES) {
#pragma GCC unroll 16
        for (int i = 0; i < COUNT; i++) y[i] = y[i] * f[i] + coefficient;
    }
#pragma GCC unroll 16
    for (int i = 0; i < COUNT; i++) x[i] = y[i] * f[i] + (exponent[i] * 0.69314718056f + 0.69314718056f);
}

// cos and sin of 2 pi u, u in (0, 1).
static inline void cosine_and_sine(Vector u, Vector& cosine, Vector& sine) {
    const float shift = 12582912.0f;
    Vector quarter = (u * 4.0f + shift) - shift;
    Vector x = (u * 4.0f - quarter) * 1.57079632679f;
    Vector z = x * x;
    Vector s = z * -1.9515295891e-4f + 8.3321608736e-3f;
    s = (s * z - 1.6666654611e-1f) * z * x + x;
    Vector c = z * 2.443315711809948e-5f - 1.388731625493765e-3f;
    c = (c * z + 4.166664568298827e-2f) * z * z - z * 0.5f + 1.0f;
    IntVector n = __builtin_convertvector(quarter, IntVector) & 3;
    IntVector odd = (n & 1) != 0;
    cosine = odd ? s : c;
    sine = odd ? c : s;
    cosine = ((n == 1) | (n == 2)) ? -cosine : cosine;
    sine = (n >= 2) ? -sine : sine;
}

// lgamma(1 + a) and digamma(1 + a) for 0 <= a <= 1e6: five steps up, then Stirling's series.
static inline Vector log_gamma_of_one_plus(Vector a) {
    Vector x = a + 1.0f, z = a + 6.0f;
    Vector product = x * (x + 1.0f) * (x + 2.0f) * (x + 3.0f) * (x + 4.0f);
    Vector inverse = 1.0f / z, square = inverse * inverse;
    Vector series = ((square * 7.9365079365e-4f - 2.7777777778e-3f) * square + 8.3333333333e-2f) * inverse;
    return (z - 0.5f) * logarithm(z) - z + 0.91893853320f + series - logarithm(product);
}

static inline Vector digamma_of_one_plus(Vector a) {
    Vector x = a + 1.0f, z = a + 6.0f;
    Vector inverse = 1.0f / z, square = inverse * inverse;
    Vector series = ((square * -3.9682539683e-3f + 8.3333333333e-3f) * square - 8.3333333333e-2f) * square;
    Vector steps = 1.0f / x + 1.0f / (x + 1.0f) + 1.0f / (x + 2.0f) + 1.0f / (x + 3.0f) + 1.0f / (x + 4.0f);
    return logarithm(z) - inverse * 0.5f + series - steps;
}

// Floats that begin at a cache line: a vector that crosses two is read twice.
struct Buffer {
    std::unique_ptr<char[]> memory;
    float* start;

    explicit Buffer(int64_t size) : memory(new char[size * sizeof(float) + 64]) {
        start = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64);
    }
    float* data() { return start; }
    float& operator[](int64_t place) { return start[place]; }
};
