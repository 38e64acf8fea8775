/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/conv_outer.h"

#include "kernels/cpu/outer.h"
#include "kernels/cpu/vector.h"
#include "proto/blocked.h"

#include <stdlib.h>
#include <string.h>

/* Channels of x at a time, at most: their windows stay in the second cache. */
enum { CHANNELS = 64 };

/* More pixels make a large product, and a gradient of fewer weights is soon turned around.  Where
 * windows are large, both factors soon take too much memory (bytes). */
enum { MOST_PIXELS = 256, LEAST_WEIGHTS = 1 << 16, MOST_ROOM = 4 << 20 };

struct conv_outer {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    struct rb_window window;
    int64_t m, plane, pixels, taps;
    int64_t channels; /* of x at a time */
    size_t size;      /* of an element of dy and x */
    struct rb_kernel *outer;
};

/* ---- Factors ---------------------------------------------------------------------------------*/

/* Pixel by pixel all channels of dy. */
static void gather_pixels(const struct conv_outer *conv, const char *dy, char *to)
{
    const size_t block = RB_BLOCK * conv->size, step = (size_t)conv->m * conv->size;

    for (int64_t n = 0; n < conv->window.n; n++, to += (size_t)conv->plane * step)
        for (int64_t b = 0; b < conv->m / RB_BLOCK; b++)
            for (int64_t p = 0; p < conv->plane; p++, dy += block)
                memcpy(to + (size_t)p * step + (size_t)b * block, dy, block);
}

/* Where tap k of the window at output `out` of an axis is; -1: outside. */
static RB_INLINE int64_t place(const struct rb_window *w, int axis, int64_t out, int64_t k)
{
    const int64_t at = out * w->stride[axis] - w->begin[axis] + k * w->dilation[axis];

    return at < w->in[axis] ? at : -1;
}

/* Numbers that are only moved. */
typedef uint32_t wide_number __attribute__((may_alias));
typedef uint16_t narrow_number __attribute__((may_alias));

/* 16 channels of a pixel (NULL: all 0), to places that are `taps` apart. */
static RB_INLINE void scatter(const void *from, void *to, int64_t taps, size_t size)
{
    for (int i = 0; i < RB_BLOCK; i++) {
        if (size == sizeof(wide_number))
            ((wide_number *)to)[i * taps] = from ? ((const wide_number *)from)[i] : 0;
        else
            ((narrow_number *)to)[i * taps] = from ? ((const narrow_number *)from)[i] : 0;
    }
}

/* One window on a plane of 16 channels: [16][taps]. */
static RB_INLINE void gather_window(const struct conv_outer *conv, const char *plane,
                                    const int64_t out[3], char *to, size_t size)
{
    const struct rb_window *w = &conv->window;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            for (int64_t k = 0; k < w->kernel[2]; k++, to += size) {
                const int64_t z = place(w, 0, out[0], i), y = place(w, 1, out[1], j);
                const int64_t x = place(w, 2, out[2], k);
                const int64_t at = (z * w->in[1] + y) * w->in[2] + x;

                scatter(z < 0 || y < 0 || x < 0 ? NULL : plane + (size_t)at * RB_BLOCK * size, to,
                        conv->taps, size);
            }
}

/* For each pixel of dy what its window shows of some channels of x from `first` on:
 * [pixels][channels][taps]. */
static RB_INLINE void gather_windows(const struct conv_outer *conv, const char *x, int64_t first,
                                     char *to, size_t size)
{
    const struct rb_window *w = &conv->window;
    const size_t plane = (size_t)(w->in[0] * w->in[1] * w->in[2]) * RB_BLOCK * size;
    const int64_t blocks = w->c / RB_BLOCK;
    int64_t out[3];

    for (int64_t n = 0; n < w->n; n++)
        for (out[0] = 0; out[0] < w->out[0]; out[0]++)
            for (out[1] = 0; out[1] < w->out[1]; out[1]++)
                for (out[2] = 0; out[2] < w->out[2]; out[2]++)
                    for (int64_t c = first; c < first + conv->channels; c += RB_BLOCK) {
                        const char *from = x + (size_t)(n * blocks + c / RB_BLOCK) * plane;

                        gather_window(conv, from, out, to, size);
                        to += (size_t)(RB_BLOCK * conv->taps) * size;
                    }
}

