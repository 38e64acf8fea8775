/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of the CUDA backend share, and none may take from another; and convolutions whose
 * columns do not fit their memory. */
#include "tests/kernels/cuda_tests.h"

#include "tests/kernels/case.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_each(struct rb_device *device, const char *const *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct rb_kernel *kernel = cuda_prepare(device, cases[i]);

        cuda_check(device, kernel, cases[i], i + 1);
        rb_kernel_free(kernel);
    }
}

/* On the stand-in 64 KiB of columns are too many.  So kernels take some samples at a time, with
 * fewer in the end; or one sample, and some of its places or channels; with groups and with
 * bfloat16, too. */
void convolutions_come_in_tiles(void **state)
{
    static const char *const cases[] = {
        "Conv f32[20,2,12,12] f32[3,2,3,3] f32[3] > f32[20,3,10,10]",
        "Conv f32[2,8,21,20] f32[4,8,3,3] > f32[2,4,21,20] pads=1,1,1,1",
        "Conv f32[2,32,9,9] f32[6,16,5,5] > f32[2,6,9,9] pads=2,2,2,2 group=2",
        "Conv bf16[3,16,17,17] bf16[4,16,3,3] f32[4] > bf16[3,4,17,17] pads=1,1,1,1",
        "ConvGradX f32[20,3,10,10] f32[3,2,3,3] > f32[20,2,12,12]",
        "ConvGradX f32[2,4,21,20] f32[4,8,3,3] > f32[2,8,21,20] pads=1,1,1,1",
        "ConvGradX f32[2,6,9,9] f32[6,16,5,5] > f32[2,32,9,9] pads=2,2,2,2 group=2",
        "ConvGradX bf16[3,4,17,17] bf16[4,16,3,3] > bf16[3,16,17,17] pads=1,1,1,1",
        "ConvGradW f32[20,3,10,10] f32[20,2,12,12] > f32[3,2,3,3]",
        "ConvGradW f32[2,4,21,20] f32[2,8,21,20] > f32[4,8,3,3] pads=1,1,1,1",
        "ConvGradW f32[2,6,9,9] f32[2,32,9,9] > f32[6,16,5,5] pads=2,2,2,2 group=2",
        "ConvGradW bf16[5,4,17,17] bf16[5,16,17,17] > f32[4,16,3,3] pads=1,1,1,1",
        "ConvGradW bf16[40,3,10,10] bf16[40,2,12,12] > f32[3,2,3,3]",
    };

    check_each(*state, cases, sizeof cases / sizeof *cases);
}

/* Rounded behind their bias, which rows that are not theirs go before; one by one where batches do
 * not merge. */
void products_round_behind_a_bias(void **state)
{
    static const char *const cases[] = {
        "MatMul bf16[5,9] bf16[9,13] f32[13] > bf16[5,13]",
        "MatMul bf16[9,5] bf16[13,9] f32[13] > bf16[5,13] transA=1 transB=1",
        "MatMul bf16[2,1,5,8] bf16[3,8,6] f32[6] > bf16[2,3,5,6]",
        "MatMul bf16[4,3,5,8] bf16[4,3,8,16] f32[16] > bf16[4,3,5,16]",
        "MatMul bf16[5,9] bf16[9,13] f32[13] > f32[5,13]",
        "MatMul bf16[5,9] bf16[9,13] > bf16[5,13]",
        "MatMul bf16[5,9] bf16[9,13] f32[13] > bf16[5,13] relu=1",
        "MatMul bf16[5,9] bf16[9,13] f32[13] > f32[5,13] relu=1",
        "MatMul bf16[5,9] bf16[9,13] > bf16[5,13] relu=1",
        "MatMul bf16[4,0] bf16[0,3] f32[3] > bf16[4,3] relu=1",
    };

    check_each(*state, cases, sizeof cases / sizeof *cases);
}

/* The ReLU follows the product, where the stand-in is told that its library has no product with a
 * ReLU. */
void a_relu_may_be_late(void **state)
{
    static const char *const cases[] = {
        "MatMul f32[5,9] f32[9,13] > f32[5,13] relu=1",
        "MatMul f32[5,9] f32[9,13] f32[13] > f32[5,13] relu=1",
        "MatMul f32[4,3,5,8] f32[4,1,8,6] f32[6] > f32[4,3,5,6] relu=1",
        "MatMul bf16[5,9] bf16[9,13] f32[13] > f32[5,13] relu=1",
        "MatMul bf16[5,9] bf16[9,13] > bf16[5,13] relu=1",
        "MatMul bf16[5,9] bf16[9,13] f32[13] > bf16[5,13] relu=1",
    };

    setenv("RUBATO_HOST_RELU", "0", 1);
    check_each(*state, cases, sizeof cases / sizeof *cases);
    unsetenv("RUBATO_HOST_RELU");
}

