/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/conv_direct.h"

#include "kernels/cpu/conv_direct_inside.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product_pack.h"

#include <stdlib.h>
#include <string.h>

/* Larger windows are rare, and so is padding that is much larger than what is padded, with which
 * the copy (numbers) is large, too. */
enum { MOST_TAPS = 64, MOST_PADDING = 64, MOST_COPIED = 8 << 20 };

bool rb_conv_direct_suits(const struct rb_window *w, bool blocked)
{
    const int64_t taps = w->kernel[1] * w->kernel[2];

    if (strncmp(rb_dnnl_isa(), "avx2", 4) != 0 || (!blocked && w->c >= RB_BLOCK))
        return false;
    for (int i = 1; i < 3; i++)
        if (w->kernel[i] > MOST_TAPS || w->begin[i] > MOST_PADDING || w->end[i] > MOST_PADDING ||
            w->dilation[i] * (w->kernel[i] - 1) > MOST_PADDING || w->stride[i] > MOST_PADDING)
            return false;
    return w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->begin[0] == 0 &&
           taps <= MOST_TAPS && w->n > 0 && w->c > 0 && w->in[1] > 0 && w->in[2] > 0 &&
           w->out[1] > 0 && w->out[2] > 0;
}

#if defined(__x86_64__)

/* Pixels of images that are gone through with the same weights: they stay in the second cache. */
enum { PIXELS = 256 };

/* ---- Factors ---------------------------------------------------------------------------------*/

static int64_t weights_of(const struct rb_direct *d)
{
    return d->m * d->c * d->taps;
}

/* By block of what is written: [blocks of what is read][taps][channels][16]. */
static void pack_weights(const struct rb_direct *d, const float *w, float *to)
{
    const int64_t channels = d->steps.length;
    const int64_t step = d->back ? d->taps : d->c * d->taps; /* from lane to lane */
    const int64_t next =
        d->back ? d->c * d->taps : d->taps; /* channel to channel, of what is read */
    const int64_t block = d->back ? d->taps : d->c * d->taps;

    for (int64_t o = 0; o < d->out_blocks; o++, w += RB_BLOCK * block)
        for (int64_t b = 0; b < d->blocks; b++, to += channels * d->taps * RB_BLOCK)
            for (int64_t c = 0; c < channels; c++)
                rb_turn(w + (b * channels + c) * next, step, RB_BLOCK, d->taps, to + c * RB_BLOCK,
                        channels * RB_BLOCK);
}

/* Images [first, first + n), with zeros at their sides. */
static void copy_images(const struct rb_direct *d, const float *x, int64_t first, int64_t n,
                        float *to)
{
    const int64_t pixel = d->steps.pixel / d->stride, plane = d->rows * d->columns * pixel;
    const int64_t apart = d->blocked ? d->block : d->steps.channel;
    const size_t left = (size_t)(d->left * pixel), middle = (size_t)(d->columns * pixel);
    const size_t right = (size_t)(d->pitch * pixel) - left - middle;

    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < d->planes; p++) {
            const float *from = x + ((first + i) * d->planes + p) * plane;
            float *line = to + i * d->image + p * apart;

            for (int64_t row = 0; row < d->rows; row++, from += middle, line += d->row) {
                memset(line, 0, left * sizeof *line);
                memcpy(line + left, from, middle * sizeof *line);
                memset(line + left + middle, 0, right * sizeof *line);
            }
        }
}

/* ---- A pass ----------------------------------------------------------------------------------*/

/* What is multiplied: some blocks of an image and their weights, for a block of what is written. */
struct pass {
    const struct rb_direct *direct;
    const float *x, *w, *bias;
    bool onto;
    float *y;
};

/* The runs whose rows are there, for the t-th row of a phase. */
static struct rb_conv_runs find_runs(const struct rb_direct *d, const struct rb_direct_phase *phase,
                                     int group, int64_t t)
{
    const struct rb_conv_run *run = phase->runs[group], *end = run + phase->n[group];

#define OUTSIDE(run) ((run).row + t * d->stride < 0 || (run).row + t * d->stride >= d->rows)
    while (run < end && OUTSIDE(*run))
        run++;
    while (run < end && OUTSIDE(end[-1]))
        end--;
#undef OUTSIDE
    return (struct rb_conv_runs){run, end - run};
}

/* All pixels of a phase. */
static void go_through(const struct pass *pass, const struct rb_direct_phase *phase)
{
    const struct rb_direct *d = pass->direct;
    const int64_t tiles = (phase->columns + RB_CONV_PIXELS - 1) / RB_CONV_PIXELS;
    /* Going from one tile's code to another's costs more than multiplying zeros in one tile of
     * many. */
    const bool ends = tiles <= 2;

    for (int64_t t = 0; t < phase->rows; t++) {
        const int64_t row = phase->row + t * d->out_stride;
        float *y = pass->y + (row * d->out_columns + phase->column) * RB_BLOCK;
        const float *x = pass->x + t * d->stride * d->row;
        struct rb_conv_runs runs[RB_CONV_GROUPS];
        int64_t at = 0;

        for (int group = 0; group < RB_CONV_GROUPS; group++)
            runs[group] = find_runs(d, phase, group, t);
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t end = phase->columns * (tile + 1) / tiles;

            rb_conv_tile((int)(end - at),
                         (struct rb_conv_ends){ends && at == 0, ends && end == phase->columns},
                         &d->steps, runs, x + at * d->steps.pixel, pass->w, pass->bias, pass->onto,
                         y + at * d->steps.to);
            at = end;
        }
    }
}

