// SPDX-License-Identifier: Apache-2.0
/* From any type to any: through a whole number of 64 bits, or a double. */
#include "kernels/cuda/number.h"

namespace
{

RB_GPU bool is_real(int dtype)
{
    return dtype == RB_F32 || dtype == RB_F64 || dtype == RB_F16 || dtype == RB_BF16;
}

RB_GPU double get_real(int dtype, const void *x, int64_t i)
{
    switch (dtype) {
    case RB_F32:
        return (double)((const float *)x)[i];
    case RB_F64:
        return ((const double *)x)[i];
    case RB_F16:
        return (double)rb_half_get(((const uint16_t *)x)[i]);
    default:
        return (double)rb_bfloat_get(((const uint16_t *)x)[i]);
    }
}

RB_GPU int64_t get_whole(int dtype, const void *x, int64_t i)
{
    switch (dtype) {
    case RB_I8:
        return ((const int8_t *)x)[i];
    case RB_U16:
        return ((const uint16_t *)x)[i];
    case RB_I16:
        return ((const int16_t *)x)[i];
    case RB_U32:
        return ((const uint32_t *)x)[i];
    case RB_I32:
        return ((const int32_t *)x)[i];
    case RB_U64:
    case RB_I64:
        return ((const int64_t *)x)[i];
    default:
        return ((const uint8_t *)x)[i];
    }
}

/* Beyond the ends: the ends. */
RB_GPU int64_t truncate(double x)
{
    if (x != x)
        return 0;
    return x >= 9223372036854775807.0    ? INT64_MAX
           : x <= -9223372036854775808.0 ? INT64_MIN
                                         : (int64_t)x;
}

RB_GPU void put_whole(int dtype, void *y, int64_t i, int64_t x)
{
    switch (dtype) {
    case RB_BOOL:
        ((uint8_t *)y)[i] = x != 0;
        break;
    case RB_U8:
    case RB_I8:
        ((uint8_t *)y)[i] = (uint8_t)x;
        break;
    case RB_U16:
    case RB_I16:
        ((uint16_t *)y)[i] = (uint16_t)x;
        break;
    case RB_U32:
    case RB_I32:
        ((uint32_t *)y)[i] = (uint32_t)x;
        break;
    default:
        ((int64_t *)y)[i] = x;
    }
}

RB_GPU void put_real(int dtype, void *y, int64_t i, double x)
{
    switch (dtype) {
    case RB_F32:
        ((float *)y)[i] = (float)x;
        break;
    case RB_F64:
        ((double *)y)[i] = x;
        break;
    case RB_F16:
        ((uint16_t *)y)[i] = rb_half_put((float)x);
        break;
    default:
        ((uint16_t *)y)[i] = rb_bfloat_put((float)x);
    }
}

RB_GPU double real_of(int dtype, int64_t x)
{
    return dtype == RB_U64 ? (double)(uint64_t)x : (double)x;
}

/* A float of a whole number is rounded once. */
RB_GPU float float_of(int dtype, int64_t x)
{
    return dtype == RB_U64 ? (float)(uint64_t)x : (float)x;
}

struct body {
    int from, to;
    const void *x;
    void *y;

    RB_GPU void operator()(int64_t i) const
    {
        if (is_real(from)) {
            double v = get_real(from, x, i);

            if (is_real(to))
                put_real(to, y, i, v);
            else if (to == RB_BOOL)
                ((uint8_t *)y)[i] = v != 0;
            else if (to == RB_U64 && v >= 9223372036854775808.0)
                ((uint64_t *)y)[i] = v >= 18446744073709551615.0 ? UINT64_MAX : (uint64_t)v;
            else
                put_whole(to, y, i, truncate(v));
        } else {
            int64_t v = get_whole(from, x, i);

            if (!is_real(to))
                put_whole(to, y, i, v);
            else
                put_real(to, y, i, to == RB_F64 ? real_of(from, v) : (double)float_of(from, v));
        }
    }
};

struct cast : rb_work {
    int from, to;
    int64_t n;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct body body = {from, to, in[0], out[0]};

        rb_each(cuda, n, body);
    }
};

} // namespace

int rb_cuda_cast(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *)
{
    struct cast work = {};

    work.from = call->in[0].dtype;
    work.to = call->out[0].dtype;
    work.n = rb_tensor_elements(&call->out[0]);
    return rb_make(cuda, call, work, ret_kernel);
}
