/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, means and maxima over any axes.
 *
 * A walk in which the output steps 0 along reduced axes.  Two shapes matter: the row is reduced
 * (one number comes out of it), or the row is kept and rows are added to it, eight at a time as a
 * small tree, which is both quicker and more exact than one after the other. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/walk.h"

enum { FROM, TO };
enum { PIECE = 256 };

struct reduce {
    struct rb_kernel base;
    struct rb_walk walk;
    int64_t n_out, divisor;
    enum rb_op op;
    bool narrow; /* x is bfloat16, y float32 */
};

RB_CLONES static float row_sum(const float *x, int64_t n)
{
    return rb_sum(x, n);
}

RB_CLONES static float row_max(const float *x, int64_t n)
{
    return rb_max(x, n);
}

/* y += eight rows of x. */
RB_CLONES static void add_eight(float *restrict y, const float *restrict x, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float *p = x + i;

        y[i] += ((p[0] + p[step]) + (p[2 * step] + p[3 * step])) +
                ((p[4 * step] + p[5 * step]) + (p[6 * step] + p[7 * step]));
    }
}

RB_CLONES static void add_row(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

RB_CLONES static void max_row(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = rb_larger(y[i], x[i]);
}

RB_CLONES static void divide_row(float *y, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++)
        y[i] /= by;
}

/* Rows that are kept: the axis above is reduced (`deep` rows, `step` apart), or deep is 1. */
static void combine_rows(enum rb_op op, float *y, const float *x, int64_t deep, int64_t step,
                         int64_t n)
{
    int64_t i = 0;

    if (op != RB_OP_REDUCE_MAX)
        for (; i + 8 <= deep; i += 8)
            add_eight(y, x + i * step, step, n);
    for (; i < deep; i++) {
        if (op == RB_OP_REDUCE_MAX)
            max_row(y, x + i * step, n);
        else
            add_row(y, x + i * step, n);
    }
}

/* The same of bfloat16. */
RB_CLONES static void add_eight_narrow(float *restrict y, const uint16_t *restrict x, int64_t step,
                                       int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint16_t *p = x + i;

        y[i] += ((rb_cpu_wide(p[0]) + rb_cpu_wide(p[step])) +
                 (rb_cpu_wide(p[2 * step]) + rb_cpu_wide(p[3 * step]))) +
                ((rb_cpu_wide(p[4 * step]) + rb_cpu_wide(p[5 * step])) +
                 (rb_cpu_wide(p[6 * step]) + rb_cpu_wide(p[7 * step])));
    }
}

RB_CLONES static void add_row_narrow(float *restrict y, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += rb_cpu_wide(x[i]);
}

static void combine_narrow(float *y, const uint16_t *x, int64_t deep, int64_t step, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= deep; i += 8)
        add_eight_narrow(y, x + i * step, step, n);
    for (; i < deep; i++)
        add_row_narrow(y, x + i * step, n);
}

/* A row that becomes one number, a piece at a time. */
static float narrow_sum(const uint16_t *x, int64_t n)
{
    float piece[PIECE], sum = 0;

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t width = n - i < PIECE ? n - i : PIECE;

        rb_cpu_widen(piece, x + i, width);
        sum += row_sum(piece, width);
    }
    return sum;
}

static void reduce_run_f32(struct rb_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    const struct reduce *reduce = (const struct reduce *)kernel;
    struct rb_walk walk = reduce->walk;
    int last = walk.rank - 1;
    bool max = reduce->op == RB_OP_REDUCE_MAX;
    bool kept = walk.step[TO][last] != 0, narrow = reduce->narrow;
    int64_t n = walk.dim[last], deep = 1, step = 0, rows;
    float *y = out[0];
    struct rb_walk_at at;

    (void)key;
    for (int64_t i = 0; i < reduce->n_out; i++)
        y[i] = max ? -INFINITY : 0.0f;
    if (kept && last > 0 && walk.step[TO][last - 1] == 0) {
        deep = walk.dim[last - 1];
        step = walk.step[FROM][last - 1];
        walk.dim[last - 1] = deep > 0;
    }
    rows = rb_walk_rows(&walk);
    rb_walk_start(&walk, &at);
    for (int64_t i = 0; i < rows; i++) {
        const float *x = (const float *)in[0] + at.offset[FROM];
        float *to = y + at.offset[TO];

        if (narrow && kept) {
            combine_narrow(to, (const uint16_t *)in[0] + at.offset[FROM], deep, step, n);
        } else if (narrow) {
            *to += narrow_sum((const uint16_t *)in[0] + at.offset[FROM], n);
        } else if (kept) {
            combine_rows(reduce->op, to, x, deep, step, n);
        } else if (max) {
            float most = row_max(x, n);

            max_row(to, &most, 1);
        } else {
            *to += row_sum(x, n);
        }
        rb_walk_next(&walk, &at);
    }
    if (reduce->op == RB_OP_REDUCE_MEAN)
        divide_row(y, reduce->n_out, (float)reduce->divisor);
}

