/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of convolutions on processors with AVX2: 16 channels of some pixels, or of some weights,
 * all of them in registers.
 *
 * conv_direct, conv_weights > [conv_tile]
 *
 * Activations are read where they lie, in blocks of channels (proto/blocked.h), so that nothing is
 * written out as columns: a number of a window times a vector of 16 channels.  Each element is one
 * chain of fused multiply-adds, in the order of the calls, and within a call in the order written
 * here. */
#ifndef RB_KERNELS_CPU_CONV_TILE_H
#define RB_KERNELS_CPU_CONV_TILE_H

#include "proto/blocked.h"

#include <stdbool.h>
#include <stdint.h>

/* 12 of 16 registers are sums, the others factors. */
enum { RB_CONV_PIXELS = 6, RB_CONV_ROWS = 6 };

/* Numbers of a window that are gone through together: one tap of a block of channels. */
struct rb_conv_run {
    int64_t x;   /* where the first of them is, from the window's place on */
    int64_t w;   /* where the weights that it is multiplied with are, 16 channels side by side */
    int64_t row; /* row of the plane, counted from the window's */
};

/* Runs that lie beside the plane for the first window of a line, for no window, and for the last
 * window.  Zeros lie there, which need not be multiplied. */
enum rb_conv_group { RB_CONV_FIRST, RB_CONV_INSIDE, RB_CONV_LAST, RB_CONV_GROUPS };
struct rb_conv_runs {
    const struct rb_conv_run *run;
    int64_t n;
};

/* Whether a tile's first pixel is the first of its line, and its last pixel the last. */
struct rb_conv_ends {
    bool first, last;
};

/* What all tiles of a plane have in common: numbers from one thing to the next. */
struct rb_conv_steps {
    int64_t pixel, channel; /* of x: between windows, within a run */
    int64_t length;         /* of a run; RB_BLOCK: its numbers are side by side */
    int64_t to;             /* of y, from pixel to pixel */
};

/* y [pixels][16] = the sum of all runs on top of a beginning: `bias` [16], zeros (NULL), or with
 * `onto` what y holds.  pixels: 1 to RB_CONV_PIXELS. */
void rb_conv_tile(int pixels, struct rb_conv_ends ends, const struct rb_conv_steps *steps,
                  const struct rb_conv_runs runs[RB_CONV_GROUPS], const float *x, const float *w,
                  const float *bias, bool onto, float *y);

/* Pixels that are gone through for a tile of weights: some lines of some images. */
struct rb_conv_pixels {
    int64_t images, lines, pixels;
    int64_t x_image, x_line, x_pixel; /* numbers from one to the next */
    int64_t y_image, y_line;          /* a pixel of y is 16 numbers */
    int64_t x_row;                    /* from one of the tile's rows to the next */
};

/* sums [rows][16], `step` apart, += the sum over all pixels of `rows` numbers of x, each times the
 * 16 of dy.  rows: 1 to RB_CONV_ROWS. */
void rb_conv_weights_tile(int rows, const struct rb_conv_pixels *pixels, const float *x,
                          const float *dy, float *sums, int64_t step);

#endif