/* n images at x, to block o of y. */
static void run_phase(const struct rb_direct *d, const struct rb_direct_phase *phase, int64_t n,
                      int64_t o, const float *x, const float *w, const float *bias, float *y)
{
    const int64_t plane = d->out_rows * d->out_columns * RB_BLOCK;
    const int64_t panel = weights_of(d) / d->out_blocks;

    for (int64_t b = 0; b < d->blocks; b += phase->together)
        for (int64_t i = 0; i < n; i++) {
            const struct pass pass = {d,
                                      x + i * d->image + b * d->block,
                                      w + o * panel + b * (panel / d->blocks),
                                      bias && b == 0 ? bias + o * RB_BLOCK : NULL,
                                      b > 0,
                                      y + (i * d->out_blocks + o) * plane};

            go_through(&pass, phase);
        }
}

static void run_images(const struct rb_direct *d, int64_t n, const float *x, const float *w,
                       const float *bias, float *y)
{
    for (int64_t o = 0; o < d->out_blocks; o++)
        for (int64_t p = 0; p < d->n_phases; p++)
            run_phase(d, &d->phases[p], n, o, x, w, bias, y);
}

static void direct_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    const struct rb_direct *d = (const struct rb_direct *)kernel;
    float *weights = d->cpu->windows.memory, *field = weights + weights_of(d);
    const float *x = in[0];
    float *y = out[0];

    (void)key;
    pack_weights(d, in[1], weights);
    for (int64_t i = 0; i < d->images; i += d->at_once) {
        const int64_t n = d->images - i < d->at_once ? d->images - i : d->at_once;

        if (rb_direct_copies(d))
            copy_images(d, x, i, n, field);
        run_images(d, n, rb_direct_copies(d) ? field : x + i * d->image, weights,
                   d->bias ? in[2] : NULL,
                   y + i * d->out_blocks * d->out_rows * d->out_columns * RB_BLOCK);
    }
}

/* ---- Preparing -------------------------------------------------------------------------------*/

static void direct_free(struct rb_kernel *kernel)
{
    struct rb_direct *d = (struct rb_direct *)kernel;

    rb_direct_done(d);
    free(d);
}

static int prepare(struct rb_cpu *cpu, const struct rb_window *w, struct rb_direct *d,
                   struct rb_kernel **ret_kernel)
{
    const int64_t pixels = d->out_rows * d->out_columns;
    int64_t copied = 0;
    int err = 0;

    d->base.free = direct_free;
    d->cpu = cpu;
    d->c = w->c;
    d->taps = w->kernel[1] * w->kernel[2];
    d->images = w->n;
    d->at_once = (PIXELS + pixels - 1) / pixels;
    d->at_once = d->at_once < d->images ? d->at_once : d->images;
    rb_direct_find(d, w);
    if (rb_direct_copies(d))
        copied = d->at_once * d->planes * d->rows * d->row;
    if (copied > MOST_COPIED && d->pitch > 2 * d->columns)
        err = RB_EUNSUPPORTED;
    else if (rb_cpu_need(&cpu->windows, (size_t)(weights_of(d) + copied) * sizeof(float)))
        err = RB_ENOMEM;
    if (err) {
        direct_free(&d->base);
        return err;
    }
    *ret_kernel = &d->base;
    return 0;
}

int rb_cpu_conv_direct(struct rb_cpu *cpu, const struct rb_window *w, int64_t m, bool blocked,
                       bool bias, struct rb_kernel **ret_kernel)
{
    struct rb_direct *d;

    if (!rb_conv_direct_suits(w, blocked) || w->stride[1] != w->stride[2])
        return RB_EUNSUPPORTED;
    d = rb_cpu_kernel(sizeof *d, direct_run);
    d->bias = bias;
    d->m = m;
    d->blocked = blocked;
    d->rows = w->in[1];
    d->columns = w->in[2];
    d->planes = blocked ? w->c / RB_BLOCK : w->c;
    d->blocks = blocked ? d->planes : 1;
    d->stride = w->stride[1];
    d->out_blocks = m / RB_BLOCK;
    d->out_rows = w->out[1];
    d->out_columns = w->out[2];
    d->out_stride = 1;
    return prepare(cpu, w, d, ret_kernel);
}

int rb_cpu_conv_direct_back(struct rb_cpu *cpu, const struct rb_window *w, int64_t m, bool blocked,
                            struct rb_kernel **ret_kernel)
{
    struct rb_direct *d;

    if (!rb_conv_direct_suits(w, blocked) || !blocked || w->stride[1] != w->stride[2])
        return RB_EUNSUPPORTED;
    d = rb_cpu_kernel(sizeof *d, direct_run);
    d->back = true;
    d->m = m;
    d->blocked = true;
    d->rows = w->out[1];
    d->columns = w->out[2];
    d->planes = d->blocks = m / RB_BLOCK;
    d->stride = 1;
    d->out_blocks = w->c / RB_BLOCK;
    d->out_rows = w->in[1];
    d->out_columns = w->in[2];
    d->out_stride = w->stride[1];
    return prepare(cpu, w, d, ret_kernel);
}

#endif