/* The other types: plain, one element after the other. */
#define REDUCE(suffix, T, LOWEST, ADD)                                                             \
    static void reduce_run_##suffix(struct rb_kernel *kernel, const void *const *in,               \
                                    void *const *out, const struct rb_key *key)                    \
    {                                                                                              \
        const struct reduce *reduce = (const struct reduce *)kernel;                               \
        const struct rb_walk *walk = &reduce->walk;                                                \
        int last = walk->rank - 1;                                                                 \
        int64_t rows = rb_walk_rows(walk), n = walk->dim[last];                                    \
        T *y = out[0];                                                                             \
        struct rb_walk_at at;                                                                      \
        (void)key;                                                                                 \
        for (int64_t i = 0; i < reduce->n_out; i++)                                                \
            y[i] = reduce->op == RB_OP_REDUCE_MAX ? (LOWEST) : 0;                                  \
        rb_walk_start(walk, &at);                                                                  \
        for (int64_t r = 0; r < rows; r++) {                                                       \
            const T *x = (const T *)in[0] + at.offset[FROM];                                       \
            T *to = y + at.offset[TO];                                                             \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T a = to[i * walk->step[TO][last]], b = x[i * walk->step[FROM][last]];             \
                if (reduce->op != RB_OP_REDUCE_MAX)                                                \
                    a = (ADD);                                                                     \
                else if (b > a || b != b)                                                          \
                    a = b;                                                                         \
                to[i * walk->step[TO][last]] = a;                                                  \
            }                                                                                      \
            rb_walk_next(walk, &at);                                                               \
        }                                                                                          \
        for (int64_t i = 0; reduce->op == RB_OP_REDUCE_MEAN && i < reduce->n_out; i++)             \
            y[i] = y[i] / (T)(reduce->divisor ? reduce->divisor : 1);                              \
    }
REDUCE(f64, double, -INFINITY, a + b)
REDUCE(i32, int32_t, INT32_MIN, (int32_t)((uint32_t)a + (uint32_t)b))
REDUCE(i64, int64_t, INT64_MIN, (int64_t)((uint64_t)a + (uint64_t)b))

/* The output's axes, with reduced ones as 1, whether or not the output has them. */
static int reduced_type(const struct rb_call *call, struct rb_tensor_type *ret_type,
                        int64_t *ret_divisor, struct rb_why *why)
{
    const struct rb_attribute *axes = rb_call_attribute(call, "axes");
    const struct rb_tensor_type *x = &call->in[0], *y = &call->out[0];
    struct rb_tensor_type without = {y->dtype, 0, {0}};
    unsigned reduced = 0;

    for (int i = 0; axes && i < axes->n_ints; i++) {
        if (axes->ints[i] < 0 || axes->ints[i] >= x->rank)
            return rb_call_refuse(call, RB_EINVAL, why, "there is no axis %lld",
                                  (long long)axes->ints[i]);
        reduced |= 1u << axes->ints[i];
    }
    if (!axes)
        reduced = (1u << x->rank) - 1;
    *ret_type = *x;
    *ret_divisor = 1;
    for (int i = 0; i < x->rank; i++) {
        if (reduced & 1u << i) {
            ret_type->dim[i] = 1;
            *ret_divisor *= x->dim[i];
        } else {
            without.dim[without.rank++] = x->dim[i];
        }
    }
    if (!rb_tensor_same_shape(y, ret_type) && !rb_tensor_same_shape(y, &without))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another shape");
    return 0;
}

int rb_cpu_reduce(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    struct rb_walk walk;
    struct rb_tensor_type kept;
    struct reduce *reduce;
    int64_t divisor = 1, step[RB_MAX_RANK];
    rb_cpu_run *run;
    bool narrow = rb_call_in(call, 0)->dtype == RB_BF16 && rb_call_out(call, 0)->dtype == RB_F32 &&
                  call->op != RB_OP_REDUCE_MAX;
    int err;

    (void)cpu;
    if (call->n_in != 1 || call->n_out != 1 || (call->in[0].dtype != call->out[0].dtype && !narrow))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "one input and an output of its type are needed");
    run = call->in[0].dtype == RB_F32 || narrow ? reduce_run_f32
          : call->in[0].dtype == RB_F64         ? reduce_run_f64
          : call->in[0].dtype == RB_I32         ? reduce_run_i32
          : call->in[0].dtype == RB_I64         ? reduce_run_i64
                                                : NULL;
    if (!run)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    err = reduced_type(call, &kept, &divisor, why);
    if (err)
        return err;
    walk = (struct rb_walk){.rank = kept.rank, .operands = 2};
    rb_walk_dense(&call->in[0], walk.step[FROM]);
    rb_walk_dense(&kept, step);
    for (int i = 0; i < kept.rank; i++) {
        walk.dim[i] = call->in[0].dim[i];
        walk.step[TO][i] = kept.dim[i] == 1 ? 0 : step[i];
    }
    rb_walk_merge(&walk);
    reduce = rb_cpu_kernel(sizeof(*reduce), run);
    reduce->walk = walk;
    reduce->op = call->op;
    reduce->narrow = narrow;
    reduce->n_out = rb_tensor_elements(&kept);
    reduce->divisor = divisor;
    *ret_kernel = &reduce->base;
    return 0;
}
