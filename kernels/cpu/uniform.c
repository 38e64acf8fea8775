/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers drawn evenly: the upper 24 bits of a word each, which a float has exactly. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/random.h"

enum { PIECE = 1024 };

struct uniform {
    struct rb_kernel base;
    int64_t n;
    uint32_t id;
};

RB_CLONES static void scale_words(const uint32_t *restrict words, float *restrict y, int64_t n,
                                  float most)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f * most;
}

static void uniform_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct uniform *u = (const struct uniform *)kernel;
    uint32_t words[PIECE];

    for (int64_t i = 0; i < u->n; i += PIECE) {
        int64_t n = u->n - i < PIECE ? u->n - i : PIECE;

        rb_random_words(key, u->id, (uint64_t)i, words, (size_t)n);
        scale_words(words, (float *)out[0] + i, n, *(const float *)in[0]);
    }
}

int rb_cpu_uniform(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    struct uniform *uniform;
    int err = rb_call_only(call, RB_F32, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_call_has_in(call, 0) || rb_tensor_elements(&call->in[0]) != 1 || !rb_call_out(call, 0))
        return rb_call_refuse(call, RB_EINVAL, why, "the input must be one number");
    uniform = rb_cpu_kernel(sizeof(*uniform), uniform_run);
    uniform->n = rb_tensor_elements(&call->out[0]);
    uniform->id = call->id;
    *ret_kernel = &uniform->base;
    return 0;
}
