/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout with Random123's own Philox, one element at a time. */
#include "kernels/reference/reference.h"

#include <Random123/philox.h>

#include <math.h>

static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void rb_reference_dropout(const struct rb_call *call, const void *const *in, void *const *out,
                          const struct rb_key *key)
{
    uint64_t k = mix64(key->seed + mix64(key->step));
    double ratio = (double)rb_call_float(call, "ratio", 0.5f);
    uint32_t id =
        call->op == RB_OP_DROPOUT_GRAD ? (uint32_t)rb_call_int(call, "key", call->id) : call->id;
    philox4x32_key_t philox_key = {{(uint32_t)k, (uint32_t)(k >> 32)}};

    if (rb_reference_widened(call, rb_reference_dropout, in, out, key))
        return;
    for (int64_t i = 0; i < rb_tensor_elements(&call->in[0]); i++) {
        uint64_t block = (uint64_t)i / 4;
        philox4x32_ctr_t counter = {
            {(uint32_t)block, (uint32_t)(block >> 32), id, key->microbatch}};
        uint32_t word = philox4x32(counter, philox_key).v[i % 4];
        bool kept = (double)word >= nearbyint(ratio * 4294967296.0);

        ((rb_real *)out[0])[i] =
            kept ? (rb_real)((double)((const rb_real *)in[0])[i] / (1 - ratio)) : 0.0f;
    }
}
