/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that only move elements: strided copies, and triangles of matrices. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/walk.h"

#include <string.h>

/* ---- Strided copies: transpose, expand, slice and its gradient ---- */

enum { FROM, TO }; /* operands of the walk */
enum { TILE = 16 };

struct copy {
    struct rb_kernel base;
    struct rb_walk walk;
    size_t size; /* of an element */
    size_t zero; /* bytes of the output to clear first */
    bool tiled;  /* the last two axes are a matrix that is transposed */
};

#define COPY_ROW(T)                                                                                \
    static void copy_row_##T(T *restrict to, int64_t to_step, const T *restrict from,              \
                             int64_t from_step, int64_t n)                                         \
    {                                                                                              \
        if (from_step == 0 && to_step == 1)                                                        \
            for (int64_t i = 0; i < n; i++)                                                        \
                to[i] = *from;                                                                     \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                to[i * to_step] = from[i * from_step];                                             \
    }
COPY_ROW(uint8_t)
COPY_ROW(uint16_t)
COPY_ROW(uint32_t)
COPY_ROW(uint64_t)

static void copy_row(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n,
                     size_t size)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)n * size);
    else if (size == 1)
        copy_row_uint8_t(to, to_step, from, from_step, n);
    else if (size == 2)
        copy_row_uint16_t(to, to_step, from, from_step, n);
    else if (size == 4)
        copy_row_uint32_t(to, to_step, from, from_step, n);
    else
        copy_row_uint64_t(to, to_step, from, from_step, n);
}

/* rows x columns: `to` has a row's elements side by side, `from` a column's.  In tiles, so that
 * each cache line that is read is used up while it is there. */
#define TRANSPOSE_TILES(T)                                                                         \
    static void transpose_tiles_##T(T *restrict to, int64_t to_step, const T *restrict from,       \
                                    int64_t from_step, int64_t rows, int64_t columns)              \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r += TILE) {                                                 \
            int64_t r_end = r + TILE < rows ? r + TILE : rows;                                     \
            for (int64_t c = 0; c < columns; c += TILE) {                                          \
                int64_t c_end = c + TILE < columns ? c + TILE : columns;                           \
                for (int64_t i = r; i < r_end; i++)                                                \
                    for (int64_t j = c; j < c_end; j++)                                            \
                        to[i * to_step + j] = from[j * from_step + i];                             \
            }                                                                                      \
        }                                                                                          \
    }
TRANSPOSE_TILES(uint16_t)
TRANSPOSE_TILES(uint32_t)

static void copy_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                     const struct rb_key *key)
{
    const struct copy *copy = (const struct copy *)kernel;
    struct rb_walk walk = copy->walk;
    int last = walk.rank - 1;
    int64_t rows, columns = walk.dim[last], size = (int64_t)copy->size, matrix = 1;
    struct rb_walk_at at;

    (void)key;
    if (copy->zero)
        memset(out[0], 0, copy->zero);
    if (copy->tiled) { /* a matrix at a time: its rows are taken out of the walk */
        matrix = walk.dim[last - 1];
        walk.dim[last - 1] = matrix > 0;
    }
    rows = rb_walk_rows(&walk);
    rb_walk_start(&walk, &at);
    for (int64_t i = 0; i < rows; i++) {
        const char *from = (const char *)in[0] + at.offset[FROM] * size;
        char *to = (char *)out[0] + at.offset[TO] * size;

        if (copy->tiled && size == 2)
            transpose_tiles_uint16_t((uint16_t *)to, walk.step[TO][last - 1],
                                     (const uint16_t *)from, walk.step[FROM][last], matrix,
                                     columns);
        else if (copy->tiled)
            transpose_tiles_uint32_t((uint32_t *)to, walk.step[TO][last - 1],
                                     (const uint32_t *)from, walk.step[FROM][last], matrix,
                                     columns);
        else
            copy_row(to, walk.step[TO][last], from, walk.step[FROM][last], columns, copy->size);
        rb_walk_next(&walk, &at);
    }
}

