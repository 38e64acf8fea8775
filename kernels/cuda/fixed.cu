// SPDX-License-Identifier: Apache-2.0
/* Gradients as 32-bit integers: scaled, rounded, added and looked at in one pass. */
#include "kernels/cuda/number.h"

namespace
{

const int64_t CHUNK = 8192;

/* Low half: the largest bits; high half: not 0, a summand was beyond the limit. */
struct seen_of {
    RB_GPU uint64_t operator()(uint64_t a, uint64_t b) const
    {
        uint32_t low = (uint32_t)a > (uint32_t)b ? (uint32_t)a : (uint32_t)b;

        return ((a | b) >> 32 << 32) | low;
    }
};

/* A maximum of integers: the order does not matter. */
RB_GPU void raise(uint32_t *to, uint32_t value)
{
#ifdef __CUDACC__
    if (value > *(volatile uint32_t *)to)
        atomicMax(to, value);
#else
    if (value > *to)
        *to = value;
#endif
}

struct add_body {
    const float *g;
    int64_t n;
    struct rb_cuda_sum into;
    const struct rb_cuda_sum *kept; /* instead of `into`, on a tape */

    RB_GPU uint64_t add(const struct rb_cuda_sum &to, int64_t i) const
    {
        const float end = 2147483648.0f, inside = 2147483520.0f;
        float x = g[i] * to.weight, t = x * to.first * to.second, size = fabsf(t);
        uint64_t bits = rb_bits_of(x) & 0x7fffffffu;
        int32_t integer;
        bool beyond;

        t = t > inside ? inside : t;
        t = t < -inside ? -inside : t;
        t = t == t ? t : 0.0f;
        integer = (int32_t)rintf(t);
        beyond = size >= end || (integer < 0 ? -integer : integer) > to.limit;
        if (beyond)
            integer = t < 0 ? -to.limit : to.limit;
        to.sum[i] = (int32_t)((to.fresh ? 0 : (uint32_t)to.sum[i]) + (uint32_t)integer);
        return bits | (uint64_t)beyond << 32;
    }

    template <class L> RB_GPU void operator()(int64_t chunk, L &lanes) const
    {
        int64_t from = chunk * CHUNK, count = n - from < CHUNK ? n - from : CHUNK;
        const struct rb_cuda_sum to = kept ? *kept : into;
        const struct add_body *self = this;
        uint64_t seen = lanes.fold(count, (uint64_t)0, seen_of(),
                                   [&](int64_t i) { return self->add(to, from + i); });

        if (!lanes.first())
            return;
        raise(to.largest, (uint32_t)seen);
        if (seen >> 32)
            *to.overflow = true;
    }
};

struct squares_body {
    const int32_t *sum;
    int64_t n, parts;
    double *partial;

    template <class L> RB_GPU void operator()(int64_t part, L &lanes) const
    {
        int64_t size = (n + parts - 1) / parts, from = part * size;
        int64_t count = n - from < size ? n - from : size;
        const int32_t *x = sum;
        double all = lanes.fold(count, 0.0, rb_sum_of(), [&](int64_t i) {
            return (double)x[from + i] * (double)x[from + i];
        });

        if (lanes.first())
            partial[part] = all;
    }
};

struct join_body {
    const double *partial;
    int64_t parts;
    double factor;
    double *to;

    template <class L> RB_GPU void operator()(int64_t, L &lanes) const
    {
        const double *from = partial;
        double all = lanes.fold(parts, 0.0, rb_sum_of(), [&](int64_t i) { return from[i]; });

        if (lanes.first())
            *to = all * factor * factor;
    }
};

} // namespace

void rb_cuda_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                       float weight, int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct rb_fixed into = {sum, fresh, weight, exponent, limit, largest, overflow};
    struct add_body body = {(const float *)rb_twins_gpu(cuda, g), (int64_t)n,
                            rb_cuda_sum_of(cuda, &into), rb_cuda_tape_sum(cuda)};

    if (rb_gpu_enter(cuda->gpu))
        rb_rows_of<RB_BLOCK_THREADS>(cuda, (body.n + CHUNK - 1) / CHUNK, body);
}

void rb_cuda_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                           double scale, double *ret_squares)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    int64_t parts = (int64_t)(n / CHUNK) + 1;
    struct squares_body squares = {};
    struct join_body join = {};

    squares.sum = (const int32_t *)rb_twins_gpu(cuda, sum);
    squares.n = (int64_t)n;
    squares.parts = parts < RB_CUDA_PARTS ? parts : (int64_t)RB_CUDA_PARTS;
    squares.partial = (double *)cuda->partial;
    join.partial = squares.partial;
    join.parts = squares.parts;
    join.factor = ldexp(scale, -exponent);
    join.to = (double *)rb_twins_gpu(cuda, ret_squares);
    if (!rb_gpu_enter(cuda->gpu))
        return;
    rb_rows_of<RB_BLOCK_THREADS>(cuda, squares.parts, squares);
    rb_rows_of<RB_BLOCK_THREADS>(cuda, 1, join);
}