/* Libraries do not say what their ReLU makes of a NaN: the test reports it, and either result is
 * right. */
void a_relu_behind_a_nan_is_told(void **state)
{
    static const char *const text = "MatMul f32[4,8] f32[8,8] f32[8] > f32[4,8] relu=1";
    enum { A = 32, B = 64, BIAS = 8, OUT = 32, PLACE = 3 };
    struct rb_device *device = *state;
    struct rb_kernel *kernel = cuda_prepare(device, text);
    float *a = cuda_get(device, A * sizeof *a), *b = cuda_get(device, B * sizeof *b);
    float *bias = cuda_get(device, BIAS * sizeof *bias), *out = cuda_get(device, OUT * sizeof *out);
    const void *in[] = {a, b, bias};
    void *to[] = {out};
    struct rb_key key = {42, 7, 3};
    struct rb_why why = {{0}};

    for (int i = 0; i < A; i++)
        a[i] = 1;
    for (int i = 0; i < B; i++)
        b[i] = 1;
    bias[PLACE] = NAN;
    rb_device_push(device, a, A * sizeof *a);
    rb_device_push(device, b, B * sizeof *b);
    rb_device_push(device, bias, BIAS * sizeof *bias);
    rb_kernel_run(kernel, in, to, &key);
    rb_device_pull(device, out, OUT * sizeof *out);
    assert_int_equal(rb_device_check(device, &why), 0);
    for (int i = 0; i < OUT; i++)
        assert_true(i % BIAS == PLACE ? isnan(out[i]) || out[i] == 0 : out[i] == 8);
    printf("TABLE   a NaN in a bias behind a product's ReLU: %s\n",
           isnan(out[PLACE]) ? "stays a NaN" : "becomes 0");
    rb_device_free(device, a);
    rb_device_free(device, b);
    rb_device_free(device, bias);
    rb_device_free(device, out);
    rb_kernel_free(kernel);
}

/* The largest and the smallest of the updates of a place are NaN if any update is NaN. */
void a_scatter_keeps_a_nan(void **state)
{
    static const char *const cases[] = {
        "Scatter f32[3] i64[3] f32[3] > f32[3] axis=0 reduction=3",
        "Scatter f32[3] i64[3] f32[3] > f32[3] axis=0 reduction=4",
    };
    struct rb_device *device = *state;
    float *x = cuda_get(device, 3 * sizeof *x), *updates = cuda_get(device, 3 * sizeof *updates);
    float *y = cuda_get(device, 3 * sizeof *y);
    int64_t *places = cuda_get(device, 3 * sizeof *places);
    const void *in[] = {x, places, updates};
    void *out[] = {y};
    struct rb_key key = {42, 7, 3};

    for (int i = 0; i < 3; i++) {
        x[i] = i == 0 ? NAN : 2;
        updates[i] = i == 1 ? NAN : 5;
        places[i] = i;
    }
    rb_device_push(device, x, 3 * sizeof *x);
    rb_device_push(device, updates, 3 * sizeof *updates);
    rb_device_push(device, places, 3 * sizeof *places);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct rb_kernel *kernel = cuda_prepare(device, cases[k]);

        rb_kernel_run(kernel, in, out, &key);
        rb_device_pull(device, y, 3 * sizeof *y);
        assert_true(isnan(y[0]) && isnan(y[1]) && y[2] == (k ? 2 : 5));
        rb_kernel_free(kernel);
    }
    rb_device_free(device, x);
    rb_device_free(device, updates);
    rb_device_free(device, places);
    rb_device_free(device, y);
}

/* An element that is read from outside the tensor is NaN, as on cores. */
void what_is_not_there_shows(void **state)
{
    static const char *const cases[] = {
        "Gather f32[2] i64[3] > f32[3] axis=0",
        "GatherElements f32[2] i64[3] > f32[3] axis=0",
    };
    struct rb_device *device = *state;
    float *x = cuda_get(device, 2 * sizeof *x), *y = cuda_get(device, 3 * sizeof *y);
    int64_t *places = cuda_get(device, 3 * sizeof *places);
    const void *in[] = {x, places};
    void *out[] = {y};
    struct rb_key key = {42, 7, 3};

    memcpy(x, (const float[]){5, 7}, 2 * sizeof *x);
    memcpy(places, (const int64_t[]){-1, 2, -3}, 3 * sizeof *places);
    rb_device_push(device, x, 2 * sizeof *x);
    rb_device_push(device, places, 3 * sizeof *places);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct rb_kernel *kernel = cuda_prepare(device, cases[k]);

        rb_kernel_run(kernel, in, out, &key);
        rb_device_pull(device, y, 3 * sizeof *y);
        assert_true(y[0] == 7 && isnan(y[1]) && isnan(y[2]));
        rb_kernel_free(kernel);
    }
    rb_device_free(device, x);
    rb_device_free(device, places);
    rb_device_free(device, y);
}

