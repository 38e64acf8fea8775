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
};

int rb_gpu_product_new(struct rb_gpu *gpu, const struct rb_gpu_product_shape *shape,
                       struct rb_gpu_product **ret_product, struct rb_why *why)
{
    (void)gpu;
    (void)why;
    *ret_product = rb_alloc(sizeof **ret_product);
    (*ret_product)->shape = *shape;
    return 0;
}

static float dot(const struct rb_gpu_product_shape *s, const float *a, const float *b, int64_t row,
                 int64_t column)
{
    int64_t a_step = s->swap_a ? s->a_row : 1, b_step = s->swap_b ? 1 : s->b_row;
    double sum = 0;

    a += s->swap_a ? row : row * s->a_row;
    b += s->swap_b ? column * s->b_row : column;
    for (int64_t i = 0; i < s->k; i++)
        sum += (double)a[i * a_step] * (double)b[i * b_step];
    return (float)sum;
}

void rb_gpu_product_run(struct rb_gpu_product *product, const float *a, const float *b,
                        const float *bias, float *c)
{
    const struct rb_gpu_product_shape *s = &product->shape;

    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t row = 0; row < s->m; row++)
            for (int64_t column = 0; column < s->n; column++) {
                float *to = c + i * s->c_stride + row * s->c_row + column;

                *to = dot(s, a + i * s->a_stride, b + i * s->b_stride, row, column) +
                      (s->more ? *to : 0) + (s->bias ? bias[column] : 0);
            }
}

void rb_gpu_product_free(struct rb_gpu_product *product)
{
    free(product);
}
