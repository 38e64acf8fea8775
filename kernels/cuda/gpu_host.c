/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that is this processor: the same operators as plain loops, at once, in memory of its own.
 * For tests on machines without a GPU: arithmetic, and that every copy between host and device that
 * a program needs is there. */
#include "kernels/cuda/gpu.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rb_gpu {
    struct rb_why why; /* empty: nothing has gone wrong */
};

/* RUBATO_HOST_GPUS: how many there are. */
int rb_gpu_count(int *ret_count, struct rb_why *why)
{
    const char *text = getenv("RUBATO_HOST_GPUS");
    int count = text ? atoi(text) : 1;

    if (count < 1)
        return rb_why_set(why, RB_ENOTFOUND, "no GPU: the driver sees none");
    *ret_count = count;
    return 0;
}

int rb_gpu_describe(int index, struct rb_gpu_about *ret_about, struct rb_why *why)
{
    struct rb_gpu_about about = {.name = "host", .bytes = (uint64_t)1 << 30};

    (void)index;
    (void)why;
    snprintf(about.numeric_class, sizeof about.numeric_class, "cuda host rubato-%s",
             RUBATO_VERSION);
    *ret_about = about;
    return 0;
}

int rb_gpu_open(int index, struct rb_gpu **ret_gpu, struct rb_why *why)
{
    int count = 0, err = rb_gpu_count(&count, why);

    if (err)
        return err;
    if (index < 0 || index >= count)
        return rb_why_set(why, RB_ENOTFOUND, "there is no GPU %d: %d are here", index, count);
    *ret_gpu = rb_alloc(sizeof **ret_gpu);
    return 0;
}

void rb_gpu_close(struct rb_gpu *gpu)
{
    free(gpu);
}

void *rb_gpu_alloc(struct rb_gpu *gpu, size_t bytes)
{
    void *memory;

    (void)gpu;
    if (posix_memalign(&memory, 256, bytes ? bytes : 1))
        return NULL;
    return memset(memory, 0, bytes);
}

void rb_gpu_free(struct rb_gpu *gpu, void *memory)
{
    (void)gpu;
    free(memory);
}

void rb_gpu_in(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    (void)gpu;
    memcpy(to, from, bytes);
}

void rb_gpu_out(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    (void)gpu;
    memcpy(to, from, bytes);
}

void rb_gpu_zero(struct rb_gpu *gpu, void *at, size_t bytes)
{
    (void)gpu;
    memset(at, 0, bytes);
}

void rb_gpu_wait(struct rb_gpu *gpu)
{
    (void)gpu;
}

int rb_gpu_check(struct rb_gpu *gpu, struct rb_why *why)
{
    return gpu->why.text[0] ? rb_why_set(why, RB_EINTERNAL, "%s", gpu->why.text) : 0;
}

void rb_gpu_fail(struct rb_gpu *gpu, const char *what)
{
    rb_why_set(&gpu->why, RB_EINTERNAL, "%s", what);
}

bool rb_gpu_enter(struct rb_gpu *gpu)
{
    return !gpu->why.text[0];
}

void *rb_gpu_stream(struct rb_gpu *gpu)
{
    (void)gpu;
    return NULL;
}

void rb_gpu_launched(struct rb_gpu *gpu)
{
    (void)gpu;
}

/* ---- Products ---------------------------------------------------------------------------------*/

struct rb_gpu_product {
    struct rb_gpu_product_shape shape;
    double *sums; /* a row of c */
    float *b;     /* [k, n], whichever way it is stored */
};

int rb_gpu_product_new(struct rb_gpu *gpu, const struct rb_gpu_product_shape *shape,
                       struct rb_gpu_product **ret_product, struct rb_why *why)
{
    struct rb_gpu_product *product = rb_alloc(sizeof *product);

    (void)gpu;
    (void)why;
    product->shape = *shape;
    product->sums = rb_alloc((size_t)shape->n * sizeof *product->sums);
    product->b = rb_alloc((size_t)(shape->k * shape->n) * sizeof *product->b);
    *ret_product = product;
    return 0;
}

static void take_b(const struct rb_gpu_product *product, const float *b)
{
    const struct rb_gpu_product_shape *s = &product->shape;

    for (int64_t i = 0; i < s->k; i++)
        for (int64_t j = 0; j < s->n; j++)
            product->b[i * s->n + j] = s->swap_b ? b[j * s->b_row + i] : b[i * s->b_row + j];
}

static void make_row(const struct rb_gpu_product *product, const float *a, const float *bias,
                     float *c)
{
    const struct rb_gpu_product_shape *s = &product->shape;
    double *sums = product->sums;

    memset(sums, 0, (size_t)s->n * sizeof *sums);
    for (int64_t i = 0; i < s->k; i++) {
        const float *row = product->b + i * s->n;
        double factor = (double)a[s->swap_a ? i * s->a_row : i];

        for (int64_t j = 0; j < s->n; j++)
            sums[j] += factor * (double)row[j];
    }
    for (int64_t j = 0; j < s->n; j++)
        c[j] = (float)sums[j] + (s->more ? c[j] : 0) + (s->bias ? bias[j] : 0);
}

void rb_gpu_product_run(struct rb_gpu_product *product, const float *a, const float *b,
                        const float *bias, float *c)
{
    const struct rb_gpu_product_shape *s = &product->shape;

    for (int64_t i = 0; i < s->batch; i++) {
        if (i == 0 || s->b_stride)
            take_b(product, b + i * s->b_stride);
        for (int64_t row = 0; row < s->m; row++)
            make_row(product, a + i * s->a_stride + (s->swap_a ? row : row * s->a_row), bias,
                     c + i * s->c_stride + row * s->c_row);
    }
}

void rb_gpu_product_free(struct rb_gpu_product *product)
{
    if (!product)
        return;
    free(product->sums);
    free(product->b);
    free(product);
}
