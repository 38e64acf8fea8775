// SPDX-License-Identifier: Apache-2.0
/* Numbers drawn evenly, with the words of kernels/random.h: a block of four to a thread. */
#include "kernels/cuda/random.h"

namespace
{

struct body {
    int64_t n;
    uint32_t id;
    struct rb_cuda_key key;
    const struct rb_cuda_key *kept; /* instead of `key`, on a tape */
    const float *most;
    float *y;

    RB_GPU void operator()(int64_t block) const
    {
        uint32_t w[4];

        rb_random_block(kept ? *kept : key, id, (uint64_t)block, w);
        for (int k = 0; k < 4 && 4 * block + k < n; k++)
            y[4 * block + k] = (float)(int32_t)(w[k] >> 8) * 0x1p-24f * *most;
    }
};

struct uniform : rb_work {
    int64_t n;
    uint32_t id;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out,
             const struct rb_key *key)
    {
        struct body body = {n,
                            id,
                            rb_cuda_key_of(key),
                            rb_cuda_tape_key(cuda),
                            (const float *)in[0],
                            (float *)out[0]};

        rb_each(cuda, (n + 3) / 4, body);
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
