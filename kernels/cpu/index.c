/* SPDX-License-Identifier: Apache-2.0 */
/* Elements named one by one along an axis, read (GatherElements) or written (Scatter).
 *
 * An index may count from the end.  One that is outside reads NaN (0 for other types than floats)
 * and writes nothing, as in gather.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/walk.h"

#include <math.h>
#include <string.h>

typedef void combine_fn(void *to, const void *from);

struct elements {
    struct rb_kernel base;
    struct rb_walk walk; /* over the indices; operand 0: x without the axis, 1: the indices */
    int64_t n, step;     /* of x along the axis */
    enum rb_dtype indices, dtype;
    size_t size, bytes; /* of an element; of x */
    combine_fn *combine;
};

/* Where index i of row `at` lies in x; -1: outside. */
static int64_t place(const struct elements *elements, const void *indices, int64_t at)
{
    int64_t index = elements->indices == RB_I64 ? ((const int64_t *)indices)[at]
                                                : ((const int32_t *)indices)[at];

    index += index < 0 ? elements->n : 0;
    return index >= 0 && index < elements->n ? index * elements->step : -1;
}

static void read_outside(const struct elements *elements, char *to)
{
    const double not_real = (double)NAN;
    const float not_float = NAN;

    memset(to, 0, elements->size);
    if (elements->dtype == RB_F32)
        memcpy(to, &not_float, sizeof not_float);
    if (elements->dtype == RB_F64)
        memcpy(to, &not_real, sizeof not_real);
}

static void gather_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    const struct elements *elements = (const struct elements *)kernel;
    const struct rb_walk *walk = &elements->walk;
    int last = walk->rank - 1;
    int64_t rows = rb_walk_rows(walk), done = 0;
    struct rb_walk_at at;

    (void)key;
    rb_walk_start(walk, &at);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < walk->dim[last]; i++, done++) {
            int64_t where = place(elements, in[1], done);
            char *to = (char *)out[0] + (size_t)done * elements->size;

            if (where < 0)
                read_outside(elements, to);
            else
                memcpy(to,
                       (const char *)in[0] +
                           (size_t)(at.offset[0] + i * walk->step[0][last] + where) *
                               elements->size,
                       elements->size);
        }
        rb_walk_next(walk, &at);
    }
}

static void scatter_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct elements *elements = (const struct elements *)kernel;
    const struct rb_walk *walk = &elements->walk;
    int last = walk->rank - 1;
    int64_t rows = rb_walk_rows(walk), done = 0;
    struct rb_walk_at at;

    (void)key;
    memcpy(out[0], in[0], elements->bytes);
    rb_walk_start(walk, &at);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < walk->dim[last]; i++, done++) {
            int64_t where = place(elements, in[1], done);
            const char *from = (const char *)in[2] + (size_t)done * elements->size;
            char *to = out[0];

            if (where < 0)
                continue;
            to += (size_t)(at.offset[0] + i * walk->step[0][last] + where) * elements->size;
            if (elements->combine)
                elements->combine(to, from);
            else
                memcpy(to, from, elements->size);
        }
        rb_walk_next(walk, &at);
    }
}

#define COMBINE(name, T, EXPRESSION)                                                               \
    static void name(void *to, const void *from)                                                   \
    {                                                                                              \
        T a = *(T *)to, b = *(const T *)from;                                                      \
        *(T *)to = (EXPRESSION);                                                                   \
    }
