/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/cold.h"

#include "base/clock.h"
#include "kernels/device.h"
#include "tests/bench/job.h"

#include <stdio.h>

enum { WIDTH = 512 };

static void tell(const char *piece, const double took[2])
{
    printf("TABLE   cold start: %-26s %8.1f ms, again %.1f ms\n", piece, took[0], took[1]);
}

static double time_module(void)
{
    uint64_t start = rb_clock_ns();
    struct rb_why why;
    int count;

    bench_check(rb_device_count("cuda", &count, &why), &why);
    return bench_since(start);
}

static double time_context(struct rb_device **ret_device)
{
    uint64_t start = rb_clock_ns();
    struct rb_why why;

    bench_check(rb_device_open("cuda", 0, ret_device, &why), &why);
    return bench_since(start);
}

/* cuBLASLt starts when the first product is prepared. */
static double time_blas(struct rb_device *device, enum rb_dtype factors,
                        struct rb_kernel **ret_product)
{
    const struct rb_tensor_type factor = {factors, 2, {WIDTH, WIDTH}};
    const struct rb_tensor_type in[2] = {factor, factor}, out = {RB_F32, 2, {WIDTH, WIDTH}};
    const struct rb_call call = {.op = RB_OP_MATMUL, .n_in = 2, .n_out = 1, .in = in, .out = &out};
    uint64_t start = rb_clock_ns();
    struct rb_why why;

    bench_check(rb_kernel_prepare(device, &call, ret_product, &why), &why);
    return bench_since(start);
}

/* Runs until the result is on the host. */
static double time_product(struct rb_device *device, struct rb_kernel *product,
                           const void *const *in, void *out)
{
    const struct rb_key key = {0};
    uint64_t start = rb_clock_ns();

    rb_kernel_run(product, in, &out, &key);
    rb_device_pull(device, out, sizeof(float));
    return bench_since(start);
}

/* Copying memory there and back is no part of the first product. */
static void time_products(struct rb_device *device, enum rb_dtype factors)
{
    enum { BYTES = WIDTH * WIDTH * sizeof(float) };
    struct rb_kernel *product[2];
    double made[2], took[2];
    void *memory[3];

    for (int i = 0; i < 3; i++) {
        memory[i] = rb_device_alloc(device, BYTES);
        if (!memory[i])
            bench_check(RB_ENOMEM, &(struct rb_why){"no memory on the GPU"});
        rb_device_push(device, memory[i], BYTES);
        rb_device_pull(device, memory[i], BYTES);
    }
    for (int i = 0; i < 2; i++) {
        made[i] = time_blas(device, factors, &product[i]);
        took[i] = time_product(device, product[i], (const void *const *)memory, memory[2]);
    }
    tell("cublas, its handle and way", made);
    tell("first product", took);
    for (int i = 0; i < 2; i++)
        rb_kernel_free(product[i]);
    for (int i = 0; i < 3; i++)
        rb_device_free(device, memory[i]);
}

void cold_times(enum rb_dtype factors)
{
    struct rb_device *device;
    struct rb_why why;
    double module[2], context[2];

    for (int i = 0; i < 2; i++)
        module[i] = time_module();
    context[0] = time_context(&device);
    rb_device_close(device);
    context[1] = time_context(&device);
    tell("module and driver", module);
    tell("context and streams", context);
    time_products(device, factors);
    bench_check(rb_device_check(device, &why), &why);
    rb_device_close(device);
}
