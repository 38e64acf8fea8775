/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that kernels need beside their tensors while they run: one room for all kernels of a
 * device, which moves where a later kernel needs a larger one. */
#include "base/sanitized.h"
#include "kernels/device.h"
#include "tests/kernels/case.h"
#include "tests/kernels/setup.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* Row-major, so that oneDNN reorders them: the second needs a larger room, the third has pads where
 * the others have numbers. */
static const char *const convolutions[] = {
    "Conv f32[2,16,12,12] f32[16,16,3,3] - > f32[2,16,12,12] pads=1,1,1,1",
    "Conv f32[4,32,32,32] f32[32,32,3,3] - > f32[4,32,32,32] pads=1,1,1,1",
    "Conv f32[2,5,12,12] f32[7,5,3,3] - > f32[2,7,12,12] pads=1,1,1,1",
};

enum { MANY = 24 };

struct convolution {
    struct rb_case c;
    void *in[2], *out;
    struct rb_kernel *kernel;
};

/* With `spared` bytes to use, `far` behind the output. */
static void prepare_with(struct rb_device *device, const char *text, size_t spared, ptrdiff_t far,
                         struct convolution *conv)
{
    struct rb_why why;

    rb_case_read(text, &conv->c);
    conv->c.call.spare_bytes = spared;
    conv->c.call.spare = far;
    for (int i = 0; i < 2; i++) {
        conv->in[i] = rb_device_alloc(device, rb_case_bytes(&conv->c.in[i]));
        rb_case_fill(&conv->c, i, 7 + (uint64_t)i, conv->in[i]);
    }
    conv->out = rb_device_alloc(device, rb_case_bytes(&conv->c.out[0]));
    if (rb_kernel_prepare(device, &conv->c.call, &conv->kernel, &why))
        fail_msg("%s: %s", text, why.text);
}

static void prepare(struct rb_device *device, const char *text, struct convolution *conv)
{
    prepare_with(device, text, 0, 0, conv);
}

static void run(struct convolution *conv)
{
    const void *const in[] = {conv->in[0], conv->in[1], NULL};

    memset(conv->out, 0xff, rb_case_bytes(&conv->c.out[0]));
    rb_kernel_run(conv->kernel, in, &conv->out, NULL);
}

static void done(struct rb_device *device, struct convolution *conv)
{
    rb_kernel_free(conv->kernel);
    for (int i = 0; i < 2; i++)
        rb_device_free(device, conv->in[i]);
    rb_device_free(device, conv->out);
}

/* The output on a device of its own. */
static void *alone(const char *text, size_t *ret_bytes)
{
    struct rb_device *device;
    struct rb_why why;
    struct convolution conv;
    void *copy;

    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    prepare(device, text, &conv);
    run(&conv);
    *ret_bytes = rb_case_bytes(&conv.c.out[0]);
    copy = malloc(*ret_bytes);
    memcpy(copy, conv.out, *ret_bytes);
    done(device, &conv);
    rb_device_close(device);
    return copy;
}

static void nobody_sees_the_others(void **state)
{
    struct convolution convs[RB_COUNT(convolutions)];

    for (size_t i = 0; i < RB_COUNT(convs); i++) {
        prepare(*state, convolutions[i], &convs[i]);
        for (size_t k = 0; k <= i; k++) {
            size_t bytes;
            void *want = alone(convolutions[k], &bytes);

            run(&convs[k]);
            assert_memory_equal(convs[k].out, want, bytes);
            free(want);
        }
    }
    for (size_t i = 0; i < RB_COUNT(convs); i++)
        done(*state, &convs[i]);
}

static size_t allocated(void)
{
    struct mallinfo2 heap = mallinfo2();

    return heap.uordblks + heap.hblkhd;
}

static void many_need_no_more_than_one(void **state)
{
    struct convolution convs[MANY];
    size_t tensor, before = 0, more;

    for (size_t i = 0; i < MANY; i++) {
        prepare(*state, convolutions[1], &convs[i]);
        if (i == 0)
            before = allocated();
    }
    more = allocated() - before;
    tensor = rb_case_bytes(&convs[0].c.in[0]);
    /* The kernels' own tensors come from the heap as well; a room each would be two tensors or
     * more. */
    if (more > (MANY - 1) * (2 * tensor + tensor / 2))
        fail_msg("%d convolutions more take %zu bytes, their tensors %zu", MANY - 1, more,
                 (MANY - 1) * 2 * tensor);
    for (size_t i = 0; i < MANY; i++)
        done(*state, &convs[i]);
}

