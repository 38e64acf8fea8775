/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the kernels are at the shapes of the reference models:
 *
 *     bench_kernels [WORD]
 *
 * Only cases that contain WORD; "Relu f32[8,4] > f32[8,4]" is a case itself.
 *
 * One line a case: the best of several runs, in GFLOP/s for products and GB/s for the rest (bytes
 * of inputs and outputs).  Pin it to a core; times are of the thread's own, but memory traffic of
 * other processes shows. */
#include "base/clock.h"
#include "kernels/call.h"
#include "tests/kernels/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {
    /* gpt: 4 samples of 128 tokens, width 256, 4 heads, 256 words */
    "MatMul f32[512,256] f32[256,768] f32[768] > f32[512,768]",
    "MatMul f32[512,256] f32[256,1024] f32[1024] > f32[512,1024]",
    "MatMul f32[512,1024] f32[1024,256] f32[256] > f32[512,256]",
    "MatMul f32[512,1024] f32[256,1024] > f32[512,256] transB=1",
    "MatMul f32[512,256] f32[512,1024] > f32[256,1024] transA=1",
    "MatMul f32[4,128,256] f32[4,128,1024] > f32[4,256,1024] transA=1",
    "MatMul f32[4,4,128,64] f32[4,4,64,128] > f32[4,4,128,128]",
    "MatMul f32[4,4,128,64] f32[4,4,128,64] > f32[4,4,128,128] transB=1",
    "MatMul f32[4,4,128,128] f32[4,4,128,64] > f32[4,4,128,64]",
    "MatMul f32[4,4,128,128] f32[4,4,128,64] > f32[4,4,128,64] transA=1",
    "Gelu f32[512,1024] > f32[512,1024]",
    "Gelu f32[512,1024] > f32[512,1024] tanh=1",
    "GeluGrad f32[512,1024] f32[512,1024] > f32[512,1024]",
    "GeluGrad f32[512,1024] f32[512,1024] > f32[512,1024] tanh=1",
    "Softmax f32[4,4,128,128] > f32[4,4,128,128] axis=3",
    "SoftmaxGrad f32[4,4,128,128] f32[4,4,128,128] > f32[4,4,128,128] axis=3",
    "LayerNormalization f32[512,256] f32[256] f32[256] > f32[512,256] f32[512,1] f32[512,1] axis=1",
    "LayerNormGrad f32[512,256] f32[512,256] f32[256] f32[512,1] f32[512,1] > f32[512,256] "
    "f32[256] f32[256] axis=1",
    "Transpose f32[4,128,4,64] > f32[4,4,128,64] perm=0,2,1,3",
    "Transpose f32[4,128,4,64] > f32[4,4,64,128] perm=0,2,3,1",
    "Transpose f32[256,1024] > f32[1024,256] perm=1,0",
    "Add f32[512,256] f32[512,256] > f32[512,256]",
    "Add f32[4,128,256] f32[128,256] > f32[4,128,256]",
    "Mul f32[4,4,128,128] f32[] > f32[4,4,128,128]",
    "Where bool[1,1,128,128] f32[4,4,128,128] f32[1] > f32[4,4,128,128]",
    "ReduceSum f32[512,1024] > f32[1024] axes=0",
    "ReduceSum f32[4,128,256] > f32[128,256] axes=0",
    "Split f32[4,128,768] > f32[4,128,256] f32[4,128,256] f32[4,128,256] axis=2",
    "Gather f32[256,256] i64[4,128] > f32[4,128,256] axis=0",
    "GatherGrad f32[4,128,256] i64[4,128] > f32[256,256] axis=0",
    "Dropout f32[512,256] > f32[512,256] ratio=0.1",
    "CrossEntropy f32[512,256] i64[512] > f64[1] i64[1] i64[1] f64[512] axis=1",
    "CrossEntropyGrad f32[512,256] i64[512] f64[512] > f32[512,256] axis=1",
    "CrossEntropyGrad f32[512,8192] i64[512] f64[512] > f32[512,8192] axis=1",
    /* mlp: 128 samples, 784-1024-1024-10 */
    "MatMul f32[128,784] f32[1024,784] f32[1024] > f32[128,1024] transB=1",
    "MatMul f32[128,1024] f32[1024,1024] > f32[128,1024]",
    "MatMul f32[128,1024] f32[128,784] > f32[1024,784] transA=1",
    "MatMul f32[128,1024] f32[10,1024] f32[10] > f32[128,10] transB=1",
    "MatMul f32[128,10] f32[128,1024] > f32[10,1024] transA=1",
    "MatMul f32[16,784] f32[1024,784] f32[1024] > f32[16,1024] transB=1",
    "MatMul f32[16,1024] f32[1024,1024] f32[1024] > f32[16,1024] transB=1",
    "MatMul f32[16,1024] f32[1024,1024] > f32[16,1024]",
    "MatMul f32[16,1024] f32[16,784] > f32[1024,784] transA=1",
    "MatMul bf16[128,1024] bf16[1024,1024] f32[1024] > f32[128,1024] transB=1",
    "MatMul bf16[128,1024] bf16[1024,1024] > f32[128,1024]",
    "MatMul bf16[128,1024] bf16[128,784] > f32[1024,784] transA=1",
    "MatMul bf16[16,1024] bf16[1024,1024] f32[1024] > f32[16,1024] transB=1",
    "MatMul bf16[16,1024] bf16[1024,1024] > f32[16,1024]",
    "MatMul bf16[16,1024] bf16[16,784] > f32[1024,784] transA=1",
    "Cast f32[1024,1024] > bf16[1024,1024]",
    "Relu f32[128,1024] > f32[128,1024]",
    "ReluGrad f32[128,1024] f32[128,1024] > f32[128,1024]",
    /* cnn: 64 samples, 32-64-128 channels on 32x32 */
    "Conv f32[64,3,32,32] f32[32,3,3,3] f32[32] > f32[64,2,32,32,16] pads=1,1,1,1",
    "Conv f32[64,2,16,16,16] f32[64,32,3,3] f32[64] > f32[64,4,16,16,16] pads=1,1,1,1",
    "Conv f32[64,4,8,8,16] f32[128,64,3,3] f32[128] > f32[64,8,8,8,16] pads=1,1,1,1",
    "ConvGradX f32[64,4,16,16,16] f32[64,32,3,3] > f32[64,2,16,16,16] pads=1,1,1,1",
    "ConvGradX f32[64,8,8,8,16] f32[128,64,3,3] > f32[64,4,8,8,16] pads=1,1,1,1",
    "ConvGradW f32[64,2,32,32,16] f32[64,3,32,32] > f32[32,3,3,3] pads=1,1,1,1",
    "ConvGradW f32[64,4,16,16,16] f32[64,2,16,16,16] > f32[64,32,3,3] pads=1,1,1,1",
    "ConvGradW f32[64,8,8,8,16] f32[64,4,8,8,16] > f32[128,64,3,3] pads=1,1,1,1",
    /* resnet: the first of its layers, a step down, the last */
    "Conv f32[64,4,32,32,16] f32[64,64,3,3] > f32[64,4,32,32,16] pads=1,1,1,1",
    "ConvGradW f32[64,4,32,32,16] f32[64,4,32,32,16] > f32[64,64,3,3] pads=1,1,1,1",
    "ConvGradX f32[64,16,8,8,16] f32[256,128,3,3] > f32[64,8,16,16,16] pads=1,1,1,1 strides=2,2",
    "Conv f32[64,32,4,4,16] f32[512,512,3,3] > f32[64,32,4,4,16] pads=1,1,1,1",
    "ConvGradX f32[64,32,4,4,16] f32[512,512,3,3] > f32[64,32,4,4,16] pads=1,1,1,1",
    "ConvGradW f32[64,32,4,4,16] f32[64,32,4,4,16] > f32[512,512,3,3] pads=1,1,1,1",
    "ReduceSum f32[64,32,32,32] > f32[32] axes=0,2,3",
    "BatchNormalization f32[64,32,32,32] f32[32] f32[32] > f32[64,32,32,32] f32[32] f32[32] "
    "f32[32]",
    "BatchNormGrad f32[64,32,32,32] f32[64,32,32,32] f32[32] f32[32] f32[32] > f32[64,32,32,32] "
    "f32[32] f32[32]",
    "MaxPool f32[64,32,32,32] > f32[64,32,16,16] i32[64,32,16,16] kernel=2,2 strides=2,2",
    "MaxPoolGrad f32[64,32,16,16] i32[64,32,16,16] > f32[64,32,32,32] kernel=2,2 strides=2,2",
    "AveragePool f32[64,128,8,8] > f32[64,128,4,4] kernel=2,2 strides=2,2",
};

