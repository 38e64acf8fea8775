/* SPDX-License-Identifier: Apache-2.0 */
/* Inside conv_direct: what a kernel goes through, found while it is prepared.
 *
 * conv_direct > [conv_direct_inside] > conv_direct_phases */
#ifndef RB_KERNELS_CPU_CONV_DIRECT_INSIDE_H
#define RB_KERNELS_CPU_CONV_DIRECT_INSIDE_H

#include "kernels/cpu/conv_tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

/* Pixels whose windows see the same taps: all pixels, or, of dx with a stride, those at one place
 * of the stride. */
struct rb_direct_phase {
    int64_t row, column;   /* of what is written: the first pixel */
    int64_t rows, columns; /* and how many pixels */
    int64_t together;      /* blocks of what is read that are gone through at a time */
    struct rb_conv_run *runs[RB_CONV_GROUPS]; /* of that many blocks, */
    int64_t n[RB_CONV_GROUPS];                /* in the order of their rows, up or down */
};

struct rb_direct {
    struct rb_kernel base;
    const struct rb_cpu *cpu;
    int64_t m, c, taps, images;
    bool back, bias, blocked;
    /* What is read: x, or dy.  If it is not in blocks, each channel is a plane, and all channels
     * are one block. */
    int64_t rows, columns, planes, blocks;
    int64_t left, pitch; /* of its copy: columns in front, columns in all; 0, `columns`: no copy */
    int64_t image, block, row; /* numbers from one to the next */
    int64_t stride;            /* pixels from a window to the next */
    struct rb_conv_steps steps;
    int64_t at_once; /* images at a time */
    /* What is written: y, or dx. */
    int64_t out_blocks, out_rows, out_columns, out_stride;
    int64_t n_phases;
    struct rb_direct_phase *phases;
};

/* Does what is read have to be copied, with zeros at its sides? */
static inline bool rb_direct_copies(const struct rb_direct *d)
{
    return d->pitch > d->columns;
}

/* Find sides, steps and phases from sizes and strides.  The caller frees them with rb_direct_done.
 */
void rb_direct_find(struct rb_direct *d, const struct rb_window *window);
void rb_direct_done(struct rb_direct *d);

#endif
