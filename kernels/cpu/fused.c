/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators in one: pieces of a row go from step to step by the loops of the operators
 * themselves, through memory that stays in the nearest cache. */
#include "kernels/fused.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/point.h"
#include "kernels/cpu/walk.h"

#include <string.h>

enum { PIECE = 256, SOURCES = RB_FUSED_INPUTS + RB_FUSED_STEPS };

struct fused {
    struct rb_kernel base;
    struct rb_walk walk;
    struct rb_fused steps;
    rb_point_row *row[RB_FUSED_STEPS]; /* NULL: a Cast */
    enum rb_dtype in[RB_FUSED_INPUTS];
    int64_t size[RB_WALK_OPERANDS]; /* of an element */
};

/* A piece of each source: float32, or bytes. */
struct pieces {
    const void *at[SOURCES];
    int64_t step[SOURCES]; /* 0: one number */
    float room[SOURCES][PIECE];
};

static void cast(const struct fused *fused, const struct pieces *pieces, int from, float *to,
                 int64_t n)
{
    int inputs = fused->steps.n_in;
    bool truth =
        (from < inputs ? fused->in[from] : fused->steps.step[from - inputs].dtype) == RB_BOOL;

    for (int64_t i = 0; i < n; i++) {
        int64_t j = pieces->step[from] ? i : 0;

        to[i] = truth ? (float)(((const uint8_t *)pieces->at[from])[j] != 0)
                      : ((const float *)pieces->at[from])[j];
    }
}

static void run_step(const struct fused *fused, int k, struct pieces *pieces, void *out, int64_t n)
{
    const struct rb_fused_step *step = &fused->steps.step[k];
    int made = fused->steps.n_in + k;
    bool last = k + 1 == fused->steps.n, rounds = step->dtype == RB_BF16;
    void *to = last && !rounds ? out : pieces->room[made];
    const void *in[RB_FUSED_SOURCES];
    int64_t steps[RB_FUSED_SOURCES];

    for (int i = 0; i < step->n; i++) {
        in[i] = pieces->at[step->from[i]];
        steps[i] = pieces->step[step->from[i]];
    }
    if (fused->row[k])
        fused->row[k](in, steps, to, n);
    else
        cast(fused, pieces, step->from[0], to, n);
    if (rounds) {
        uint16_t rounded[PIECE];

        rb_cpu_narrow(last ? out : rounded, to, n);
        if (!last)
            rb_cpu_widen(to, rounded, n);
    }
    pieces->at[made] = to;
    pieces->step[made] = 1;
}

static void run_row(const struct fused *fused, const void *const *from, const int64_t *step,
                    void *to, int64_t n)
{
    int n_in = fused->steps.n_in;
    struct pieces pieces;

    memcpy(pieces.step, step, sizeof(*step) * (size_t)n_in);
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = n - done < PIECE ? n - done : PIECE;

        for (int i = 0; i < n_in; i++) {
            pieces.at[i] = (const char *)from[i] + step[i] * done * fused->size[i];
            if (fused->in[i] != RB_BF16)
                continue;
            rb_cpu_widen(pieces.room[i], pieces.at[i], step[i] ? count : 1);
            pieces.at[i] = pieces.room[i];
        }
        for (int k = 0; k < fused->steps.n; k++)
            run_step(fused, k, &pieces, (char *)to + done * fused->size[n_in], count);
    }
}

static void fused_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct fused *fused = (const struct fused *)kernel;
    const struct rb_walk *walk = &fused->walk;
    int n_in = fused->steps.n_in;
    int64_t rows = rb_walk_rows(walk), step[RB_FUSED_INPUTS];
    struct rb_walk_at at;

    (void)key;
    for (int i = 0; i < n_in; i++)
        step[i] = walk->step[i][walk->rank - 1];
    rb_walk_start(walk, &at);
    for (int64_t row = 0; row < rows; row++) {
        const void *from[RB_FUSED_INPUTS];

        for (int i = 0; i < n_in; i++)
            from[i] = (const char *)in[i] + at.offset[i] * fused->size[i];
        run_row(fused, from, step, (char *)out[0] + at.offset[n_in] * fused->size[n_in],
                walk->dim[walk->rank - 1]);
        rb_walk_next(walk, &at);
    }
}

int rb_cpu_fused(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    struct rb_fused steps;
    struct rb_walk walk;
    struct fused *fused;
    int err = rb_fused_read(call, &steps, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_walk_broadcast(&walk, &call->out[0], call->n_in, call->in))
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not broadcast to the output's");
    fused = rb_cpu_kernel(sizeof(*fused), fused_run);
    fused->walk = walk;
    fused->steps = steps;
    for (int k = 0; k < steps.n; k++)
        fused->row[k] = rb_point_float_row(steps.step[k].op, steps.step[k].tanh_form);
    for (int i = 0; i <= call->n_in; i++)
        fused->size[i] =
            (int64_t)rb_dtype_size(i < call->n_in ? call->in[i].dtype : call->out[0].dtype);
    for (int i = 0; i < call->n_in; i++)
        fused->in[i] = call->in[i].dtype;
    *ret_kernel = &fused->base;
    return 0;
}
