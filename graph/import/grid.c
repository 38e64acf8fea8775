/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample: the neighbours of the places that a grid names are gathered, and weighted by their
 * distance.  The weights carry the gradient to the grid. */
#include "graph/import/make.h"

#include <string.h>

enum { MOST_TAPS = 4 };

enum outside { ZEROS, BORDER, REFLECTION };

struct grid {
    struct rb_import *import;
    const char *mode;
    bool align_corners;
    enum outside outside;
    struct rb_value *x;  /* samples and places, channels */
    struct rb_value *at; /* samples, places wanted, axes: the last axis first */
    int64_t samples;
    int n_axes;
    int64_t size[RB_MAX_RANK];
};

/* A neighbour along one axis, for each place: where it lies, and how much it counts. */
struct tap {
    struct rb_value *index;  /* int64 */
    struct rb_value *weight; /* NULL: 1 */
};

static struct rb_value *one(const struct grid *g, enum rb_op op, struct rb_value *x)
{
    return rb_make_one(g->import, op, x);
}

static struct rb_value *two(const struct grid *g, enum rb_op op, struct rb_value *a,
                            struct rb_value *b)
{
    return rb_make_two(g->import, op, a, b);
}

static struct rb_value *linear(const struct grid *g, struct rb_value *x, double factor, double term)
{
    return rb_make_plus(g->import, rb_make_times(g->import, x, factor), term);
}

/* ---- Where the places lie ---- */

/* From -1 ... 1 to elements of the axis. */
static struct rb_value *position(const struct grid *g, int axis)
{
    double n = (double)g->size[axis];
    struct rb_value *x = rb_make_slice(g->import, g->at, 2, g->n_axes - 1 - axis, 1, 1);

    return linear(g, rb_make_squeeze(g->import, x, 2), (g->align_corners ? n - 1 : n) / 2,
                  (n - 1) / 2);
}

/* Clamped to the axis; a NaN becomes its first element. */
static struct rb_value *inside(const struct grid *g, struct rb_value *x, int axis)
{
    struct rb_value *first = rb_make_number(g->import, RB_F32, 0);
    struct rb_value *last = rb_make_number(g->import, RB_F32, (double)(g->size[axis] - 1));

    return rb_make_where(g->import, two(g, RB_OP_GREATER, x, first), two(g, RB_OP_MIN, x, last),
                         first);
}

/* Reflected between the ends, which are the middles of the outer elements or their edges. */
static struct rb_value *reflected(const struct grid *g, struct rb_value *x, int axis)
{
    double least = g->align_corners ? 0 : -0.5;
    double span = (double)g->size[axis] - 1 - 2 * least;
    struct rb_value *in[2];

    if (span == 0)
        return linear(g, x, 0, 0);
    in[0] = one(g, RB_OP_ABS, linear(g, x, 1, -least));
    in[1] = rb_make_number(g->import, RB_F32, 2 * span);
    x = rb_make_with(g->import, RB_OP_MOD, 2, in, "fmod", 1);
    return linear(g, one(g, RB_OP_ABS, linear(g, x, 1, -span)), -1, span + least);
}

static struct rb_value *padded(const struct grid *g, struct rb_value *x, int axis)
{
    if (g->outside == ZEROS)
        return x;
    return inside(g, g->outside == REFLECTION ? reflected(g, x, axis) : x, axis);
}

/* ---- Neighbours ---- */

static struct tap tap(const struct grid *g, struct rb_value *x, struct rb_value *weight, int axis)
{
    struct rb_value *at = inside(g, x, axis);

    if (g->outside == ZEROS) {
        struct rb_value *there = rb_make_cast(g->import, two(g, RB_OP_EQUAL, x, at), RB_F32);

        weight = weight ? two(g, RB_OP_MUL, weight, there) : there;
    }
    return (struct tap){rb_make_cast(g->import, at, RB_I64), weight};
}

/* Keys' cubic with a = -0.75, of a neighbour that is `x` away: within 1, or between 1 and 2. */
static struct rb_value *near_cubic(const struct grid *g, struct rb_value *x)
{
    struct rb_value *square = two(g, RB_OP_MUL, x, x);

    return linear(g, two(g, RB_OP_MUL, linear(g, x, 1.25, -2.25), square), 1, 1);
}

static struct rb_value *far_cubic(const struct grid *g, struct rb_value *x)
{
    struct rb_value *y = linear(g, x, -0.75, 3.75);

    y = linear(g, two(g, RB_OP_MUL, y, x), 1, -6);
    return linear(g, two(g, RB_OP_MUL, y, x), 1, 3);
}

static int cubic_taps(const struct grid *g, struct rb_value *x, int axis, struct tap *taps)
{
    struct rb_value *least = one(g, RB_OP_FLOOR, x), *over = two(g, RB_OP_SUB, x, least);

    for (int k = 0; k < 4; k++) {
        struct rb_value *away = k < 2 ? linear(g, over, 1, 1 - k) : linear(g, over, -1, k - 1);
        struct rb_value *weight = k == 1 || k == 2 ? near_cubic(g, away) : far_cubic(g, away);

        taps[k] = tap(g, padded(g, linear(g, least, 1, k - 1), axis), weight, axis);
    }
    return 4;
}

