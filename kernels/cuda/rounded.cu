// SPDX-License-Identifier: Apache-2.0
/* Operators that compute in float32, given or asked for bfloat16: their inputs are widened before
 * them, their outputs are rounded behind them.  The bits are those of kernels that do so in
 * registers, which would only spare the memory in between. */
#include "kernels/cuda/number.h"

namespace
{

struct widen_body {
    const uint16_t *x;
    float *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = rb_bfloat_get(x[i]);
    }
};

struct round_body {
    const float *x;
    uint16_t *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = rb_bfloat_put(x[i]);
    }
};

enum { MOST = 8, ALIGNMENT = 256 };

/* Where tensor `k` lies in the spare memory; elements 0: it is passed on as it is. */
struct detour {
    int64_t elements;
    size_t offset;
};

struct rounded : rb_work {
    struct rb_cuda_kernel *inner;
    int n_in, n_out;
    struct detour in[MOST], out[MOST];

    void run(struct rb_cuda *cuda, const void *const *from, void *const *to,
             const struct rb_key *key)
    {
        const void *inner_in[MOST];
        void *inner_out[MOST];
        char *spare = (char *)cuda->spare;

        for (int i = 0; i < n_in; i++) {
            inner_in[i] = from[i];
            if (in[i].elements && from[i]) {
                struct widen_body body = {(const uint16_t *)from[i],
                                          (float *)(spare + in[i].offset)};

                rb_each(cuda, in[i].elements, body);
                inner_in[i] = body.y;
            }
        }
        for (int i = 0; i < n_out; i++)
            inner_out[i] = out[i].elements && to[i] ? spare + out[i].offset : (char *)to[i];
        inner->launch(inner, inner_in, inner_out, key);
        for (int i = 0; i < n_out; i++)
            if (out[i].elements && to[i]) {
                struct round_body body = {(const float *)inner_out[i], (uint16_t *)to[i]};

                rb_each(cuda, out[i].elements, body);
            }
    }

    void done()
    {
        inner->base.free(&inner->base);
    }
};

/* The type that is computed with; places are given out one behind the other. */
struct rb_tensor_type whole(const struct rb_tensor_type *type, struct detour *detour, size_t *end)
{
    struct rb_tensor_type made = *type;

    if (type->dtype != RB_BF16)
        return made;
    made.dtype = RB_F32;
    detour->elements = rb_tensor_elements(type);
    detour->offset = *end;
    *end += ((size_t)detour->elements * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return made;
}

} // namespace

int rb_cuda_rounded(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    struct rb_tensor_type in[MOST], out[MOST];
    struct rb_call inner = *call;
    struct rb_kernel *kernel = NULL;
    struct rounded work = {};
    size_t bytes = 0;
    int err;

    if (call->n_in > MOST || call->n_out > MOST)
        return rb_no_kernel(call, why);
    for (int i = 0; i < call->n_in; i++)
        in[i] = whole(&call->in[i], &work.in[i], &bytes);
    for (int i = 0; i < call->n_out; i++)
        out[i] = whole(&call->out[i], &work.out[i], &bytes);
    inner.in = in;
    inner.out = out;
    work.n_in = call->n_in;
    work.n_out = call->n_out;
    err = rb_cuda_need_spare(cuda, bytes, why);
    err = err ? err : rb_cuda_table[call->op](cuda, &inner, &kernel, why);
    if (err)
        return err;
    work.inner = (struct rb_cuda_kernel *)kernel;
    return rb_make(cuda, call, work, ret_kernel);
}