static void copy_new(const struct rb_walk *walk, enum rb_dtype dtype, size_t zero,
                     struct rb_kernel **ret_kernel)
{
    struct copy *copy = rb_cpu_kernel(sizeof(*copy), copy_run);
    int last;

    copy->walk = *walk;
    rb_walk_merge(&copy->walk);
    copy->size = rb_dtype_size(dtype);
    copy->zero = zero;
    last = copy->walk.rank - 1;
    copy->tiled = (copy->size == 2 || copy->size == 4) && last > 0 &&
                  copy->walk.step[TO][last] == 1 && copy->walk.step[FROM][last - 1] == 1 &&
                  copy->walk.step[FROM][last] != 1;
    *ret_kernel = &copy->base;
}

static int one_to_one(const struct rb_call *call, struct rb_why *why)
{
    if (call->n_in != 1 || call->n_out != 1 || !rb_call_has_in(call, 0) ||
        call->in[0].dtype != call->out[0].dtype)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "one input and an output of its type are needed");
    return 0;
}

int rb_cpu_transpose(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                     struct rb_why *why)
{
    struct rb_walk walk = {.operands = 2};
    int64_t perm[RB_MAX_RANK] = {0}, step[RB_MAX_RANK];
    unsigned seen = 0;
    int err = one_to_one(call, why);

    (void)cpu;
    err = err ? err : rb_call_ints(call, "perm", call->in[0].rank, -1, perm, why);
    if (err)
        return err;
    walk.rank = call->out[0].rank;
    if (walk.rank != call->in[0].rank)
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another rank");
    rb_walk_dense(&call->in[0], step);
    rb_walk_dense(&call->out[0], walk.step[TO]);
    for (int i = 0; i < walk.rank; i++) {
        if (perm[i] < 0 || perm[i] >= walk.rank || (seen & 1u << perm[i]))
            return rb_call_refuse(call, RB_EINVAL, why, "'perm' is not a permutation");
        seen |= 1u << perm[i];
        walk.dim[i] = call->in[0].dim[perm[i]];
        walk.step[FROM][i] = step[perm[i]];
        if (call->out[0].dim[i] != walk.dim[i])
            return rb_call_refuse(call, RB_EINVAL, why, "the output has another shape");
    }
    copy_new(&walk, call->in[0].dtype, 0, ret_kernel);
    return 0;
}

int rb_cpu_expand(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    struct rb_walk walk;
    int err = one_to_one(call, why);

    (void)cpu;
    if (err)
        return err;
    if (!rb_walk_broadcast(&walk, &call->out[0], 1, call->in))
        return rb_call_refuse(call, RB_EINVAL, why, "does not broadcast to the output's shape");
    copy_new(&walk, call->in[0].dtype, 0, ret_kernel);
    return 0;
}

int rb_cpu_reshape(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    struct rb_walk walk = {.rank = 1, .operands = 2, .step = {{1}, {1}}};
    int err = one_to_one(call, why);

    (void)cpu;
    if (err)
        return err;
    walk.dim[0] = rb_tensor_elements(&call->in[0]);
    if (walk.dim[0] != rb_tensor_elements(&call->out[0]))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another number of elements");
    copy_new(&walk, call->in[0].dtype, 0, ret_kernel);
    return 0;
}

/* The walk over the elements of a slice: `whole` is cut, `part` is what comes out. */
static int slice_walk(const struct rb_call *call, const struct rb_tensor_type *whole,
                      const struct rb_tensor_type *part, int whole_operand, struct rb_walk *walk,
                      struct rb_why *why)
{
    int64_t starts[RB_MAX_RANK], steps[RB_MAX_RANK], dense[RB_MAX_RANK];
    int rank = whole->rank;
    int err = rb_call_ints(call, "starts", rank, 0, starts, why);