static int taps_of(const struct grid *g, int axis, struct tap *taps)
{
    struct rb_value *x = position(g, axis), *least, *over;

    if (strstr(g->mode, "cubic"))
        return cubic_taps(g, x, axis, taps);
    x = padded(g, x, axis);
    if (!strcmp(g->mode, "nearest")) {
        taps[0] = tap(g, one(g, RB_OP_ROUND, x), NULL, axis);
        return 1;
    }
    least = one(g, RB_OP_FLOOR, x);
    over = two(g, RB_OP_SUB, x, least);
    taps[0] = tap(g, least, linear(g, over, -1, 1), axis);
    taps[1] = tap(g, linear(g, least, 1, 1), over, axis);
    return 2;
}

/* ---- All of it ---- */

/* Where each sample's elements begin. */
static struct rb_value *first_elements(const struct grid *g)
{
    int64_t elements = 1, dim[2] = {g->samples, 1};

    for (int i = 0; i < g->n_axes; i++)
        elements *= g->size[i];
    return rb_make_times(g->import,
                         rb_make_reshape(g->import, rb_make_count(g->import, g->samples), 2, dim),
                         (double)elements);
}

/* The sum over each neighbour of one axis with each of the other axes. */
static struct rb_value *sum(const struct grid *g, const struct tap taps[][MOST_TAPS], int n_taps,
                            int axis, struct tap so_far)
{
    struct rb_value *y = NULL;

    if (axis == g->n_axes) {
        y = rb_make_gather(g->import, g->x, so_far.index, 0);
        return so_far.weight ? two(g, RB_OP_MUL, y, rb_make_unsqueeze(g->import, so_far.weight, 2))
                             : y;
    }
    for (int k = 0; k < n_taps; k++) {
        const struct tap *own = &taps[axis][k];
        struct tap both = {own->index, own->weight};
        struct rb_value *term;

        for (int i = axis + 1; i < g->n_axes; i++)
            both.index = rb_make_times(g->import, both.index, (double)g->size[i]);
        both.index = two(g, RB_OP_ADD, so_far.index, both.index);
        if (so_far.weight)
            both.weight = two(g, RB_OP_MUL, so_far.weight, own->weight);
        term = sum(g, taps, n_taps, axis + 1, both);
        y = y ? two(g, RB_OP_ADD, y, term) : term;
    }
    return y;
}

static void read(struct grid *g)
{
    static const char *const modes[] = {"bilinear", "linear", "nearest", "bicubic", "cubic"};
    static const char *const pads[] = {"zeros", "border", "reflection"};
    struct rb_import *import = g->import;
    const char *pad = "zeros";
    bool known = false;

    g->mode = import->opset < 20 ? "bilinear" : "linear";
    g->align_corners = rb_make_int(import, "align_corners", 0) != 0;
    if (!import->err)
        import->err = rb_import_text(import, "mode", &g->mode);
    if (!import->err)
        import->err = rb_import_text(import, "padding_mode", &pad);
    for (size_t i = 0; i < RB_COUNT(modes); i++)
        known |= !strcmp(modes[i], g->mode);
    if (!known)
        rb_make_no(import, "mode is not linear, nearest or cubic");
    while (g->outside < RB_COUNT(pads) && strcmp(pads[g->outside], pad) != 0)
        g->outside++;
    if (g->outside == RB_COUNT(pads))
        rb_make_no(import, "padding_mode is not zeros, border or reflection");
}

/* Arrange the elements of samples in rows of channels, and places along one axis. */
static void arrange(struct grid *g, struct rb_value *x, struct rb_value *grid)
{
    struct rb_import *import = g->import;
    int64_t dim[3] = {x->type.dim[0], 1, g->n_axes}, perm[RB_MAX_RANK] = {0};

    g->samples = x->type.dim[0];
    for (int i = 0; i < g->n_axes; i++) {
        g->size[i] = x->type.dim[2 + i];
        perm[1 + i] = 2 + i;
        dim[1] *= grid->type.dim[1 + i];
    }
    perm[1 + g->n_axes] = 1;
    g->at = rb_make_reshape(import, grid, 3, dim);
    dim[0] = rb_tensor_elements(&x->type) / x->type.dim[1];
    dim[1] = x->type.dim[1];
    g->x = rb_make_reshape(import, rb_make_transpose(import, x, perm), 2, dim);
}

int rb_import_op_grid_sample(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *grid = rb_make_need(import, 1), *y;
    struct grid g = {.import = import, .n_axes = x ? x->type.rank - 2 : 0};
    struct tap taps[RB_MAX_RANK][MOST_TAPS];
    int64_t dim[RB_MAX_RANK];
    int n_taps = 0;

    if (import->err)
        return import->err;
    if (g.n_axes < 1 || g.n_axes > 3)
        return RB_IMPORT_NO(import, "%d spatial axes", g.n_axes);
    if (grid->type.rank != x->type.rank || grid->type.dim[0] != x->type.dim[0] ||
        grid->type.dim[g.n_axes + 1] != g.n_axes)
        return RB_IMPORT_BAD(import, "the grid does not fit the input");
    if (!rb_tensor_elements(&x->type) || !rb_tensor_elements(&grid->type))
        return RB_IMPORT_NO(import, "a tensor without elements");
    read(&g);
    arrange(&g, x, grid);
    for (int i = 0; !import->err && i < g.n_axes; i++)
        n_taps = taps_of(&g, i, taps[i]);
    if (import->err)
        return import->err;
    y = sum(&g, taps, n_taps, 0, (struct tap){first_elements(&g), NULL});
    y = rb_make_transpose(import, y, (const int64_t[]){0, 2, 1});
    memcpy(dim, x->type.dim, 2 * sizeof *dim);
    memcpy(dim + 2, grid->type.dim + 1, (size_t)g.n_axes * sizeof *dim);
    return rb_make_bind(import, 0, rb_make_reshape(import, y, x->type.rank, dim));
}