enum { RUNS = 12, LEAST_NS = 3000000 };

/* Multiplications and additions; 0: not a product. */
static double operations(const struct rb_call *call)
{
    const struct rb_tensor_type *w = NULL;

    switch (call->op) {
    case RB_OP_MATMUL:
        return 2.0 * (double)rb_tensor_elements(&call->out[0]) *
               (double)call->in[0].dim[call->in[0].rank - (rb_call_int(call, "transA", 0) ? 2 : 1)];
    case RB_OP_CONV:
        w = &call->in[1];
        return 2.0 * (double)rb_tensor_elements(&call->out[0]) *
               (double)(rb_tensor_elements(w) / w->dim[0]);
    case RB_OP_CONV_GRAD_X:
        w = &call->in[1];
        break;
    case RB_OP_CONV_GRAD_W:
        w = &call->out[0];
        break;
    default:
        return 0;
    }
    return 2.0 * (double)rb_tensor_elements(&call->in[0]) *
           (double)(rb_tensor_elements(w) / w->dim[0]);
}

/* Nanoseconds of one run, the best of several. */
static double best_time(struct rb_kernel *kernel, const void *const *in, void *const *out)
{
    const struct rb_key key = {1, 2, 3};
    double best = 1e18;

    for (int r = 0; r < RUNS; r++) {
        uint64_t start = rb_clock_thread_ns(), end;
        int n = 0;

        do {
            rb_kernel_run(kernel, in, out, &key);
            n++;
            end = rb_clock_thread_ns();
        } while (end - start < LEAST_NS);
        if ((double)(end - start) / n < best)
            best = (double)(end - start) / n;
    }
    return best;
}