/* An invalid class makes loss and gradient NaN, as on cores; an ignored class counts nothing. */
void a_stray_class_shows(void **state)
{
    enum { ROWS = 3 };
    struct rb_device *device = *state;
    struct rb_kernel *forward = cuda_prepare(
        device, "CrossEntropy f32[3,2] i64[3] > f64[1] i64[1] i64[1] f64[3] axis=1 ignoreIndex=7");
    struct rb_kernel *back = cuda_prepare(
        device, "CrossEntropyGrad f32[3,2] i64[3] f64[3] > f32[3,2] axis=1 ignoreIndex=7");
    float *x = cuda_get(device, 2 * ROWS * sizeof *x), *dx = cuda_get(device, 2 * ROWS * sizeof *x);
    int64_t *classes = cuda_get(device, ROWS * sizeof *classes);
    int64_t *counts = cuda_get(device, 16 * sizeof *counts);
    double *loss = cuda_get(device, sizeof *loss), *lse = cuda_get(device, ROWS * sizeof *lse);
    const void *in[] = {x, classes, lse};
    void *out[] = {loss, counts, counts + 8, lse}, *out_back[] = {dx};
    struct rb_key key = {42, 7, 3};

    for (int stray = 0; stray < 2; stray++) {
        memcpy(x, (const float[]){1, 2, 3, 4, 5, 6}, 2 * ROWS * sizeof *x);
        memcpy(classes, (const int64_t[]){1, 7, stray ? -1 : 0}, ROWS * sizeof *classes);
        rb_device_push(device, x, 2 * ROWS * sizeof *x);
        rb_device_push(device, classes, ROWS * sizeof *classes);
        rb_kernel_run(forward, in, out, &key);
        rb_kernel_run(back, in, out_back, &key);
        rb_device_pull(device, loss, sizeof *loss);
        rb_device_pull(device, counts, 16 * sizeof *counts);
        rb_device_pull(device, dx, 2 * ROWS * sizeof *dx);
        assert_true(!isnan(*loss) == !stray && counts[0] == 2 && counts[8] == 1);
        assert_true(!isnan(dx[0]) && dx[2] == 0 && dx[3] == 0);
        assert_true(!isnan(dx[4]) == !stray && !isnan(dx[5]) == !stray);
    }
    rb_device_free(device, x);
    rb_device_free(device, dx);
    rb_device_free(device, classes);
    rb_device_free(device, counts);
    rb_device_free(device, loss);
    rb_device_free(device, lse);
    rb_kernel_free(forward);
    rb_kernel_free(back);
}

/* How much memory a block may share is set once for all kernels of an instantiation. */
void limits_are_kept(void **state)
{
    static const char *const large =
        "FusedAttention f32[1,65,128] f32[1,65,128] f32[1,65,128] > f32[1,65,128] - scale=0.1";
    static const char *const small =
        "FusedAttention f32[1,20,16] f32[1,20,16] f32[1,20,16] > f32[1,20,16] - scale=0.3";
    struct rb_kernel *first = cuda_prepare(*state, large), *second = cuda_prepare(*state, small);

    cuda_check(*state, first, large, 1);
    cuda_check(*state, second, small, 2);
    rb_kernel_free(first);
    rb_kernel_free(second);
}

/* A kernel that asks for more memory than there is leaves the others what they have. */
void scratch_is_kept(void **state)
{
    static const char *const text = "Conv f32[2,3,8,8] f32[4,3,3,3] > f32[2,4,6,6]";
    struct rb_device *device = *state;
    struct rb_kernel *kernel = cuda_prepare(device, text), *none = NULL;
    struct rb_why why = {{0}};
    struct rb_case c;

    rb_case_read("MatMul bf16[20000,1] bf16[1,20000] f32[20000] > bf16[20000,20000]", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &none, &why), RB_ENOMEM);
    assert_non_null(strstr(why.text, "bytes left"));
    cuda_check(device, kernel, text, 3);
    rb_kernel_free(kernel);
}