#define COMBINES(suffix, T, ADD, MUL)                                                              \
    COMBINE(add_##suffix, T, ADD)                                                                  \
    COMBINE(mul_##suffix, T, MUL)                                                                  \
    COMBINE(max_##suffix, T, a > b || a != a ? a : b)                                              \
    COMBINE(min_##suffix, T, a < b || a != a ? a : b)
COMBINES(f32, float, a + b, a *b)
COMBINES(f64, double, a + b, a *b)
COMBINES(i32, int32_t, (int32_t)((uint32_t)a + (uint32_t)b), (int32_t)((uint32_t)a *(uint32_t)b))
COMBINES(i64, int64_t, (int64_t)((uint64_t)a + (uint64_t)b), (int64_t)((uint64_t)a *(uint64_t)b))

static combine_fn *find_combine(enum rb_dtype dtype, int64_t reduction)
{
#define ROW(suffix)                                                                                \
    {                                                                                              \
        [RB_SCATTER_ADD] = add_##suffix, [RB_SCATTER_MUL] = mul_##suffix,                          \
        [RB_SCATTER_MAX] = max_##suffix, [RB_SCATTER_MIN] = min_##suffix                           \
    }
    static combine_fn *const rows[4][RB_SCATTER_COUNT] = {ROW(f32), ROW(f64), ROW(i32), ROW(i64)};
#undef ROW
    int row = dtype == RB_F32   ? 0
              : dtype == RB_F64 ? 1
              : dtype == RB_I32 ? 2
              : dtype == RB_I64 ? 3
                                : -1;

    return row < 0 ? NULL : rows[row][reduction];
}

/* A walk over the indices in their order: no axes are merged, so that its rows are theirs. */
static int elements_new(const struct rb_call *call, rb_cpu_run *run, struct elements **ret,
                        struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0), *indices = rb_call_in(call, 1);
    int64_t step[RB_MAX_RANK];
    struct elements *elements;
    int axis, err = rb_call_axis(call, "axis", x->rank, &axis, why);
    bool fits = x->dtype != RB_NONE && x->rank == indices->rank;

    if (err)
        return err;
    if (indices->dtype != RB_I64 && indices->dtype != RB_I32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "indices must be int64 or int32");
    for (int i = 0; fits && i < x->rank; i++)
        fits = i == axis || indices->dim[i] <= x->dim[i];
    if (!fits)
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not fit together");
    elements = rb_cpu_kernel(sizeof(*elements), run);
    rb_walk_dense(x, step);
    elements->walk.rank = x->rank;
    elements->walk.operands = 1;
    for (int i = 0; i < x->rank; i++) {
        elements->walk.dim[i] = indices->dim[i];
        elements->walk.step[0][i] = i == axis ? 0 : step[i];
    }
    elements->n = x->dim[axis];
    elements->step = step[axis];
    elements->indices = indices->dtype;
    elements->dtype = x->dtype;
    elements->size = rb_dtype_size(x->dtype);
    elements->bytes = (size_t)rb_tensor_elements(x) * elements->size;
    *ret = elements;
    return 0;
}

int rb_cpu_gather_elements(struct rb_cpu *cpu, const struct rb_call *call,
                           struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *y = rb_call_out(call, 0);
    struct elements *elements;
    int err;

    (void)cpu;
    if (call->n_in != 2 || y->dtype != rb_call_in(call, 0)->dtype ||
        !rb_tensor_same_shape(y, rb_call_in(call, 1)))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another type or shape");
    err = elements_new(call, gather_run, &elements, why);
    if (!err)
        *ret_kernel = &elements->base;
    return err;
}

int rb_cpu_scatter(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    int64_t reduction = rb_call_int(call, "reduction", RB_SCATTER_SET);
    const struct rb_tensor_type *x = rb_call_in(call, 0), *updates = rb_call_in(call, 2);
    struct elements *elements;
    int err;

    (void)cpu;
    if (call->n_in != 3 || !rb_tensor_same(rb_call_out(call, 0), x) || updates->dtype != x->dtype ||
        !rb_tensor_same_shape(updates, rb_call_in(call, 1)))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "updates shaped as the indices and an output like the input are "
                              "needed");
    if (reduction < 0 || reduction >= RB_SCATTER_COUNT ||
        (reduction != RB_SCATTER_SET && !find_combine(x->dtype, reduction)))
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "reduction %lld is not for this type",
                              (long long)reduction);
    err = elements_new(call, scatter_run, &elements, why);
    if (err)
        return err;
    elements->combine = find_combine(x->dtype, reduction);
    *ret_kernel = &elements->base;
    return 0;
}
