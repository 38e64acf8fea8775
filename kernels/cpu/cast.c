/* SPDX-License-Identifier: Apache-2.0 */
/* Casts: pieces of a few hundred elements go through double or int64, whichever holds the source.
 *
 * A float beyond the integers' range gives the nearest end of int64 (of uint64, where that is asked
 * for) and NaN gives 0, so that no machine's own idea of it decides; the low bits are then kept, as
 * C does between integers. */
#include "kernels/cpu/bfloat.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256 };

struct cast {
    struct rb_kernel base;
    enum rb_dtype from, to;
    int64_t n;
};

/* The integer and the real types that a cast knows. */
#define INTEGERS(X)                                                                                \
    X(U8, uint8_t)                                                                                 \
    X(I8, int8_t)                                                                                  \
    X(U16, uint16_t)                                                                               \
    X(I16, int16_t) X(U32, uint32_t) X(I32, int32_t) X(U64, uint64_t) X(I64, int64_t)
#define REALS(X) X(F32, float) X(F64, double)

static bool known(enum rb_dtype dtype)
{
    switch (dtype) {
#define X(name, T) case RB_##name:
        INTEGERS(X)
        REALS(X)
#undef X
    case RB_BOOL:
    case RB_F16:
    case RB_BF16:
        return true;
    default:
        return false;
    }
}

static int64_t to_integer(double x)
{
    if (x != x)
        return 0;
    if (x >= 9223372036854775808.0)
        return INT64_MAX;
    return x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

/* Their bits. */
static int64_t to_unsigned(double x)
{
    if (!(x >= 9223372036854775808.0))
        return to_integer(x);
    return (int64_t)(x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x);
}

static void load_integers(int64_t *to, const void *from, enum rb_dtype dtype, int n)
{
    switch (dtype) {
#define X(name, T)                                                                                 \
    case RB_##name:                                                                                \
        for (int i = 0; i < n; i++)                                                                \
            to[i] = (int64_t)((const T *)from)[i];                                                 \
        break;
        INTEGERS(X)
#undef X
    case RB_BOOL:
        for (int i = 0; i < n; i++)
            to[i] = ((const uint8_t *)from)[i] != 0;
        break;
    default:
        break;
    }
}

static void store_integers(void *to, const int64_t *from, enum rb_dtype dtype, int n)
{
    switch (dtype) {
#define X(name, T)                                                                                 \
    case RB_##name:                                                                                \
        for (int i = 0; i < n; i++)                                                                \
            ((T *)to)[i] = (T)from[i];                                                             \
        break;
        INTEGERS(X)
        REALS(X)
#undef X
    case RB_BOOL:
        for (int i = 0; i < n; i++)
            ((uint8_t *)to)[i] = from[i] != 0;
        break;
    default:
        break;
    }
}

static void cast_real(void *to, enum rb_dtype to_type, const double *x, int n)
{
    int64_t integers[PIECE];

    if (to_type == RB_F32) {
        for (int i = 0; i < n; i++)
            ((float *)to)[i] = (float)x[i];
    } else if (to_type == RB_F16) {
        for (int i = 0; i < n; i++)
            ((uint16_t *)to)[i] = rb_dtype_to_half((float)x[i]);
    } else if (to_type == RB_BF16) {
        for (int i = 0; i < n; i++)
            ((uint16_t *)to)[i] = rb_dtype_to_bfloat((float)x[i]);
    } else if (to_type == RB_F64) {
        memcpy(to, x, (size_t)n * sizeof(double));
    } else {
        for (int i = 0; i < n; i++)
            integers[i] = to_type == RB_BOOL  ? x[i] != 0
                          : to_type == RB_U64 ? to_unsigned(x[i])
                                              : to_integer(x[i]);
        store_integers(to, integers, to_type, n);
    }
}

/* What does not fit into int64. */
static void cast_unsigned(void *to, enum rb_dtype to_type, const uint64_t *x, int n)
{
    double reals[PIECE];

    for (int i = 0; i < n; i++)
        reals[i] = (double)x[i];
    if (to_type != RB_F32) {
        cast_real(to, to_type, reals, n);
        return;
    }
    for (int i = 0; i < n; i++) /* rounded once */
        ((float *)to)[i] = (float)x[i];
}

static void cast_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    const struct cast *cast = (const struct cast *)kernel;
    const char *from = in[0];
    char *to = out[0];

    (void)key;
    for (int64_t done = 0; done < cast->n; done += PIECE) {
        int n = cast->n - done < PIECE ? (int)(cast->n - done) : PIECE;
        double reals[PIECE];
        int64_t integers[PIECE];

        if (cast->from == RB_F64) {
            cast_real(to, cast->to, (const double *)from, n);
        } else if (cast->from == RB_F32) {
            for (int i = 0; i < n; i++)
                reals[i] = (double)((const float *)from)[i];
            cast_real(to, cast->to, reals, n);
        } else if (cast->from == RB_F16 || cast->from == RB_BF16) {
            for (int i = 0; i < n; i++) {
                uint16_t bits = ((const uint16_t *)from)[i];

                reals[i] =
                    (double)(cast->from == RB_F16 ? rb_dtype_half(bits) : rb_dtype_bfloat(bits));
            }
            cast_real(to, cast->to, reals, n);
        } else if (cast->from == RB_U64 && rb_dtype_is_real(cast->to)) {
            cast_unsigned(to, cast->to, (const uint64_t *)from, n);
        } else if (cast->to == RB_F16 || cast->to == RB_BF16) {
            load_integers(integers, from, cast->from, n);
            for (int i = 0; i < n; i++)
                reals[i] = (double)integers[i];
            cast_real(to, cast->to, reals, n);
        } else {
            load_integers(integers, from, cast->from, n);
            store_integers(to, integers, cast->to, n);
        }
        from += (size_t)n * rb_dtype_size(cast->from);
        to += (size_t)n * rb_dtype_size(cast->to);
    }
}

static void narrow_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    (void)key;
    rb_cpu_narrow(out[0], in[0], ((const struct cast *)kernel)->n);
}

static void widen_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    (void)key;
    rb_cpu_widen(out[0], in[0], ((const struct cast *)kernel)->n);
}

int rb_cpu_cast(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                struct rb_why *why)
{
    const struct rb_tensor_type *from = rb_call_in(call, 0), *to = rb_call_out(call, 0);
    struct cast *cast;

    (void)cpu;
    if (!rb_tensor_same_shape(from, to))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another shape");
    if (!known(from->dtype) || !known(to->dtype))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "no cast from %s to %s",
                              rb_dtype_text(from->dtype), rb_dtype_text(to->dtype));
    cast = rb_cpu_kernel(sizeof(*cast), from->dtype == RB_F32 && to->dtype == RB_BF16   ? narrow_run
                                        : from->dtype == RB_BF16 && to->dtype == RB_F32 ? widen_run
                                                                                        : cast_run);
    cast->from = from->dtype;
    cast->to = to->dtype;
    cast->n = rb_tensor_elements(to);
    *ret_kernel = &cast->base;
    return 0;
}
