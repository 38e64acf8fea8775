// SPDX-License-Identifier: Apache-2.0
/* Dropout with the words of kernels/random.h: a block of four to a thread. */
#include "kernels/cuda/launch.h"

extern "C" {
#include "base/hash.h"
#include "kernels/random.h"
}

namespace
{

enum { ROUNDS = 10 };

struct body {
    int64_t n;
    uint32_t id, microbatch, k0, k1;
    uint64_t least; /* the smallest word that keeps */
    float factor;
    const float *x;
    float *y;

    RB_GPU void operator()(int64_t block) const
    {
        uint32_t w[4] = {(uint32_t)block, (uint32_t)((uint64_t)block >> 32), id, microbatch};
        uint32_t a = k0, b = k1;

        for (int round = 0; round < ROUNDS; round++) {
            uint64_t p = (uint64_t)w[0] * 0xd2511f53u, q = (uint64_t)w[2] * 0xcd9e8d57u;
            uint32_t w0 = (uint32_t)(q >> 32) ^ w[1] ^ a, w2 = (uint32_t)(p >> 32) ^ w[3] ^ b;

            w[0] = w0;
            w[1] = (uint32_t)q;
            w[2] = w2;
            w[3] = (uint32_t)p;
            a += 0x9e3779b9u;
            b += 0xbb67ae85u;
        }
        for (int k = 0; k < 4 && 4 * block + k < n; k++)
            y[4 * block + k] = w[k] >= least ? x[4 * block + k] * factor : 0;
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
        uint64_t k = rb_hash_mix(key->seed + rb_hash_mix(key->step));
        struct body body = {
            n,     id,     key->microbatch,      (uint32_t)k,    (uint32_t)(k >> 32),
            least, factor, (const float *)in[0], (float *)out[0]};

        rb_each(cuda, (n + 3) / 4, body);
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
