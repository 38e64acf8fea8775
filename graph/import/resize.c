/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample, an axis at a time: the nearest element is gathered; a weighted sum of
 * neighbours is a product with a matrix known at import. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_WEIGHTS = 1 << 24 };

struct resize {
    const char *mode, *coordinates, *nearest, *policy;
    int64_t axis[RB_MAX_RANK]; /* those that are scaled */
    int n_axes;
    double cubic;
    bool exclude_outside, antialias;
    bool cut; /* corners are aligned with the rounded size, not with the exact scaled one */
    double scale[RB_MAX_RANK];
    int64_t size[RB_MAX_RANK];
};

/* ---- Where an output element lies in the input ---- */

static double coordinate(const struct resize *r, int axis, int64_t i, int64_t n)
{
    double scale = r->scale[axis], at = (double)i, m = (double)r->size[axis], whole = (double)n;
    double last = (r->cut ? m : whole * scale) - 1;

    if (!strcmp(r->coordinates, "asymmetric"))
        return at / scale;
    if (!strcmp(r->coordinates, "align_corners"))
        return last > 0 ? at * (whole - 1) / last : 0;
    if (!strcmp(r->coordinates, "pytorch_half_pixel") && m <= 1)
        return 0;
    if (!strcmp(r->coordinates, "half_pixel_symmetric"))
        return whole / 2 * (1 - m / (whole * scale)) + (at + 0.5) / scale - 0.5;
    return (at + 0.5) / scale - 0.5;
}

