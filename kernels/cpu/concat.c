/* SPDX-License-Identifier: Apache-2.0 */
/* Concat and split: runs of bytes, one after the other or apart. */
#include "kernels/cpu/cpu.h"

#include <string.h>

struct runs {
    struct rb_kernel base;
    bool split;
    int n;
    int64_t outer;
    size_t whole;   /* bytes of the joined tensor for one outer index */
    size_t bytes[]; /* of each part */
};

static void runs_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    const struct runs *runs = (const struct runs *)kernel;
    size_t offset = 0;

    (void)key;
    for (int k = 0; k < runs->n; k++) {
        size_t bytes = runs->bytes[k];

        for (int64_t i = 0; i < runs->outer && bytes > 0; i++) {
            size_t far = (size_t)i * runs->whole + offset, near = (size_t)i * bytes;

            if (runs->split)
                memcpy((char *)out[k] + near, (const char *)in[0] + far, bytes);
            else
                memcpy((char *)out[0] + far, (const char *)in[k] + near, bytes);
        }
        offset += bytes;
    }
}

static int runs_new(const struct rb_call *call, const struct rb_tensor_type *whole,
                    const struct rb_tensor_type *parts, int n, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    struct rb_call_split at;
    struct runs *runs;
    int axis, err = rb_call_axis(call, "axis", whole->rank, &axis, why);
    int64_t sum = 0;

    if (err)
        return err;
    for (int k = 0; k < n; k++) {
        struct rb_tensor_type expected = *whole;

        if (parts[k].rank == whole->rank)
            expected.dim[axis] = parts[k].dim[axis];
        if (!rb_tensor_same(&parts[k], &expected))
            return rb_call_refuse(call, RB_EINVAL, why, "part %d does not fit the whole", k);
        sum += parts[k].dim[axis];
    }
    if (sum != whole->dim[axis])
        return rb_call_refuse(call, RB_EINVAL, why, "the parts add up to %lld, the whole is %lld",
                              (long long)sum, (long long)whole->dim[axis]);
    at = rb_call_split_at(whole, axis);
    runs = rb_cpu_kernel(sizeof(*runs) + (size_t)n * sizeof(runs->bytes[0]), runs_run);
    runs->n = n;
    runs->outer = at.outer;
    runs->whole = (size_t)(at.n * at.inner) * rb_dtype_size(whole->dtype);
    for (int k = 0; k < n; k++)
        runs->bytes[k] = (size_t)(parts[k].dim[axis] * at.inner) * rb_dtype_size(whole->dtype);
    runs->split = call->op == RB_OP_SPLIT;
    *ret_kernel = &runs->base;
    return 0;
}

int rb_cpu_concat(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    (void)cpu;
    return runs_new(call, &call->out[0], call->in, call->n_in, ret_kernel, why);
}

int rb_cpu_split(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    (void)cpu;
    if (call->n_in != 1)
        return rb_call_refuse(call, RB_EINVAL, why, "one input is needed");
    return runs_new(call, &call->in[0], call->out, call->n_out, ret_kernel, why);
}
