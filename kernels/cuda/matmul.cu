// SPDX-License-Identifier: Apache-2.0
/* Matrix products, with as few batch axes as the shapes allow: a stack of matrices times one matrix
 * is one taller matrix times it, axes that are alike in both operands are one, the innermost is the
 * library's and the others are a loop. */
#include "kernels/cuda/launch.h"

extern "C" {
#include "kernels/matrices.h"
}

namespace
{

struct fill_body {
    int64_t n;
    const float *bias; /* NULL: zeros */
    float *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = bias ? bias[i % n] : 0;
    }
};

struct matmul : rb_work {
    struct rb_matrices s;
    bool bias;
    int64_t elements;
    struct rb_gpu_product *product; /* NULL: nothing to multiply */

    /* One product for each element of the outer batch axes. */
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        const float *row = bias ? (const float *)in[2] : NULL;
        struct fill_body fill = {s.n, row, (float *)out[0]};
        int64_t outer = 1, inner = s.batch ? s.c[s.batch - 1] : 1;

        if (!product) {
            rb_each(cuda, elements, fill);
            return;
        }
        for (int i = 0; i < s.batch - 1; i++)
            outer *= s.c[i];
        for (int64_t o = 0; o < outer; o++)
            rb_gpu_product_run(product, (const float *)in[0] + offset(s.a, s.m * s.k, o),
                               (const float *)in[1] + offset(s.b, s.k * s.n, o), row,
                               (float *)out[0] + o * inner * s.m * s.n);
    }

    int64_t offset(const int64_t *dim, int64_t size, int64_t o) const
    {
        int64_t at = 0, step = size;

        for (int i = s.batch - 1; i >= 0; i--) {
            if (i < s.batch - 1) {
                at += dim[i] > 1 ? o % s.c[i] * step : 0;
                o /= s.c[i];
            }
            step *= dim[i];
        }
        return at;
    }

    void done()
    {
        rb_gpu_product_free(product);
    }
};

} // namespace

int rb_cuda_matmul(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    struct rb_gpu_product_shape how = {};
    struct matmul work = {};
    int last, err;

    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype != RB_NONE && call->in[i].dtype != RB_F32)
            return rb_no_kernel(call, why);
    err = rb_matrices_read(call, &work.s, why);
    if (err)
        return err;
    work.bias = rb_call_has_in(call, 2);
    work.elements = rb_tensor_elements(&call->out[0]);
    if (work.elements == 0 || work.s.k == 0)
        return rb_make(cuda, call, work, ret_kernel);
    rb_matrices_merge(&work.s);
    last = work.s.batch - 1;
    how.m = work.s.m;
    how.n = work.s.n;
    how.k = work.s.k;
    how.batch = last < 0 ? 1 : work.s.c[last];
    how.a_stride = last < 0 || work.s.a[last] == 1 ? 0 : how.m * how.k;
    how.b_stride = last < 0 || work.s.b[last] == 1 ? 0 : how.k * how.n;
    how.c_stride = how.m * how.n;
    how.swap_a = work.s.swap_a;
    how.swap_b = work.s.swap_b;
    how.a_row = how.swap_a ? how.m : how.k;
    how.b_row = how.swap_b ? how.k : how.n;
    how.c_row = how.n;
    how.bias = work.bias;
    /* Tensors start at multiples of 64 bytes; the matrices in them where these are even. */
    how.aligned = how.m * how.k % 4 == 0 && how.k * how.n % 4 == 0 && how.m * how.n % 4 == 0;
    err = rb_gpu_product_new(cuda->gpu, &how, &work.product, why);
    if (err)
        return rb_why_add(why, err, "MatMul");
    return rb_make(cuda, call, work, ret_kernel);
}
