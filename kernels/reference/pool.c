/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"
#include "kernels/window.h"

#include <math.h>
#include <stdlib.h>

/* A window's element (kd, kh, kw) at an output: its place in the plane; -1 in the padding, -2
 * beyond it. */
static int64_t place(const struct rb_window *w, const int64_t *o, int64_t j)
{
    int64_t k[3] = {j / w->kernel[2] / w->kernel[1], j / w->kernel[2] % w->kernel[1],
                    j % w->kernel[2]};
    int64_t at = 0;
    bool pad = false;

    for (int a = 0; a < 3; a++) {
        int64_t i = o[a] * w->stride[a] + k[a] * w->dilation[a] - w->begin[a];

        if (i >= w->in[a] + w->end[a])
            return -2;
        pad = pad || i < 0 || i >= w->in[a];
        at = at * w->in[a] + i;
    }
    return pad ? -1 : at;
}

struct planes {
    struct rb_window w;
    int64_t n, in, out, kernel;
};

static struct planes planes_of(const struct rb_call *call, bool grad)
{
    struct planes p;

    if (rb_window_read(call, grad ? call->out : call->in, NULL, grad ? call->in : call->out, &p.w,
                       NULL) != 0)
        abort();
    p.n = p.w.n * p.w.c;
    p.in = p.w.in[0] * p.w.in[1] * p.w.in[2];
    p.out = p.w.out[0] * p.w.out[1] * p.w.out[2];
    p.kernel = p.w.kernel[0] * p.w.kernel[1] * p.w.kernel[2];
    return p;
}

static void output_index(const struct rb_window *w, int64_t i, int64_t *o)
{
    o[0] = i / w->out[2] / w->out[1];
    o[1] = i / w->out[2] % w->out[1];
    o[2] = i % w->out[2];
}

void rb_reference_max_pool(const struct rb_call *call, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    if (rb_reference_blocked(call, rb_window_spatial(call, NULL), rb_reference_max_pool, in, out,
                             key))
        return;

    bool grad = call->op == RB_OP_MAX_POOL_GRAD;
    struct planes p = planes_of(call, grad);
    int64_t o[3];

    if (grad)
        rb_reference_fill(&call->out[0], out[0], 0);
    for (int64_t i = 0; i < p.n * p.out; i++) {
        int64_t plane = i / p.out, best = -1;

        if (grad) {
            best = ((const int32_t *)in[1])[i];
            if (best >= 0)
                ((rb_real *)out[0])[plane * p.in + best] += ((const rb_real *)in[0])[i];
            continue;
        }
        const rb_real *x = (const rb_real *)in[0] + plane * p.in;

        output_index(&p.w, i % p.out, o);
        for (int64_t j = 0; j < p.kernel; j++) {
            int64_t at = place(&p.w, o, j);

            if (at >= 0 && (best < 0 || x[at] > x[best] || (x[at] != x[at] && x[best] == x[best])))
                best = at;
        }
        ((rb_real *)out[0])[i] = best < 0 ? -INFINITY : x[best];
        if (call->n_out > 1 && out[1])
            ((int32_t *)out[1])[i] = (int32_t)best;
    }
}

void rb_reference_average_pool(const struct rb_call *call, const void *const *in, void *const *out,
                               const struct rb_key *key)
{
    if (rb_reference_blocked(call, rb_window_spatial(call, NULL), rb_reference_average_pool, in,
                             out, key))
        return;

    bool grad = call->op == RB_OP_AVERAGE_POOL_GRAD, pads = rb_call_int(call, "countPad", 0) != 0;
    struct planes p = planes_of(call, grad);
    int64_t o[3];

    rb_reference_fill(&call->out[0], out[0], 0);
    for (int64_t i = 0; i < p.n * p.out; i++) {
        int64_t first = i / p.out * p.in;
        double sum = 0, count = 0;

        output_index(&p.w, i % p.out, o);
        for (int64_t j = 0; j < p.kernel; j++) {
            int64_t at = place(&p.w, o, j);

            count += at >= 0 || (pads && at == -1);
            sum += at >= 0 && !grad ? (double)((const rb_real *)in[0])[first + at] : 0;
        }
        if (!grad)
            ((rb_real *)out[0])[i] = (rb_real)(count > 0 ? sum / count : 0);
        for (int64_t j = 0; grad && j < p.kernel; j++) {
            int64_t at = place(&p.w, o, j);

            if (at >= 0)
                ((rb_real *)out[0])[first + at] +=
                    (rb_real)((double)((const rb_real *)in[0])[i] / count);
        }
    }
}
