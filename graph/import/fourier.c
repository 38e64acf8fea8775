/* SPDX-License-Identifier: Apache-2.0 */
/* DFT and STFT: products with a matrix of sines and cosines that is known at import.  A complex
 * number is a last axis of two, a real one of one. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_WEIGHTS = 1 << 24 };

struct transform {
    int64_t n;     /* samples that are transformed */
    int64_t parts; /* of each: 1 real, 2 complex */
    int64_t given; /* samples that exist: the others are zeros */
    int64_t results;
    int64_t made; /* parts of each result */
    bool inverse;
};

/* The weight of sample j.  Where the given half of the samples mirrors the other half, each stands
 * for two, except the first and the middle one. */
static double scale_of(const struct transform *t, int64_t j)
{
    bool two = t->made == 1 && j > 0 && 2 * j != t->n;

    return t->inverse ? (two ? 2 : 1) / (double)t->n : 1;
}

/* Rows: parts of samples; columns: parts of results. */
static struct rb_value *matrix_of(struct rb_import *import, const struct transform *t)
{
    int64_t rows = t->given * t->parts, columns = t->results * t->made;
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = 2, .dim = {rows, columns}};
    double circle = 2 * acos(-1.0) / (double)t->n;
    float *matrix;

    if (rows < 1 || columns < 1 || rows > MOST_WEIGHTS / columns)
        return rb_make_no(import, "a transform of %" PRId64 " numbers to %" PRId64, rows, columns);
    matrix = RB_ARENA_NEW(&import->graph->arena, float, rows *columns);
    for (int64_t j = 0; j < t->given; j++)
        for (int64_t k = 0; k < t->results; k++) {
            double angle = circle * (double)(j * k % t->n) * (t->inverse ? 1 : -1);
            double scale = scale_of(t, j);
            float *part = matrix + j * t->parts * columns + t->made * k;

            part[0] = (float)(scale * cos(angle));
            if (t->made == 2)
                part[1] = (float)(scale * sin(angle));
            if (t->parts == 2)
                part[columns] = (float)(scale * -sin(angle));
            if (t->parts == 2 && t->made == 2)
                part[columns + 1] = part[0];
        }
    return rb_graph_value(import->graph, RB_VALUE_CONST, NULL, &type, matrix);
}

/* The last two axes, samples and their parts, become a row of the results' parts. */
static struct rb_value *transformed(struct rb_import *import, struct rb_value *x,
                                    const struct transform *t)
{
    struct rb_value *matrix = import->err ? NULL : matrix_of(import, t);
    int64_t dim[2] = {1, t->given * t->parts};

    if (import->err)
        return NULL;
    for (int i = 0; i < x->type.rank - 2; i++)
        dim[0] *= x->type.dim[i];
    return rb_make_matmul(import, rb_make_reshape(import, x, 2, dim), matrix, false);
}

/* ---- DFT ---- */

static int64_t known_number(struct rb_import *import, int i, const char *what, int64_t otherwise)
{
    const int64_t *given = NULL;
    int n = 0;

    if (!import->err)
        import->err = rb_import_known_ints(import, i, what, &given, &n);
    if (!import->err && given && n != 1)
        rb_make_bad(import, "%s is not one number", what);
    return !import->err && given ? given[0] : otherwise;
}

/* The axis, counted from the front; the last axis is that of a number's parts. */
static int64_t axis_of(struct rb_import *import, const struct rb_value *x)
{
    int64_t axis =
        import->opset < 20 ? rb_make_int(import, "axis", 1) : known_number(import, 2, "axis", -2);

    if (!import->err && (x->type.rank < 2 || x->type.dim[x->type.rank - 1] < 1 ||
                         x->type.dim[x->type.rank - 1] > 2))
        rb_make_bad(import, "the last axis is not one of 1 or 2 parts of a number");
    if (!import->err)
        import->err = rb_import_axis(import, axis, x->type.rank, &axis);
    if (!import->err && axis == x->type.rank - 1)
        rb_make_bad(import, "the axis is that of a number's parts");
    return axis;
}

