/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and its gradient.
 *
 * An index may count from the end.  One that is outside gives NaN (0 for other types than floats)
 * and takes no gradient: a kernel cannot fail, and a NaN is seen. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

struct gather {
    struct rb_kernel base;
    struct rb_call_split at; /* of the tensor that is indexed */
    int64_t n;               /* indices */
    int64_t padding;         /* of gradients: the row that gets none; -1: each gets its own */
    enum rb_dtype dtype, indices;
};

/* The row that index i names, or -1. */
static int64_t row_at(const struct gather *gather, const void *indices, int64_t i)
{
    int64_t row =
        gather->indices == RB_I64 ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];

    row += row < 0 ? gather->at.n : 0;
    return row >= 0 && row < gather->at.n ? row : -1;
}

static void fill_outside(const struct gather *gather, char *to, size_t bytes)
{
    memset(to, 0, bytes);
    if (gather->dtype == RB_F32)
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            ((float *)to)[i] = NAN;
    if (gather->dtype == RB_F64)
        for (size_t i = 0; i < bytes / sizeof(double); i++)
            ((double *)to)[i] = (double)NAN;
}

static void gather_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    const struct gather *gather = (const struct gather *)kernel;
    size_t bytes = (size_t)gather->at.inner * rb_dtype_size(gather->dtype);
    char *to = out[0];

    (void)key;
    for (int64_t o = 0; o < gather->at.outer; o++) {
        const char *from = (const char *)in[0] + (size_t)(o * gather->at.n) * bytes;

        for (int64_t i = 0; i < gather->n; i++, to += bytes) {
            int64_t row = row_at(gather, in[1], i);

            if (row >= 0)
                memcpy(to, from + (size_t)row * bytes, bytes);
            else
                fill_outside(gather, to, bytes);
        }
    }
}

RB_CLONES static void add_row(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void gather_grad_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                            const struct rb_key *key)
{
    const struct gather *gather = (const struct gather *)kernel;
    int64_t inner = gather->at.inner, plane = gather->at.n * inner;
    const float *dy = in[0];
    float *dx = out[0];

    (void)key;
    memset(dx, 0, (size_t)(gather->at.outer * plane) * sizeof(float));
    for (int64_t o = 0; o < gather->at.outer; o++)
        for (int64_t i = 0; i < gather->n; i++, dy += inner) {
            int64_t row = row_at(gather, in[1], i);

            if (row >= 0 && row != gather->padding)
                add_row(dx + o * plane + row * inner, dy, inner);
        }
}

/* x: what is indexed; y: x with the axis replaced by the indices' shape. */
static int gather_new(const struct rb_call *call, const struct rb_tensor_type *x,
                      const struct rb_tensor_type *y, rb_cpu_run *run,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *indices = rb_call_in(call, 1);
    struct gather *gather;
    int axis, err = rb_call_axis(call, "axis", x->rank, &axis, why);
    bool fits =
        x->dtype != RB_NONE && x->dtype == y->dtype && y->rank == x->rank - 1 + indices->rank;

    if (err)
        return err;
    if (indices->dtype != RB_I64 && indices->dtype != RB_I32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "indices must be int64 or int32");
    for (int i = 0; fits && i < y->rank; i++)
        fits = y->dim[i] == (i < axis                   ? x->dim[i]
                             : i < axis + indices->rank ? indices->dim[i - axis]
                                                        : x->dim[i - indices->rank + 1]);
    if (!fits)
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not fit together");
    gather = rb_cpu_kernel(sizeof(*gather), run);
    gather->at = rb_call_split_at(x, axis);
    gather->n = rb_tensor_elements(indices);
    gather->padding = rb_call_int(call, "padding", -1);
    gather->dtype = x->dtype;
    gather->indices = indices->dtype;
    *ret_kernel = &gather->base;
    return 0;
}

int rb_cpu_gather(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    (void)cpu;
    return gather_new(call, rb_call_in(call, 0), rb_call_out(call, 0), gather_run, ret_kernel, why);
}

int rb_cpu_gather_grad(struct rb_cpu *cpu, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    (void)cpu;
    if (rb_call_in(call, 0)->dtype != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "gradients must be float32");
    return gather_new(call, rb_call_out(call, 0), rb_call_in(call, 0), gather_grad_run, ret_kernel,
                      why);
}