    err = err ? err : rb_call_ints(call, "steps", rank, 1, steps, why);
    if (err)
        return err;
    if (part->rank != rank)
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another rank");
    *walk = (struct rb_walk){.rank = rank, .operands = 2};
    rb_walk_dense(whole, dense);
    rb_walk_dense(part, walk->step[1 - whole_operand]);
    for (int i = 0; i < rank; i++) {
        int64_t n = part->dim[i], last;

        walk->dim[i] = n;
        if (n == 0)
            continue;
        if (__builtin_mul_overflow(n - 1, steps[i], &last) ||
            __builtin_add_overflow(last, starts[i], &last) || starts[i] < 0 ||
            starts[i] >= whole->dim[i] || last < 0 || last >= whole->dim[i] ||
            (steps[i] == 0 && n > 1))
            return rb_call_refuse(call, RB_EINVAL, why, "the slice leaves axis %d", i);
        /* A single element's step is never taken: 1 keeps the product in range. */
        walk->step[whole_operand][i] = n > 1 ? dense[i] * steps[i] : dense[i];
        walk->base[whole_operand] += dense[i] * starts[i];
    }
    return 0;
}

int rb_cpu_slice(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    struct rb_walk walk;
    int err = one_to_one(call, why);

    (void)cpu;
    err = err ? err : slice_walk(call, &call->in[0], &call->out[0], FROM, &walk, why);
    if (!err)
        copy_new(&walk, call->in[0].dtype, 0, ret_kernel);
    return err;
}

int rb_cpu_slice_grad(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    struct rb_walk walk;
    int err = one_to_one(call, why);

    (void)cpu;
    err = err ? err : slice_walk(call, &call->out[0], &call->in[0], TO, &walk, why);
    if (!err)
        copy_new(&walk, call->in[0].dtype,
                 (size_t)rb_tensor_elements(&call->out[0]) * rb_dtype_size(call->in[0].dtype),
                 ret_kernel);
    return err;
}

/* ---- Trilu ---- */

struct trilu {
    struct rb_kernel base;
    bool upper;
    int64_t k, matrices, rows, columns;
    size_t size;
};

static void trilu_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct trilu *t = (const struct trilu *)kernel;
    const char *from = in[0];
    char *to = out[0];

    (void)key;
    for (int64_t i = 0; i < t->matrices * t->rows; i++) {
        /* The first column that is on or above the diagonal, and the first above it. */
        int64_t edge = i % t->rows + t->k + !t->upper;
        size_t left, row = (size_t)t->columns * t->size;

        edge = edge < 0 ? 0 : edge > t->columns ? t->columns : edge;
        left = (size_t)edge * t->size;
        if (t->upper) {
            memset(to, 0, left);
            memcpy(to + left, from + left, row - left);
        } else {
            memcpy(to, from, left);
            memset(to + left, 0, row - left);
        }
        from += row;
        to += row;
    }
}

int rb_cpu_trilu(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    const struct rb_tensor_type *x = rb_call_in(call, 0);
    const int64_t far = (int64_t)1 << 48; /* beyond any tensor */
    struct trilu *trilu;
    int err = one_to_one(call, why);

    (void)cpu;
    if (err)
        return err;
    if (x->rank < 2 || !rb_tensor_same_shape(x, &call->out[0]))
        return rb_call_refuse(call, RB_EINVAL, why,
                              "a matrix and an output of its shape are needed");
    trilu = rb_cpu_kernel(sizeof(*trilu), trilu_run);
    trilu->upper = rb_call_int(call, "upper", 1) != 0;
    trilu->k = rb_call_int(call, "k", 0);
    trilu->k = trilu->k > far ? far : trilu->k < -far ? -far : trilu->k;
    trilu->matrices = 1;
    for (int i = 0; i < x->rank - 2; i++)
        trilu->matrices *= x->dim[i];
    trilu->rows = x->dim[x->rank - 2];
    trilu->columns = x->dim[x->rank - 1];
    trilu->size = rb_dtype_size(x->dtype);
    *ret_kernel = &trilu->base;
    return 0;
}
