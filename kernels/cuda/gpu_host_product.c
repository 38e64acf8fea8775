/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the host in a GPU's place: plain loops, a row of the result after the other, with
 * sums in doubles. */
#include "kernels/cuda/gpu_host.h"

#include "base/arena.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>
#include <string.h>

struct rb_gpu_product {
    struct rb_gpu *gpu;
    struct rb_gpu_product_shape shape;
    double *sums; /* a row of c */
    float *b;     /* [k, n], whichever way it is stored */
};

/* RUBATO_HOST_RELU=0: as a cuBLASLt that has no algorithm with a ReLU. */
static bool has_relu(void)
{
    const char *text = getenv("RUBATO_HOST_RELU");

    return !text || strcmp(text, "0") != 0;
}

int rb_gpu_product_new(struct rb_gpu *gpu, const struct rb_gpu_product_shape *shape,
                       struct rb_gpu_product **ret_product, struct rb_why *why)
{
    struct rb_gpu_product *product;

    if (shape->relu && !has_relu())
        return rb_why_set(why, RB_EUNSUPPORTED, "this stand-in was told to have no ReLU");
    product = rb_alloc(sizeof *product);
    product->gpu = gpu;
    product->shape = *shape;
    product->sums = rb_alloc((size_t)shape->n * sizeof *product->sums);
    product->b = rb_alloc((size_t)(shape->k * shape->n) * sizeof *product->b);
    *ret_product = product;
    return 0;
}

static float get(bool is_short, const void *from, int64_t i)
{
    uint32_t bits;
    float x;

    if (!is_short)
        return ((const float *)from)[i];
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest even; a NaN stays one. */
static void put(bool is_short, void *to, int64_t i, float x)
{
    uint32_t bits;

    if (!is_short) {
        ((float *)to)[i] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)to)[i] = x != x ? (uint16_t)(bits >> 16 | 0x40)
                                 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Takes b's matrix that starts at element `from`. */
static void take_b(const struct rb_gpu_product *product, const void *b, int64_t from)
{
    const struct rb_gpu_product_shape *s = &product->shape;

    for (int64_t i = 0; i < s->k; i++)
        for (int64_t j = 0; j < s->n; j++)
            product->b[i * s->n + j] =
                get(s->short_in, b, from + (s->swap_b ? j * s->b_row + i : i * s->b_row + j));
}

/* The product of two floats is exact in a double, so it does not matter whether a compiler
 * contracts this. */
RB_CLONES static void add_row(double *sums, double factor, const float *row, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sums[j] += factor * (double)row[j];
}

static void make_row(const struct rb_gpu_product *product, const void *a, int64_t from_a,
                     const float *bias, void *c, int64_t from_c)
{
    const struct rb_gpu_product_shape *s = &product->shape;
    double *sums = product->sums;

    memset(sums, 0, (size_t)s->n * sizeof *sums);
    for (int64_t i = 0; i < s->k; i++)
        add_row(sums, (double)get(s->short_in, a, from_a + (s->swap_a ? i * s->a_row : i)),
                product->b + i * s->n, s->n);
    for (int64_t j = 0; j < s->n; j++) {
        float sum = (float)sums[j] + (s->more ? get(s->short_out, c, from_c + j) : 0) +
                    (s->bias ? bias[j] : 0);

        put(s->short_out, c, from_c + j, s->relu && sum <= 0 ? 0 : sum);
    }
}

struct run {
    struct rb_gpu_product *product;
    const void *a, *b;
    const float *bias;
    void *c;
};

static void multiply(void *what)
{
    const struct run *run = what;
    const struct rb_gpu_product_shape *s = &run->product->shape;

    for (int64_t i = 0; i < s->batch; i++) {
        if (i == 0 || s->b_stride)
            take_b(run->product, run->b, i * s->b_stride);
        for (int64_t row = 0; row < s->m; row++)
            make_row(run->product, run->a, i * s->a_stride + (s->swap_a ? row : row * s->a_row),
                     run->bias, run->c, i * s->c_stride + row * s->c_row);
    }
}

void rb_gpu_product_run(struct rb_gpu_product *product, const void *a, const void *b,
                        const float *bias, void *c)
{
    struct run run = {product, a, b, bias, c};

    rb_gpu_host_run(product->gpu, multiply, &run, sizeof run);
}

void rb_gpu_product_free(struct rb_gpu_product *product)
{
    if (!product)
        return;
    free(product->sums);
    free(product->b);
    free(product);
}
