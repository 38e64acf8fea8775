// SPDX-License-Identifier: Apache-2.0
/* Matrix products, with as few batch axes as the shapes allow: a stack of matrices times one matrix
 * is one taller matrix times it, axes that are alike in both operands are one, the innermost is the
 * library's and the others are a loop. */
#include "kernels/cuda/number.h"

extern "C" {
#include "kernels/matrices.h"
}

namespace
{

/* The end of products that are rounded behind their bias, or that have nothing to multiply. */
struct finish_body {
    int64_t n, row;    /* elements of y's rows; from one row of x to the next */
    const float *x;    /* NULL: zeros */
    const float *bias; /* NULL: zeros */
    float *y;
    uint16_t *rounded; /* instead of y, or NULL */
    bool relu;

    RB_GPU void operator()(int64_t i) const
    {
        float sum = (x ? x[i / n * row + i % n] : 0) + (bias ? bias[i % n] : 0);

        if (relu && sum <= 0)
            sum = 0;
        if (rounded)
            rounded[i] = rb_bfloat_put(sum);
        else
            y[i] = sum;
    }
};

/* The ReLU that the library has no product with. */
struct cut_body {
    void *y;
    bool is_short;

    RB_GPU void operator()(int64_t i) const
    {
        if (rb_real_get(y, is_short, i) <= 0)
            rb_real_put(y, is_short, i, 0);
    }
};

struct matmul : rb_work {
    struct rb_matrices s;
    bool bias, relu, short_in, short_out;
    /* The library adds a bias of the type that it rounds to, and this one is float32: it is added
     * in a pass of its own, from rows that start at multiples of 16 bytes. */
    bool late;
    bool cut; /* the ReLU has a pass of its own, where it is not the product's */
    int64_t row;
    int64_t elements;
    struct rb_gpu_product *product; /* NULL: nothing to multiply */

    /* One product for each element of the outer batch axes. */
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        const float *added = bias ? (const float *)in[2] : NULL;
        struct finish_body finish = {s.n,
                                     row,
                                     late ? (const float *)cuda->scratch : NULL,
                                     added,
                                     short_out ? NULL : (float *)out[0],
                                     short_out ? (uint16_t *)out[0] : NULL,
                                     relu};
        char *to = late ? (char *)cuda->scratch : (char *)out[0];
        int64_t outer = 1, inner = s.batch ? s.c[s.batch - 1] : 1;
        int64_t factor = short_in ? sizeof(uint16_t) : sizeof(float);
        int64_t made = short_out && !late ? sizeof(uint16_t) : sizeof(float);

        for (int i = 0; i < s.batch - 1; i++)
            outer *= s.c[i];
        for (int64_t o = 0; product && o < outer; o++)
            rb_gpu_product_run(product, (const char *)in[0] + offset(s.a, s.m * s.k, o) * factor,
                               (const char *)in[1] + offset(s.b, s.k * s.n, o) * factor,
                               late ? NULL : added, to + o * inner * s.m * row * made);
        if (late || !product)
            rb_each(cuda, elements, finish);
        else if (cut)
            rb_each(cuda, elements, cut_body{out[0], short_out});
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
    int64_t even;
    int last, err;

    err = rb_call_product(call, why);
    if (err)
        return err;
    err = rb_matrices_read(call, &work.s, why);
    if (err)
        return err;
    work.bias = rb_call_has_in(call, 2);
    work.relu = rb_call_int(call, "relu", 0);
    work.short_in = call->in[0].dtype == RB_BF16;
    work.short_out = call->out[0].dtype == RB_BF16;
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
    how.swap_a = work.s.swap_a;
    how.swap_b = work.s.swap_b;
    how.a_row = how.swap_a ? how.m : how.k;
    how.b_row = how.swap_b ? how.k : how.n;
    work.late = work.short_out && work.bias;
    work.row = work.late ? (how.n + 7) / 8 * 8 : how.n;
    how.c_row = work.row;
    how.c_stride = how.m * work.row;
    how.bias = work.bias && !work.late;
    how.relu = work.relu && !work.late;
    how.short_in = work.short_in;
    how.short_out = work.short_out && !work.late;
    /* Tensors start at multiples of 64 bytes; the matrices in them where these are even. */
    even = how.short_in || how.short_out ? 8 : 4;
    how.aligned = !call->slices && how.m * how.k % even == 0 && how.k * how.n % even == 0 &&
                  how.m * work.row % even == 0;
    if (work.late) {
        err = rb_cuda_need(cuda, (size_t)(work.elements / how.n * work.row) * sizeof(float), why);
        if (err)
            return err;
    }
    err = rb_gpu_product_new(cuda->gpu, &how, &work.product, why);
    if (err == RB_EUNSUPPORTED && how.relu) {
        how.relu = false;
        work.cut = true;
        err = rb_gpu_product_new(cuda->gpu, &how, &work.product, why);
    }
    if (err)
        return rb_why_add(why, err, "MatMul");
    return rb_make(cuda, call, work, ret_kernel);
}