static int64_t clamped(double x, int64_t n)
{
    return x < 0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

static int64_t nearest(const struct resize *r, double x, int64_t n)
{
    if (!strcmp(r->nearest, "floor"))
        return clamped(floor(x), n);
    if (!strcmp(r->nearest, "ceil"))
        return clamped(ceil(x), n);
    return clamped(!strcmp(r->nearest, "round_prefer_ceil") ? floor(x + 0.5) : ceil(x - 0.5), n);
}

/* The weight of the neighbour `distance` away: a tent, or Keys' cubic. */
static double weight(const struct resize *r, double distance)
{
    double d = fabs(distance), a = r->cubic;

    if (strcmp(r->mode, "cubic") != 0)
        return d < 1 ? 1 - d : 0;
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* Neighbours beyond the end count for the last element, or not at all.  With antialiasing an axis
 * that shrinks has more neighbours in proportion. */
static void fill_row(const struct resize *r, double x, int axis, int64_t n, float *row)
{
    double near = r->antialias && r->scale[axis] < 1 ? r->scale[axis] : 1, reach = 2 / near;
    double first = floor(x - reach) + 1, total = 0;
    bool share = r->exclude_outside || r->antialias;

    for (int pass = 0; pass < 2; pass++)
        for (double at = first; at < x + reach; at++) {
            bool outside = at < 0 || at > (double)(n - 1);
            double each = r->exclude_outside && outside ? 0 : weight(r, (x - at) * near);

            if (!pass)
                total += each;
            else
                row[clamped(at, n)] += (float)(each / (share ? total : 1));
        }
}

static struct rb_value *resized(struct rb_import *import, const struct resize *r,
                                struct rb_value *x, int axis)
{
    int64_t n = x->type.dim[axis], m = r->size[axis], dim[3] = {1, 1, 1}, *from;
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = 2, .dim = {m, n}};
    struct rb_value *matrix, *y;
    float *weights;

    if (n < 1 || m < 1 || n > MOST_WEIGHTS / m)
        return rb_make_no(import, "axis %d from %" PRId64 " to %" PRId64, axis, n, m);
    if (!strcmp(r->mode, "nearest")) {
        from = RB_ARENA_NEW(&import->graph->arena, int64_t, m);
        for (int64_t i = 0; i < m; i++)
            from[i] = nearest(r, coordinate(r, axis, i, n), n);
        return rb_make_gather(import, x, rb_graph_int64s(import->graph, NULL, from, (int)m), axis);
    }
    weights = RB_ARENA_NEW(&import->graph->arena, float, m *n);
    for (int64_t i = 0; i < m; i++)
        fill_row(r, coordinate(r, axis, i, n), axis, n, weights + i * n);
    matrix = rb_graph_value(import->graph, RB_VALUE_CONST, NULL, &type, weights);
    for (int i = 0; i < x->type.rank; i++)
        dim[i < axis ? 0 : i == axis ? 1 : 2] *= x->type.dim[i];
    y = rb_make_matmul(import, matrix, rb_make_reshape(import, x, 3, dim), false);
    type = x->type;
    type.dim[axis] = m;
    return rb_make_reshape(import, y, type.rank, type.dim);
}

/* ---- Reading the node ---- */

static void text(struct rb_import *import, const char *key, const char **value)
{
    if (!import->err)
        import->err = rb_import_text(import, key, value);
}

/* One factor an axis: an attribute or an input, depending on the opset. */
static struct rb_value *read_scales(struct rb_import *import, struct resize *r)
{
    const Onnx__AttributeProto *attribute = rb_import_attribute(import, "scales");
    struct rb_value *scales = rb_import_in(import, import->opset < 11 ? 1 : 2);
    int64_t n;

    if (attribute) {
        if (attribute->n_floats != (size_t)r->n_axes)
            return rb_make_bad(import, "%zu scales for %d axes", attribute->n_floats, r->n_axes);
        for (int i = 0; i < r->n_axes; i++)
            r->scale[r->axis[i]] = (double)attribute->floats[i];
        return NULL;
    }
    n = scales ? rb_tensor_elements(&scales->type) : 0;
    if (!n)
        return NULL;
    if (!rb_import_settle(scales))
        return rb_make_no(import, "the scales are computed from the data");
    if (n != r->n_axes)
        return rb_make_bad(import, "%" PRId64 " scales for %d axes", n, r->n_axes);
    for (int i = 0; i < r->n_axes; i++)
        r->scale[r->axis[i]] = rb_fold_real(scales, i);
    return scales;
}

/* Sizes are the given ones, or the nearest to them at which all axes are scaled alike. */
static void take_sizes(const struct rb_value *x, const int64_t *sizes, struct resize *r)
{
    bool larger = !strcmp(r->policy, "not_smaller"), stretch = !strcmp(r->policy, "stretch");
    double scale = 0;

    for (int i = 0; i < r->n_axes; i++) {
        double one = (double)sizes[i] / (double)x->type.dim[r->axis[i]];

        r->scale[r->axis[i]] = one;
        r->size[r->axis[i]] = sizes[i];
        scale = !i || (larger ? one > scale : one < scale) ? one : scale;
    }
    for (int i = 0; !stretch && i < r->n_axes; i++) {
        int64_t dim = x->type.dim[r->axis[i]];

        r->size[r->axis[i]] = (int64_t)floor(scale * (double)dim + 0.5);
        r->scale[r->axis[i]] = scale;
    }
}

static void read_sizes(struct rb_import *import, const struct rb_value *x, struct resize *r)
{
    const int64_t *sizes = NULL;
    int n = 0;

    if (import->opset >= 11 && rb_import_in(import, 3))
        import->err = rb_import_known_ints(import, 3, "sizes", &sizes, &n);
    if (import->err)
        return;
    if (sizes && n && n != r->n_axes) {
        rb_make_bad(import, "%d sizes for %d axes", n, r->n_axes);
        return;
    }
    for (int i = 0; i < n; i++)
        if (sizes[i] < 1 || sizes[i] > MOST_WEIGHTS) {
            rb_make_no(import, "a size of %" PRId64, sizes[i]);
            return;
        }
    for (int i = 0; i < x->type.rank; i++) {
        double size = floor((double)x->type.dim[i] * r->scale[i]);

        if (!(size >= 1 && size <= MOST_WEIGHTS)) {
            rb_make_no(import, "axis %d scaled by %g", i, r->scale[i]);
            return;
        }
        r->size[i] = (int64_t)size;
    }
    if (n)
        take_sizes(x, sizes, r);
}

/* Since opset 18 the axes may be named; without names all are scaled. */
static void read_axes(struct rb_import *import, const struct rb_value *x, struct resize *r)
{
    if (import->err)
        return;
    import->err = rb_import_axes(import, INT64_MAX, 0, x->type.rank, r->axis, &r->n_axes);
    if (r->n_axes)
        return;
    for (int i = 0; i < x->type.rank; i++)
        r->axis[r->n_axes++] = i;
}

static void read(struct rb_import *import, const struct rb_value *x, struct resize *r)
{
    static const char *const coordinates[] = {"half_pixel", "asymmetric", "align_corners",
                                              "pytorch_half_pixel", "half_pixel_symmetric"};
    bool known = false, old = import->opset < 11;

    r->mode = "nearest";
    r->coordinates = old ? "asymmetric" : "half_pixel";
    r->nearest = old ? "floor" : "round_prefer_floor";
    text(import, "mode", &r->mode);
    text(import, "coordinate_transformation_mode", &r->coordinates);
    text(import, "nearest_mode", &r->nearest);
    /* 6 elements scaled by 1.7 give 10: ONNX's own tests count 10.2, PyTorch 10. */
    r->cut = rb_onnx_is_of_pytorch(import->model);
    r->cubic = (double)rb_make_float(import, "cubic_coeff_a", -0.75F);
    r->exclude_outside = rb_make_int(import, "exclude_outside", 0) != 0;
    if (strcmp(r->mode, "nearest") && strcmp(r->mode, "linear") && strcmp(r->mode, "cubic") &&
        strcmp(r->mode, "bilinear"))
        rb_make_no(import, "mode is not nearest, linear or cubic");
    for (size_t i = 0; i < RB_COUNT(coordinates); i++)
        known |= !strcmp(coordinates[i], r->coordinates);
    if (!known)
        rb_make_no(import, "this coordinate_transformation_mode");
    r->antialias = rb_make_int(import, "antialias", 0) != 0;
    r->policy = "stretch";
    text(import, "keep_aspect_ratio_policy", &r->policy);
    if (strcmp(r->policy, "stretch") && strcmp(r->policy, "not_larger") &&
        strcmp(r->policy, "not_smaller"))
        rb_make_no(import, "this keep_aspect_ratio_policy");
    read_axes(import, x, r);
    if (import->err)
        return;
    for (int i = 0; i < x->type.rank; i++)
        r->scale[i] = 1;
    read_scales(import, r);
    if (!import->err)
        read_sizes(import, x, r);
}

int rb_import_op_resize(struct rb_import *import)
{
    struct rb_value *x = rb_make_need(import, 0);
    struct resize r = {0};

    if (!import->err && !rb_tensor_elements(&x->type))
        rb_make_no(import, "a tensor without elements");
    read(import, x, &r);
    for (int i = 0; !import->err && i < x->type.rank; i++)
        if (r.size[i] != x->type.dim[i] || r.scale[i] != 1)
            x = resized(import, &r, x, i);
    return rb_make_bind(import, 0, x);
}