/* A convolution that is given the memory that it needs takes no other; one that is given less, or
 * needs but little, leaves that memory alone. */
static void it_takes_what_is_spared(void **state)
{
    enum { FAR = 4 << 20, SPARED = 16 << 20, SCANTY = 1 << 16 };
    static const struct {
        const char *text;
        size_t spared;
        bool used;
    } cases[] = {
        {"Conv f32[24,32,32,32] f32[32,32,3,3] - > f32[24,32,32,32] pads=1,1,1,1", SPARED, true},
        {"Conv f32[24,32,32,32] f32[32,32,3,3] - > f32[24,32,32,32] pads=1,1,1,1", SCANTY, false},
        {"Conv f32[2,16,12,12] f32[16,16,3,3] - > f32[2,16,12,12] pads=1,1,1,1", SPARED, false}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        unsigned char *memory = aligned_alloc(64, FAR + SPARED), *spoiled = malloc(SPARED);
        struct convolution conv;
        struct rb_device *device;
        struct rb_why why;
        void *want, *own;
        size_t bytes;

        want = alone(cases[i].text, &bytes);
        assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
        prepare_with(device, cases[i].text, cases[i].spared, FAR, &conv);
        own = conv.out;
        conv.out = memory;
        memset(memory + FAR, 0xee, SPARED);
        memset(spoiled, 0xee, SPARED);
        run(&conv);
        assert_memory_equal(conv.out, want, bytes);
        assert_int_equal(memcmp(memory + FAR, spoiled, SPARED) != 0, cases[i].used);
        assert_memory_equal(memory + FAR + cases[i].spared, spoiled, SPARED - cases[i].spared);
        conv.out = own;
        done(device, &conv);
        rb_device_close(device);
        free(want);
        free(memory);
        free(spoiled);
    }
}

/* Allow the process no more memory than it has now; returns the limit before. */
static struct rlimit limit_memory(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit before, now;
    unsigned long pages;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    getrlimit(RLIMIT_AS, &before);
    now = (struct rlimit){pages * (unsigned long)sysconf(_SC_PAGESIZE), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
    return before;
}

/* Take what was freed before, in pieces of 64 KB: each piece holds the address of the one
 * before. */
static void **take_the_rest(void)
{
    void **last = NULL, **piece;

    while ((piece = malloc(1 << 16))) {
        *piece = last;
        last = piece;
    }
    return last;
}

static void give_back(void **last)
{
    while (last) {
        void **before = *last;

        free(last);
        last = before;
    }
}

/* Products of oneDNN get memory as they run: without it the device reports that, until it is
 * closed. */
static void without_memory_it_is_said(void **state)
{
    static const char text[] = "MatMul f32[1024,1024] f32[1024,1024] > f32[1024,1024]";
    struct convolution product;
    struct rb_device *device;
    struct rlimit before;
    struct rb_why why;
    size_t bytes;
    void *want, **rest;
    int err;

    (void)state;
    if (RB_SANITIZED) /* a sanitizer has memory of its own */
        skip();
    want = alone(text, &bytes);
    assert_int_equal(rb_device_open("cpu", 0, &device, &why), 0);
    prepare(device, text, &product);
    memset(product.out, 0, bytes);
    before = limit_memory();
    rest = take_the_rest();
    run(&product);
    give_back(rest);
    setrlimit(RLIMIT_AS, &before);
    err = rb_device_check(device, &why);
    if (err) {
        assert_int_equal(err, RB_ENOMEM);
        assert_string_equal(why.text, "no memory for oneDNN to compute");
        run(&product);
        assert_int_equal(rb_device_check(device, &why), RB_ENOMEM);
    }
    assert_memory_equal(product.out, want, bytes);
    done(device, &product);
    rb_device_close(device);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_sees_the_others),
        cmocka_unit_test(many_need_no_more_than_one),
        cmocka_unit_test(it_takes_what_is_spared),
        cmocka_unit_test(without_memory_it_is_said),
    };

    return cmocka_run_group_tests(tests, setup_core, setup_done);
}
