/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout, and its gradient, which draws the same mask again under the forward instruction's id. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"
#include "kernels/random.h"

enum { PIECE = 1024 };

struct dropout {
    struct rb_kernel base;
    int64_t n;
    uint32_t id;
    bool none;      /* nothing is kept */
    bool narrow;    /* the output is bfloat16 */
    uint32_t below; /* words below it drop their element */
    float scale;
};

RB_CLONES static void apply(const float *restrict x, float *restrict y,
                            const uint32_t *restrict words, int64_t n, uint32_t below, float scale)
{
    for (int64_t i = 0; i < n; i++) {
        float kept = x[i] * scale;

        y[i] = words[i] >= below ? kept : 0.0f;
    }
}

static void dropout_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct dropout *d = (const struct dropout *)kernel;
    size_t size = d->narrow ? sizeof(uint16_t) : sizeof(float);
    uint32_t words[PIECE];
    float piece[PIECE];

    if (d->none) {
        memset(out[0], 0, (size_t)d->n * size);
        return;
    }
    for (int64_t i = 0; i < d->n; i += PIECE) {
        int64_t n = d->n - i < PIECE ? d->n - i : PIECE;

        rb_random_words(key, d->id, (uint64_t)i, words, (size_t)n);
        apply((const float *)in[0] + i, d->narrow ? piece : (float *)out[0] + i, words, n, d->below,
              d->scale);
        if (d->narrow)
            rb_cpu_narrow((uint16_t *)out[0] + i, piece, n);
    }
}

int rb_cpu_dropout(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    float ratio = rb_call_float(call, "ratio", 0.5f);
    struct dropout *dropout;
    double below;
    int err = rb_call_rounded(call, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_call_has_in(call, 0) || !rb_tensor_same_shape(&call->in[0], rb_call_out(call, 0)))
        return rb_call_refuse(call, RB_EINVAL, why, "the output must be typed as the input");
    if (!(ratio >= 0.0f && ratio <= 1.0f))
        return rb_call_refuse(call, RB_EINVAL, why, "the ratio must be in 0..1");
    below = nearbyint((double)ratio * 4294967296.0);
    dropout = rb_cpu_kernel(sizeof(*dropout), dropout_run);
    dropout->n = rb_tensor_elements(&call->in[0]);
    dropout->id =
        call->op == RB_OP_DROPOUT_GRAD ? (uint32_t)rb_call_int(call, "key", call->id) : call->id;
    dropout->narrow = call->out[0].dtype == RB_BF16;
    dropout->none = below >= 4294967296.0;
    dropout->below = dropout->none ? 0 : (uint32_t)below;
    dropout->scale = dropout->none ? 0 : 1.0f / (1.0f - ratio);
    *ret_kernel = &dropout->base;
    return 0;
}
