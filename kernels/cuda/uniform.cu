// SPDX-License-Identifier: Apache-2.0
/* Numbers drawn evenly, with the words of kernels/random.h. */
#include "kernels/cuda/random.h"

namespace
{

struct element {
    const float *most;
    float *y;

    RB_GPU void operator()(int64_t i, uint32_t word) const
    {
        y[i] = (float)(int32_t)(word >> 8) * 0x1p-24f * *most;
    }
};

struct uniform : rb_work {
    int64_t n;
    uint32_t id;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out,
             const struct rb_key *key)
    {
        struct element element = {(const float *)in[0], (float *)out[0]};

        rb_draw(cuda, n, id, key, element);
    }
};

} // namespace

int rb_cuda_uniform(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    struct uniform work = {};

    if (call->in[0].dtype != RB_F32 || rb_tensor_elements(&call->in[0]) != 1)
        return rb_no_kernel(call, why);
    work.n = rb_tensor_elements(&call->out[0]);
    work.id = call->id;
    return rb_make(cuda, call, work, ret_kernel);
}
