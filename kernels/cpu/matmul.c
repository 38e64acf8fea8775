/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through oneDNN, with as few batch axes as the shapes allow.
 *
 * A stack of matrices times one matrix is one taller matrix times it.  Batch axes that are alike in
 * all operands are merged.  A product over nothing (k = 0) is the bias or zero.  Where
 * bfloat16 is not the faster one, or oneDNN lacks it, its product is one of float32 copies. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

struct matmul {
    struct rb_kernel base;
    struct rb_dnnl_op *op; /* NULL: k is 0 */
    bool bias;
    int64_t rows, n; /* of the whole output */
};

static void matmul_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    const struct matmul *matmul = (const struct matmul *)kernel;
    /* oneDNN takes all addresses as writable and writes only to the last. */
    void *addresses[4] = {(void *)(uintptr_t)in[0], (void *)(uintptr_t)in[1], NULL, out[0]};

    (void)key;
    if (matmul->bias)
        addresses[2] = (void *)(uintptr_t)in[2];
    rb_dnnl_run(matmul->op, addresses);
}

static void empty_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct matmul *matmul = (const struct matmul *)kernel;
    size_t row = (size_t)matmul->n * sizeof(float);

    (void)key;
    for (int64_t i = 0; i < matmul->rows && row > 0; i++) {
        if (matmul->bias)
            memcpy((char *)out[0] + (size_t)i * row, in[2], row);
        else
            memset((char *)out[0] + (size_t)i * row, 0, row);
    }
}

static void matmul_free(struct rb_kernel *kernel)
{
    struct matmul *matmul = (struct matmul *)kernel;

    rb_dnnl_free(matmul->op);
    free(matmul);
}

/* Axes of all three operands, aligned to the output's: batch axes, rows, columns. */
struct shape {
    int batch;
    int64_t a[RB_MAX_RANK + 2], b[RB_MAX_RANK + 2], c[RB_MAX_RANK + 2]; /* batch sizes */
    int64_t m, k, n;
    bool swap_a, swap_b;
};

/* Batch sizes of one input, filled up with 1 in front. */
static void batch_sizes(const struct rb_tensor_type *type, int batch, int64_t *ret)
{
    int own = type->rank > 2 ? type->rank - 2 : 0;

    for (int i = 0; i < batch; i++)
        ret[i] = i < batch - own ? 1 : type->dim[i - (batch - own)];
}

/* Vectors are matrices of one row (a) or one column (b), and that axis is not in the output. */
static int read_shape(const struct rb_call *call, struct shape *s, struct rb_why *why)
{
    const struct rb_tensor_type *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    struct rb_tensor_type expected = {RB_F32, 0, {0}};
    int64_t k_of_b;
    int a_own = a->rank > 2 ? a->rank - 2 : 0, b_own = b->rank > 2 ? b->rank - 2 : 0;

    if (a->rank < 1 || b->rank < 1)
        return rb_call_refuse(call, RB_EINVAL, why, "scalars cannot be multiplied as matrices");
    s->swap_a = rb_call_int(call, "transA", 0) != 0 && a->rank > 1;
    s->swap_b = rb_call_int(call, "transB", 0) != 0 && b->rank > 1;
    s->m = a->rank == 1 ? 1 : a->dim[a->rank - (s->swap_a ? 1 : 2)];
    s->k = a->dim[a->rank - (s->swap_a ? 2 : 1)];
    k_of_b = b->rank == 1 ? b->dim[0] : b->dim[b->rank - (s->swap_b ? 1 : 2)];
    s->n = b->rank == 1 ? 1 : b->dim[b->rank - (s->swap_b ? 2 : 1)];
    if (s->k != k_of_b)
        return rb_call_refuse(call, RB_EINVAL, why, "the inner sizes %lld and %lld differ",
                              (long long)s->k, (long long)k_of_b);
    s->batch = a_own > b_own ? a_own : b_own;
    batch_sizes(a, s->batch, s->a);
    batch_sizes(b, s->batch, s->b);
    for (int i = 0; i < s->batch; i++) {
        if (s->a[i] != s->b[i] && s->a[i] != 1 && s->b[i] != 1)
            return rb_call_refuse(call, RB_EINVAL, why, "the leading axes do not broadcast");
        s->c[i] = s->a[i] == 1 ? s->b[i] : s->a[i];
        expected.dim[expected.rank++] = s->c[i];
    }
    if (a->rank > 1)
        expected.dim[expected.rank++] = s->m;
    if (b->rank > 1)
        expected.dim[expected.rank++] = s->n;
    if (!rb_tensor_same_shape(y, &expected))
        return rb_call_refuse(call, RB_EINVAL, why, "the output has another shape");
    return 0;
}

