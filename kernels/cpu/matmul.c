/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, with as few batch axes as the shapes allow, by the quickest kernel for each.
 *
 * call > [matmul] > outer, samples, rows, mix, tall (AVX-512), product (AVX2), oneDNN
 *
 * A stack of matrices times one matrix is one taller matrix times it.  Batch axes that are alike in
 * all operands are merged.  A product over nothing (k = 0) is the bias or zero.  Where bfloat16 is
 * not faster, or oneDNN lacks it, a product of bfloat16 is one of float32 copies. */
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mix.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/outer.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/samples.h"
#include "kernels/cpu/tall.h"
#include "kernels/matrices.h"

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

static void operand(const struct rb_matrices *s, const int64_t *batch, int64_t rows,
                    int64_t columns, bool swap, int64_t *ret_dim, int64_t *ret_step)
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
static bool copies_pay(const struct rb_cpu *cpu, const struct rb_matrices *s)
{
    enum { ROWS = 42 };

    if (cpu->bfloat != RB_DNNL_BFLOAT_SLOW)
        return cpu->bfloat == RB_DNNL_BFLOAT_NOT;
    return s->m > ROWS && s->n > ROWS && s->m * s->n > ROWS * (s->m + s->n);
}

/* The first of Rubato's own kernels that takes the product.  RB_EUNSUPPORTED: none does, as on
 * processors that they are not written for; RB_ENOMEM. */
static int make_own(struct rb_cpu *cpu, const struct rb_matrices *s,
                    const struct rb_dnnl_matmul *how, struct rb_kernel **ret_kernel)
{
    static int (*const makers[])(struct rb_cpu *, const struct rb_matrices *, enum rb_dtype, bool,
                                 struct rb_kernel **) = {
#if defined(__x86_64__)
        rb_cpu_outer,
        rb_cpu_samples,
        rb_cpu_rows,
        rb_cpu_mix,
        rb_cpu_tall,
        rb_cpu_product,
#endif
        NULL,
    };
    int err = RB_EUNSUPPORTED;

    for (size_t i = 0; err == RB_EUNSUPPORTED && makers[i]; i++)
        err = makers[i](cpu, s, how->factors, how->bias, ret_kernel);
    return err;
}

static int prepare(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    struct rb_dnnl_matmul how = {.bias = rb_call_has_in(call, 2),
                                 .factors = rb_call_in(call, 0)->dtype,
                                 .product = rb_call_out(call, 0)->dtype};
    const struct rb_tensor_type *bias = rb_call_in(call, 2);
    struct rb_matrices s = {0};
    struct matmul *matmul;
    int64_t elements;
    int err = rb_call_product(call, why);

    err = err ? err : rb_matrices_read(call, &s, why);
    if (err)
        return err;
    if (how.bias && (bias->rank != 1 || bias->dim[0] != s.n))
        return rb_call_refuse(call, RB_EINVAL, why, "the bias must have %lld elements",
                              (long long)s.n);
    elements = rb_tensor_elements(&call->out[0]);
    rb_matrices_merge(&s);
    if (how.factors == RB_BF16 && (elements == 0 || s.k == 0 || copies_pay(cpu, &s)))
        return rb_cpu_widened(cpu, call, prepare, ret_kernel, why);
    if (elements > 0 && how.product == RB_F32) {
        err = make_own(cpu, &s, &how, ret_kernel);
        if (err != RB_EUNSUPPORTED)
            return err ? rb_call_refuse(call, err, why, "no memory for a factor") : 0;
    }
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
            return rb_cpu_widened(cpu, call, prepare, ret_kernel, why);
        return rb_why_add(why, err, "MatMul");
    }
    *ret_kernel = &matmul->base;
    return 0;
}

/* ---- Cut off below 0 -------------------------------------------------------------------------*/

struct cut {
    struct rb_kernel base;
    struct rb_kernel *product;
    enum rb_dtype dtype;
    int64_t elements;
};

static void cut_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                    const struct rb_key *key)
{
    const struct cut *cut = (const struct cut *)kernel;
    uint16_t *rounded = out[0];
    float *y = out[0];

    cut->product->run(cut->product, in, out, key);
    for (int64_t i = 0; cut->dtype == RB_BF16 && i < cut->elements; i++)
        rounded[i] = rb_dtype_bfloat(rounded[i]) <= 0 ? 0 : rounded[i];
    for (int64_t i = 0; cut->dtype == RB_F32 && i < cut->elements; i++)
        y[i] = y[i] <= 0 ? 0 : y[i];
}

static void cut_free(struct rb_kernel *kernel)
{
    struct cut *cut = (struct cut *)kernel;

    cut->product->free(cut->product);
    free(cut);
}

/* Graphs for CPUs have no product that is cut off: it is here because calls are checked by it. */
int rb_cpu_matmul(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    struct rb_kernel *product = NULL;
    struct cut *cut;
    int err = prepare(cpu, call, &product, why);

    if (err)
        return err;
    if (!rb_call_int(call, "relu", 0)) {
        *ret_kernel = product;
        return 0;
    }
    cut = rb_cpu_kernel(sizeof(*cut), cut_run);
    cut->base.free = cut_free;
    cut->product = product;
    cut->dtype = call->out[0].dtype;
    cut->elements = rb_tensor_elements(&call->out[0]);
    *ret_kernel = &cut->base;
    return 0;
}