int rb_import_op_dft(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *y;
    int64_t axis = axis_of(import, x), perm[RB_MAX_RANK], back[RB_MAX_RANK], dim[RB_MAX_RANK];
    bool onesided = rb_make_int(import, "onesided", 0) != 0;
    struct transform t = {.inverse = rb_make_int(import, "inverse", 0) != 0};
    bool mirrored = onesided && t.inverse; /* half of the samples are given, real numbers made */
    int rank = x ? x->type.rank : 0, moved = 0;
    int64_t most;

    t.n = import->err ? 1 : x->type.dim[axis];
    t.n = known_number(import, 1, "dft_length", mirrored ? 2 * (t.n - 1) : t.n);
    if (!import->err && (t.n < 1 || t.n > MOST_WEIGHTS))
        rb_make_no(import, "a transform of %" PRId64 " samples", t.n);
    if (import->err)
        return import->err;
    t.parts = x->type.dim[rank - 1];
    t.made = mirrored ? 1 : 2;
    t.results = onesided && !mirrored ? t.n / 2 + 1 : t.n;
    most = mirrored ? t.n / 2 + 1 : t.n;
    t.given = x->type.dim[axis] < most ? x->type.dim[axis] : most;
    for (int i = 0; i < rank - 1; i++)
        if (i != axis)
            perm[moved++] = i;
    perm[moved++] = axis;
    perm[moved++] = rank - 1;
    y = rb_make_transpose(import, rb_make_slice(import, x, (int)axis, 0, t.given, 1), perm);
    y = transformed(import, y, &t);
    for (int i = 0; i < rank; i++) {
        back[perm[i]] = i;
        dim[i] = i == rank - 1 ? t.made : i == rank - 2 ? t.results : x->type.dim[perm[i]];
    }
    return rb_make_bind(import, 0,
                        rb_make_transpose(import, rb_make_reshape(import, y, rank, dim), back));
}

/* ---- STFT ---- */

/* Frames of the signal: samples, frames, elements of a frame, parts. */
static struct rb_value *frames_of(struct rb_import *import, struct rb_value *x, int64_t step,
                                  int64_t n)
{
    int64_t count = 1 + (x->type.dim[1] - n) / step, *from;
    struct rb_tensor_type type = {.dtype = RB_I64, .rank = 2, .dim = {count, n}};

    if (count > MOST_WEIGHTS / n)
        return rb_make_no(import, "%" PRId64 " frames of %" PRId64, count, n);
    from = RB_ARENA_NEW(&import->graph->arena, int64_t, count * n);
    for (int64_t i = 0; i < count * n; i++)
        from[i] = i / n * step + i % n;
    return rb_make_gather(import, x,
                          rb_graph_value(import->graph, RB_VALUE_CONST, NULL, &type, from), 1);
}

int rb_import_op_stft(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0), *window = rb_import_in(import, 2), *y;
    int64_t step = known_number(import, 1, "frame_step", 0), dim[4] = {0};
    bool onesided = rb_make_int(import, "onesided", 1) != 0;
    struct transform t = {.made = 2};

    if (!import->err && x->type.rank == 2)
        x = rb_make_unsqueeze(import, x, 2);
    if (!import->err && (x->type.rank != 3 || x->type.dim[2] < 1 || x->type.dim[2] > 2))
        rb_make_bad(import, "the signal is not samples of real or complex numbers");
    t.n = known_number(import, 3, "frame_length",
                       import->err ? 0
                       : window    ? rb_tensor_elements(&window->type)
                                   : x->type.dim[1]);
    if (!import->err && (step < 1 || t.n < 1 || t.n > x->type.dim[1]))
        rb_make_bad(import,
                    "frames of %" PRId64 " in steps of %" PRId64 " from a signal of %" PRId64, t.n,
                    step, x->type.dim[1]);
    if (!import->err && window && rb_tensor_elements(&window->type) != t.n)
        rb_make_bad(import, "a window of %" PRId64 " for frames of %" PRId64,
                    rb_tensor_elements(&window->type), t.n);
    if (import->err)
        return import->err;
    t.parts = x->type.dim[2];
    t.given = t.n;
    t.results = onesided ? t.n / 2 + 1 : t.n;
    y = frames_of(import, x, step, t.n);
    dim[0] = t.n;
    dim[1] = 1;
    if (window)
        y = rb_make_two(import, RB_OP_MUL, y, rb_make_reshape(import, window, 2, dim));
    if (import->err)
        return import->err;
    dim[0] = y->type.dim[0];
    dim[1] = y->type.dim[1];
    dim[2] = t.results;
    dim[3] = 2;
    return rb_make_bind(import, 0, rb_make_reshape(import, transformed(import, y, &t), 4, dim));
}