static void bench(struct rb_device *device, const char *text)
{
    struct rb_case c;
    struct rb_kernel *kernel;
    struct rb_why why;
    const void *in[CASE_TENSORS] = {NULL};
    void *out[CASE_TENSORS] = {NULL}, *memory[CASE_TENSORS] = {NULL};
    double ns, flop, bytes = 0;

    rb_case_read(text, &c);
    if (rb_kernel_prepare(device, &c.call, &kernel, &why) != 0) {
        printf("%s: %s\n", text, why.text);
        return;
    }
    for (int i = 0; i < c.call.n_in; i++) {
        bytes += (double)rb_case_bytes(&c.in[i]);
        in[i] = memory[i] = rb_device_alloc(device, rb_case_bytes(&c.in[i]));
        rb_case_fill(&c, i, 1, memory[i]);
    }
    for (int i = 0; i < c.call.n_out; i++) {
        bytes += (double)rb_case_bytes(&c.out[i]);
        out[i] = rb_device_alloc(device, rb_case_bytes(&c.out[i]));
    }
    ns = best_time(kernel, in, out);
    flop = operations(&c.call);
    printf("%9.1f us %8.1f %s  %s\n", ns / 1e3, (flop > 0 ? flop : bytes) / ns,
           flop > 0 ? "GFLOP/s" : "GB/s   ", text);
    fflush(stdout);
    rb_kernel_free(kernel);
    for (int i = 0; i < CASE_TENSORS; i++) {
        rb_device_free(device, memory[i]);
        rb_device_free(device, out[i]);
    }
}

/* The flat state: 1 M elements, as far as caches reach, and 16 M beyond them. */
static void bench_state(struct rb_device *device, size_t n)
{
    const struct rb_adamw adamw = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.1f, 0.001f};
    const struct rb_sgd sgd = {1e-2f, 0.9f, 1e-4f, false, false};
    float *w = rb_device_alloc(device, 4 * n), *m = rb_device_alloc(device, 4 * n);
    float *v = rb_device_alloc(device, 4 * n);
    int32_t *sum = rb_device_alloc(device, 4 * n);
    const char *names[] = {"fixed_add", "fixed_squares", "adamw", "sgd"};
    const double bytes[] = {12, 4, 28, 20};

    for (int what = 0; what < 4; what++) {
        double best = 1e18;

        for (int r = 0; r < RUNS; r++) {
            uint64_t start = rb_clock_thread_ns(), time;
            uint32_t largest = 0;
            bool overflow = false;
            double squares;

            if (what == 0)
                rb_fixed_add(device, sum, w, n, 1.0f, 20, INT32_MAX / 8, &largest, &overflow);
            else if (what == 1)
                rb_fixed_squares(device, sum, n, 20, 1e-3, &squares);
            else if (what == 2)
                rb_apply_adamw(device, w, m, v, rb_sums_of(sum), n, 20, 1e-3f, &adamw, NULL);
            else
                rb_apply_sgd(device, w, m, rb_sums_of(sum), n, 20, 1e-3f, &sgd, NULL);
            time = rb_clock_thread_ns() - start;
            best = (double)time < best ? (double)time : best;
        }
        printf("%9.1f us %8.1f GB/s     %s %zu\n", best / 1e3, bytes[what] * (double)n / best,
               names[what], n);
    }
    rb_device_free(device, w);
    rb_device_free(device, m);
    rb_device_free(device, v);
    rb_device_free(device, sum);
}

int main(int argc, char **argv)
{
    struct rb_device *device;
    struct rb_why why;

    if (rb_device_open("cpu", 0, &device, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    printf("%s\n", rb_device_numeric_class("cpu"));
    if (argc == 2 && strchr(argv[1], '>'))
        bench(device, argv[1]);
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (argc < 2 || strstr(cases[i], argv[1]))
            bench(device, cases[i]);
    if (argc < 2 || strcmp(argv[1], "state") == 0) {
        bench_state(device, 1 << 20);
        bench_state(device, 16 << 20);
    }
    rb_device_close(device);
    return 0;
}
