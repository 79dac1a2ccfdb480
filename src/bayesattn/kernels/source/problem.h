// What a call of attention is given, as kernels/native.py fills it in; plain C, no header of torch.
#pragma once

#include <cstdint>

// What queries, keys, values and the output, and their gradients, are made of.
enum Type { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };
// What the KL needs of the scores phi of each row; share = exp(prior_logit - prior_total). See posteriors/fused_form.py.
enum Statistics { NOTHING = 0, SUM = 1, SHARES = 2, SQUARES = 3, SQUARES_LOG = 4, SQUARES_SHARE = 5, GAMMA = 6 };
// The rows' statistics in the order of their planes.
enum Plane { TOTAL = 0, FIRST = 1, SECOND = 2, EXPONENTIAL = 3, PLANES = 4 };

extern "C" struct Problem {
    // sizes; features and values are multiples of 16
    int64_t batch, heads, key_heads, queries, keys, features, values, samples, query_tile, threads, type;
    // strides are those of batch, head, row (and key); the last one of queries, keys and values is 1, and of bfloat16 the others are even
    const void *query, *key, *value;
    int64_t query_stride[3], key_stride[3], value_stride[3];
    double scale;
    const uint8_t* allowed;
    int64_t allowed_stride[4];
    const float* bias;
    int64_t bias_stride[4];
    const int64_t* key_lengths;
    int64_t causal;
    int64_t noise, generator;
    uint64_t seed;
    const float* noise_scale;
    int64_t noise_scale_stride[3];
    int64_t dropout_threshold;
    double dropout_factor;
    int64_t statistics, wants_total, wants_exponential;
    const float *prior_logits, *prior_total;
    int64_t prior_logits_stride[3], prior_total_stride[3];
    double log_concentration, divergence_constant;  // the latter is lgamma(p) - 1 of GAMMA's prior
    // forward: output [samples * batch, heads, query, values], log_total [samples * batch, heads, query],
    // row_statistics [4, batch, heads, query]
    void* output;
    float *log_total, *row_statistics;
    // backward, for one sample; of keys behind the length of their example the gradients are left as they are
    const void* grad_output;
    const float* grad_statistics;
    int64_t grad_output_stride[3];
    void *grad_query, *grad_key, *grad_value;
    float *grad_noise_scale, *grad_prior_logits, *grad_prior_total;
};

static inline const float* at(const float* base, const int64_t* stride, int64_t b, int64_t h, int64_t row) {
    return base + b * stride[0] + h * stride[1] + row * stride[2];
}

// The same for what may have any type, and for a place in a tensor without strides.
static inline const void* at(const Problem& p, const void* base, const int64_t* stride, int64_t b, int64_t h, int64_t row) {
    return static_cast<const char*>(base) + (b * stride[0] + h * stride[1] + row * stride[2]) * (p.type == FLOAT32 ? 4 : 2);
}
static inline const void* offset(const Problem& p, const void* base, int64_t place) { return static_cast<const char*>(base) + place * (p.type == FLOAT32 ? 4 : 2); }
static inline void* offset(const Problem& p, void* base, int64_t place) { return static_cast<char*>(base) + place * (p.type == FLOAT32 ? 4 : 2); }
