/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers with Random123's own Philox, one element at a time. */
#include "kernels/reference/reference.h"

#include <Random123/philox.h>

#include <math.h>

static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The word of element i. */
static uint32_t word_of(const struct rb_key *key, uint32_t id, int64_t i)
{
    uint64_t k = mix64(key->seed + mix64(key->step)), block = (uint64_t)i / 4;
    philox4x32_key_t philox_key = {{(uint32_t)k, (uint32_t)(k >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)block, (uint32_t)(block >> 32), id, key->microbatch}};

    return philox4x32(counter, philox_key).v[i % 4];
}

void rb_reference_uniform(const struct rb_call *call, const void *const *in, void *const *out,
                          const struct rb_key *key)
{
    rb_real most = *(const rb_real *)in[0];

    for (int64_t i = 0; i < rb_tensor_elements(&call->out[0]); i++)
        ((rb_real *)out[0])[i] = (rb_real)(word_of(key, call->id, i) >> 8) / 16777216 * most;
}

void rb_reference_dropout(const struct rb_call *call, const void *const *in, void *const *out,
                          const struct rb_key *key)
{
    double ratio = (double)rb_call_float(call, "ratio", 0.5f);
    uint32_t id =
        call->op == RB_OP_DROPOUT_GRAD ? (uint32_t)rb_call_int(call, "key", call->id) : call->id;

    if (rb_reference_widened(call, rb_reference_dropout, in, out, key))
        return;
    for (int64_t i = 0; i < rb_tensor_elements(&call->in[0]); i++) {
        bool kept = (double)word_of(key, id, i) >= nearbyint(ratio * 4294967296.0);

        ((rb_real *)out[0])[i] =
            kept ? (rb_real)((double)((const rb_real *)in[0])[i] / (1 - ratio)) : 0.0f;
    }
}
