/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators: a loop a row, chosen by operator and type when the kernel is prepared.
 * What is kept as bfloat16 goes through pieces of float32 that stay in the nearest cache. */
#include "kernels/cpu/point.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/walk.h"

enum { PIECE = 512 };

struct point {
    struct rb_kernel base;
    struct rb_walk walk;
    rb_point_row *row;
    int64_t size[RB_WALK_OPERANDS]; /* of an element */
    bool narrow[RB_WALK_OPERANDS];  /* kept as bfloat16, computed in float32 */
    bool any_narrow;
};

static void row_in_pieces(const struct point *point, const void *const *from, const int64_t *step,
                          void *to, int64_t n)
{
    int n_in = point->walk.operands - 1;
    float piece[RB_WALK_OPERANDS][PIECE];

    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = n - done < PIECE ? n - done : PIECE;
        char *out = (char *)to + done * point->size[n_in];
        const void *in[RB_WALK_OPERANDS];

        for (int k = 0; k < n_in; k++) {
            in[k] = (const char *)from[k] + step[k] * done * point->size[k];
            if (!point->narrow[k])
                continue;
            rb_cpu_widen(piece[k], in[k], step[k] ? count : 1);
            in[k] = piece[k];
        }
        point->row(in, step, point->narrow[n_in] ? (void *)piece[n_in] : out, count);
        if (point->narrow[n_in])
            rb_cpu_narrow((uint16_t *)out, piece[n_in], count);
    }
}

static void point_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct point *point = (const struct point *)kernel;
    const struct rb_walk *walk = &point->walk;
    int n_in = walk->operands - 1;
    int64_t rows = rb_walk_rows(walk), step[RB_WALK_OPERANDS];
    struct rb_walk_at at;

    (void)key;
    for (int k = 0; k < n_in; k++)
        step[k] = walk->step[k][walk->rank - 1];
    rb_walk_start(walk, &at);
    for (int64_t i = 0; i < rows; i++) {
        const void *from[RB_WALK_OPERANDS];
        void *to;

        for (int k = 0; k < n_in; k++)
            from[k] = (const char *)in[k] + at.offset[k] * point->size[k];
        to = (char *)out[0] + at.offset[n_in] * point->size[n_in];
        if (point->any_narrow)
            row_in_pieces(point, from, step, to, walk->dim[walk->rank - 1]);
        else
            point->row(from, step, to, walk->dim[walk->rank - 1]);
        rb_walk_next(walk, &at);
    }
}

/* What a type is computed in. */
static enum rb_dtype computed(enum rb_dtype dtype)
{
    return dtype == RB_BF16 ? RB_F32 : dtype;
}

/* `row` computes in `in_dtype`. */
static int point_new(const struct rb_call *call, rb_point_row *row, enum rb_dtype in_dtype,
                     struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_walk walk;
    struct point *point;

    if (!rb_walk_broadcast(&walk, &call->out[0], call->n_in, call->in))
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not broadcast to the output's");
    point = rb_cpu_kernel(sizeof(*point), point_run);
    point->walk = walk;
    point->row = row;
    for (int k = 0; k <= call->n_in; k++) {
        enum rb_dtype dtype = k < call->n_in ? call->in[k].dtype : call->out[0].dtype;

        point->size[k] = (int64_t)rb_dtype_size(dtype);
        point->narrow[k] = dtype == RB_BF16 && in_dtype == RB_F32;
        point->any_narrow = point->any_narrow || point->narrow[k];
    }
    *ret_kernel = &point->base;
    return 0;
}

int rb_cpu_unary(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    enum rb_dtype dtype = computed(rb_call_in(call, 0)->dtype);
    rb_point_row *row = rb_point_unary_row(call->op, dtype, rb_call_int(call, "tanh", 0) != 0);

    (void)cpu;
    if (call->n_in != 1 || call->n_out != 1 || computed(call->out[0].dtype) != dtype)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "one input and an output of its type are needed");
    if (!row)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    return point_new(call, row, dtype, ret_kernel, why);
}

int rb_cpu_binary(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    bool compares = call->op == RB_OP_EQUAL || call->op == RB_OP_LESS || call->op == RB_OP_GREATER;
    enum rb_dtype dtype = computed(rb_call_in(call, 0)->dtype);
    rb_point_row *row = rb_point_binary_row(call->op, dtype, rb_call_int(call, "fmod", 0) != 0);

    (void)cpu;
    if (call->n_in != 2 || call->n_out != 1 || computed(rb_call_in(call, 1)->dtype) != dtype)
        return rb_call_refuse(call, RB_EINVAL, why, "two inputs of one type are needed");
    if (!row)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    if (computed(call->out[0].dtype) != (compares ? RB_BOOL : dtype))
        return rb_call_refuse(call, RB_EINVAL, why, "the output's type is wrong");
    return point_new(call, row, dtype, ret_kernel, why);
}

int rb_cpu_point_grad(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    (void)cpu;
    if (call->n_in != 2 || call->n_out != 1)
        return rb_call_refuse(call, RB_EINVAL, why, "two inputs are needed");
    if (computed(call->in[0].dtype) != RB_F32 || computed(call->in[1].dtype) != RB_F32 ||
        computed(call->out[0].dtype) != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    return point_new(call, rb_point_grad_row(call->op, rb_call_int(call, "tanh", 0) != 0), RB_F32,
                     ret_kernel, why);
}

/* The usual case is a mask over a tensor, with one number where the mask says no. */
#define WHERE(name, T)                                                                             \
    RB_CLONES static void name(const void *const *in, const int64_t *step, void *out, int64_t n)   \
    {                                                                                              \
        const uint8_t *restrict c = in[0];                                                         \
        const T *restrict a = in[1], *restrict b = in[2];                                          \
        T *restrict r = out;                                                                       \
        if (step[0] && step[1] && step[2])                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = a[i], no = b[i];                                                           \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else if (step[0] && step[1])                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = a[i], no = *b;                                                             \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else if (step[0] && step[2])                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = *a, no = b[i];                                                             \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                r[i] = c[step[0] ? i : 0] ? a[step[1] ? i : 0] : b[step[2] ? i : 0];               \
    }
WHERE(where_1, uint8_t)
WHERE(where_2, uint16_t)
WHERE(where_4, uint32_t)
WHERE(where_8, uint64_t)

int rb_cpu_where(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    enum rb_dtype dtype = rb_call_out(call, 0)->dtype;
    size_t size = rb_dtype_size(dtype);

    (void)cpu;
    if (call->n_in != 3 || call->n_out != 1 || call->in[0].dtype != RB_BOOL ||
        call->in[1].dtype != dtype || call->in[2].dtype != dtype || size == 0)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "a condition and two values of the output's type are needed");
    return point_new(call,
                     size == 1   ? where_1
                     : size == 2 ? where_2
                     : size == 4 ? where_4
                                 : where_8,
                     dtype, ret_kernel, why);
}

rb_point_row *rb_point_float_row(enum rb_op op, bool tanh_form)
{
    rb_point_row *unary = rb_point_unary_row(op, RB_F32, tanh_form);

    if (op == RB_OP_WHERE)
        return where_4;
    if (unary)
        return unary;
    if (op >= RB_OP_ADD && op < RB_OP_WHERE)
        return rb_point_binary_row(op, RB_F32, false);
    return rb_point_grad_row(op, tanh_form);
}
