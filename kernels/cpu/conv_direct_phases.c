/* SPDX-License-Identifier: Apache-2.0 */
/* Which windows see what, and where it lies. */
#include "kernels/cpu/conv_direct_inside.h"

#include <stdlib.h>

#if defined(__x86_64__)

/* Taps of blocks that are gone through at a time: few enough that their weights come from the
 * second cache, but so many that a tile is seldom stored and loaded again. */
enum { TAPS = 36 };

/* Where tap k of the windows at one place of a stride is, in rows or columns from the first window
 * on; false: those windows do not see it. */
static bool find_tap(const struct rb_direct *d, const struct rb_window *w, int axis, int64_t place,
                     int64_t k, int64_t *ret_at)
{
    const int64_t at = k * w->dilation[axis] - w->begin[axis];

    if (!d->back) {
        *ret_at = at;
        return true;
    }
    *ret_at = (place - at) / w->stride[axis];
    return (place - at) % w->stride[axis] == 0;
}

/* How many columns windows see in front of the first one, and how many columns there are with these
 * and those behind the last. */
static void find_sides(struct rb_direct *d, const struct rb_window *w)
{
    const int64_t places = d->back ? w->stride[2] : 1;
    const int64_t windows = (d->out_columns - 1) / places;

    d->pitch = d->columns;
    for (int64_t place = 0; place < places; place++)
        for (int64_t k = 0, at; k < w->kernel[2]; k++)
            if (find_tap(d, w, 2, place, k, &at)) {
                d->left = -at > d->left ? -at : d->left;
                if (at + windows * d->stride >= d->pitch)
                    d->pitch = at + windows * d->stride + 1;
            }
    d->pitch += d->left;
}

static void find_steps(struct rb_direct *d)
{
    const int64_t pixel = d->blocked ? RB_BLOCK : 1, plane = d->rows * d->pitch * pixel;

    d->row = d->pitch * pixel;
    d->steps.pixel = d->stride * pixel;
    d->steps.channel = d->blocked ? 1 : plane;
    d->steps.length = d->blocked ? RB_BLOCK : d->c;
    d->steps.to = d->out_stride * RB_BLOCK;
    d->image = rb_direct_copies(d) && d->blocked ? plane : d->planes * plane;
    d->block = rb_direct_copies(d) ? d->at_once * plane : plane;
}

/* Taps that a phase sees. */
static int64_t count_taps(const struct rb_direct *d, const struct rb_window *w,
                          const struct rb_direct_phase *phase)
{
    int64_t taps = 0, at;

    for (int64_t k = 0; k < w->kernel[1]; k++)
        for (int64_t l = 0; l < w->kernel[2]; l++)
            taps +=
                find_tap(d, w, 1, phase->row, k, &at) && find_tap(d, w, 2, phase->column, l, &at);
    return taps;
}

/* As many blocks at a time as there is room for, so that it is as many each time. */
static int64_t find_together(const struct rb_direct *d, int64_t taps)
{
    int64_t together = taps > 0 ? TAPS / taps : d->blocks;

    together = together < 1 ? 1 : together < d->blocks ? together : d->blocks;
    while (d->blocks % together)
        together--;
    return together;
}

/* One tap of the windows of a phase in block b. */
static void add_run(const struct rb_direct *d, const struct rb_window *w,
                    struct rb_direct_phase *phase, int64_t b, int64_t k, int64_t l)
{
    const int64_t number = d->blocked ? RB_BLOCK : 1;
    const int64_t last = (phase->columns - 1) * d->stride;
    int64_t row, column;
    enum rb_conv_group group;

    if (!find_tap(d, w, 1, phase->row, k, &row) || !find_tap(d, w, 2, phase->column, l, &column))
        return;
    group = column < 0 ? RB_CONV_FIRST : last + column < d->columns ? RB_CONV_INSIDE : RB_CONV_LAST;
    phase->runs[group][phase->n[group]++] =
        (struct rb_conv_run){.x = b * d->block + row * d->row + (d->left + column) * number,
                             .w = (b * d->taps + k * w->kernel[2] + l) * d->steps.length * RB_BLOCK,
                             .row = row};
}

static void find_phase(struct rb_direct *d, const struct rb_window *w, int64_t row, int64_t column,
                       struct rb_direct_phase *phase)
{
    const int64_t apart = d->out_stride;
    int64_t taps;

    *phase = (struct rb_direct_phase){.row = row,
                                      .column = column,
                                      .rows = (d->out_rows - row + apart - 1) / apart,
                                      .columns = (d->out_columns - column + apart - 1) / apart};
    taps = count_taps(d, w, phase);
    phase->together = find_together(d, taps);
    for (int group = 0; group < RB_CONV_GROUPS; group++)
        phase->runs[group] = rb_alloc((size_t)(phase->together * taps + 1) * sizeof **phase->runs);
    for (int64_t k = 0; k < w->kernel[1]; k++)
        for (int64_t b = 0; b < phase->together; b++)
            for (int64_t l = 0; l < w->kernel[2]; l++)
                add_run(d, w, phase, b, k, l);
}

static void find_phases(struct rb_direct *d, const struct rb_window *w)
{
    const int64_t places = d->out_stride;

    d->phases = rb_alloc((size_t)(places * places) * sizeof *d->phases);
    for (int64_t row = 0; row < places && row < d->out_rows; row++)
        for (int64_t column = 0; column < places && column < d->out_columns; column++)
            find_phase(d, w, row, column, &d->phases[d->n_phases++]);
}

void rb_direct_find(struct rb_direct *d, const struct rb_window *w)
{
    find_sides(d, w);
    find_steps(d);
    find_phases(d, w);
}

void rb_direct_done(struct rb_direct *d)
{
    for (int64_t p = 0; p < d->n_phases; p++)
        for (int group = 0; group < RB_CONV_GROUPS; group++)
            free(d->phases[p].runs[group]);
    free(d->phases);
}

#endif
