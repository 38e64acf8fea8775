// SPDX-License-Identifier: Apache-2.0
/* Dropout with the words of kernels/random.h. */
#include "kernels/cuda/random.h"

namespace
{

struct element {
    uint64_t least; /* the smallest word that keeps */
    float factor;
    const float *x;
    float *y;

    RB_GPU void operator()(int64_t i, uint32_t word) const
    {
        y[i] = word >= least ? x[i] * factor : 0;
    }
};

struct dropout : rb_work {
    int64_t n;
    uint32_t id;
    uint64_t least;
    float factor;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out,
             const struct rb_key *key)
    {
        struct element element = {least, factor, (const float *)in[0], (float *)out[0]};

        rb_draw(cuda, n, id, key, element);
    }
};

} // namespace

int rb_cuda_dropout(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    double ratio = (double)rb_call_float(call, "ratio", 0.5f);
    struct dropout work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.n = rb_tensor_elements(&call->out[0]);
    work.id =
        call->op == RB_OP_DROPOUT_GRAD ? (uint32_t)rb_call_int(call, "key", call->id) : call->id;
    work.least = (uint64_t)nearbyint(ratio * 4294967296.0);
    work.factor = (float)(1 / (1 - ratio));
    return rb_make(cuda, call, work, ret_kernel);
}