/* Merge neighbouring batch axes that are alike (both whole, or broadcast in the same operand), and
 * drop those of size 1. */
static void merge_batch(struct shape *s)
{
    int n = 0;

    for (int i = 0; i < s->batch; i++) {
        if (s->c[i] == 1)
            continue;
        if (n > 0 && (s->a[n - 1] == 1) == (s->a[i] == 1) && (s->b[n - 1] == 1) == (s->b[i] == 1)) {
            s->a[n - 1] *= s->a[i];
            s->b[n - 1] *= s->b[i];
            s->c[n - 1] *= s->c[i];
            continue;
        }
        s->a[n] = s->a[i];
        s->b[n] = s->b[i];
        s->c[n] = s->c[i];
        n++;
    }
    s->batch = n;
    if (n == 1 && s->b[0] == 1 && !s->swap_a) { /* one matrix b: the rows of a are one stack */
        s->m *= s->a[0];
        s->batch = 0;
    }
}

static void operand(const struct shape *s, const int64_t *batch, int64_t rows, int64_t columns,
                    bool swap, int64_t *ret_dim, int64_t *ret_step)
{
    int64_t step = rows * columns;

    for (int i = s->batch - 1; i >= 0; i--) {
        ret_dim[i] = batch[i];
        ret_step[i] = step;
        step *= batch[i];
    }
    ret_dim[s->batch] = rows;
    ret_dim[s->batch + 1] = columns;
    ret_step[s->batch] = swap ? 1 : columns;
    ret_step[s->batch + 1] = swap ? rows : 1;
}

/* Copies cost by the factors' elements, slow products by the work: 0.45 ns and 0.0054 ns. */
static bool copies_pay(const struct rb_cpu *cpu, const struct shape *s)
{
    enum { ROWS = 42 };

    if (cpu->bfloat != RB_DNNL_BFLOAT_SLOW)
        return cpu->bfloat == RB_DNNL_BFLOAT_NOT;
    return s->m > ROWS && s->n > ROWS && s->m * s->n > ROWS * (s->m + s->n);
}

int rb_cpu_matmul(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    struct rb_dnnl_matmul how = {.bias = rb_call_has_in(call, 2),
                                 .factors = rb_call_in(call, 0)->dtype,
                                 .product = rb_call_out(call, 0)->dtype};
    const struct rb_tensor_type *bias = rb_call_in(call, 2);
    struct shape s = {0};
    struct matmul *matmul;
    int64_t elements;
    int err = rb_call_product(call, why);

    err = err ? err : read_shape(call, &s, why);
    if (err)
        return err;
    if (how.bias && (bias->rank != 1 || bias->dim[0] != s.n))
        return rb_call_refuse(call, RB_EINVAL, why, "the bias must have %lld elements",
                              (long long)s.n);
    elements = rb_tensor_elements(&call->out[0]);
    merge_batch(&s);
    if (how.factors == RB_BF16 && (elements == 0 || s.k == 0 || copies_pay(cpu, &s)))
        return rb_cpu_widened(cpu, call, rb_cpu_matmul, ret_kernel, why);
    matmul = rb_cpu_kernel(sizeof(*matmul), matmul_run);
    matmul->base.free = matmul_free;
    matmul->bias = how.bias;
    matmul->n = s.n;
    matmul->rows = s.n ? elements / s.n : 0;
    if (elements == 0 || s.k == 0) {
        matmul->base.run = empty_run;
        *ret_kernel = &matmul->base;
        return 0;
    }
    how.batch_axes = s.batch;
    operand(&s, s.a, s.m, s.k, s.swap_a, how.a_dim, how.a_step);
    operand(&s, s.b, s.k, s.n, s.swap_b, how.b_dim, how.b_step);
    memcpy(how.c_dim, s.c, sizeof(int64_t) * (size_t)s.batch);
    how.c_dim[s.batch] = s.m;
    how.c_dim[s.batch + 1] = s.n;
    err = rb_dnnl_matmul(cpu->dnnl, &how, &matmul->op, why);
    if (err) {
        matmul_free(&matmul->base);
        if (err == RB_EUNSUPPORTED && how.factors == RB_BF16)
            return rb_cpu_widened(cpu, call, rb_cpu_matmul, ret_kernel, why);
        return rb_why_add(why, err, "MatMul");
    }
    *ret_kernel = &matmul->base;
    return 0;
}