static void gather(const struct conv_outer *conv, const void *x, int64_t first, char *to)
{
    if (conv->size == sizeof(wide_number))
        gather_windows(conv, x, first, to, sizeof(wide_number));
    else
        gather_windows(conv, x, first, to, sizeof(narrow_number));
}

/* ---- The kernel ------------------------------------------------------------------------------*/

/* into: NULL: written to dw. */
static void run_parts(const struct conv_outer *conv, const void *const *in, float *dw,
                      const struct rb_fixed *into)
{
    char *pixels = conv->cpu->windows.memory;
    char *windows = pixels + (size_t)(conv->pixels * conv->m) * conv->size;
    const void *const factors[] = {pixels, windows};

    gather_pixels(conv, in[0], pixels);
    for (int64_t first = 0; first < conv->window.c; first += conv->channels) {
        gather(conv, in[1], first, windows);
        if (into) {
            struct rb_fixed part = *into;

            part.sum += first * conv->taps;
            conv->outer->sum(conv->outer, factors, &part);
        } else {
            void *const out[] = {dw + first * conv->taps};

            conv->outer->run(conv->outer, factors, out, NULL);
        }
    }
}

static void conv_outer_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    (void)key;
    run_parts((const struct conv_outer *)kernel, in, out[0], NULL);
}

static void conv_outer_sum(struct rb_kernel *kernel, const void *const *in,
                           const struct rb_fixed *into)
{
    run_parts((const struct conv_outer *)kernel, in, NULL, into);
}

static void conv_outer_free(struct rb_kernel *kernel)
{
    struct conv_outer *conv = (struct conv_outer *)kernel;

    if (conv->outer)
        conv->outer->free(conv->outer);
    free(conv);
}

/* As many channels at a time, in whole blocks, as divide all channels evenly. */
static int64_t channels_at_once(int64_t c)
{
    int64_t channels = CHANNELS;

    while (c % channels)
        channels -= RB_BLOCK;
    return channels;
}

int rb_cpu_conv_outer(struct rb_cpu *cpu, const struct rb_window *window, int64_t m,
                      enum rb_dtype factors, struct rb_kernel **ret_kernel)
{
    const int64_t plane = window->out[0] * window->out[1] * window->out[2];
    const int64_t taps = window->kernel[0] * window->kernel[1] * window->kernel[2];
    const int64_t pixels = window->n * plane, channels = channels_at_once(window->c);
    const struct rb_matrices s = {
        .m = m, .n = channels * taps, .k = pixels, .swap_a = true, .swap_b = false};
    const size_t size = rb_dtype_size(factors);
    struct conv_outer *conv;
    size_t room;
    int err;

    if (pixels > MOST_PIXELS || m * window->c * taps < LEAST_WEIGHTS)
        return RB_EUNSUPPORTED;
    room = (size_t)(pixels * (m + s.n)) * size;
    if (room > MOST_ROOM)
        return RB_EUNSUPPORTED;
    if (rb_cpu_need(&cpu->windows, room))
        return RB_ENOMEM;
    conv = rb_cpu_kernel(sizeof *conv, conv_outer_run);
    conv->base.free = conv_outer_free;
    conv->base.sum = conv_outer_sum;
    conv->cpu = cpu;
    conv->window = *window;
    conv->m = m;
    conv->plane = plane;
    conv->pixels = pixels;
    conv->taps = taps;
    conv->channels = channels;
    conv->size = size;
    err = rb_cpu_outer_part(cpu, &s, factors, window->c * taps, &conv->outer);
    if (err) {
        conv_outer_free(&conv->base);
        return err;
    }
    *ret_kernel = &conv->base;
    return 0;
}
