/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of memory of the CUDA backend, and what happens with memory that is not its own. */
#include "tests/kernels/cuda_tests.h"

#include "tests/kernels/case.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void memory_has_two_sides(void **state)
{
    struct rb_device *device = *state;
    int32_t *memory = cuda_get(device, 100000 * sizeof *memory);

    assert_int_equal(memory[99999], 0);
    memory[5] = 1;
    rb_device_pull(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[5], 0);
    memory[5] = 2;
    memory[6] = 3;
    rb_device_push(device, &memory[6], sizeof *memory);
    rb_device_pull(device, &memory[5], 2 * sizeof *memory);
    assert_int_equal(memory[5], 0);
    assert_int_equal(memory[6], 3);
    rb_device_discard(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[6], 0);
    memory[6] = 4;
    rb_device_pull(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[6], 0);
    rb_device_free(device, memory);
}

/* A kernel that is given memory of something else reports that, and so does everything after it. */
void what_goes_wrong_is_kept(void **state)
{
    struct rb_device *device;
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};
    struct rb_case c;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};

    (void)state;
    assert_int_equal(rb_device_open("cuda", 0, &device, &why), 0);
    rb_case_read("Neg f32[4] > f32[4]", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, &why), 0);
    assert_int_equal(rb_device_check(device, &why), 0);
    rb_kernel_run(kernel, (const void *const[]){x}, (void *const[]){y}, &(struct rb_key){42, 7, 3});
    assert_int_equal(rb_device_check(device, &why), RB_EINTERNAL);
    assert_non_null(strstr(why.text, "not its own"));
    rb_kernel_free(kernel);
    rb_device_close(device);
}

/* Copies that are larger than a room, at odd places. */
void large_copies_are_whole(void **state)
{
    struct rb_device *device = *state;
    size_t n = (size_t)5 << 21;
    uint16_t *x = cuda_get(device, n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)(i * 7919);
    rb_device_push(device, x + 3, (n - 5) * sizeof *x);
    memset(x, 0xff, n * sizeof *x);
    rb_device_pull(device, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        if (x[i] != (i < 3 || i >= n - 2 ? 0 : (uint16_t)(i * 7919)))
            fail_msg("element %zu is %d", i, x[i]);
    rb_device_free(device, x);
}

/* A push takes what the host had at that time, and what is queued around it reads what was there at
 * that place in the queue: for more pushes than all rooms have place for, in sizes that do not fit
 * the rooms evenly. */
void pushes_keep_their_place(void **state)
{
    enum { N = 70001, TIMES = 300 };
    struct rb_device *device = *state;
    float *x = cuda_get(device, N * sizeof *x);
    int32_t *sums = cuda_get(device, (size_t)TIMES * 2 * sizeof *sums);
    uint32_t *largest = cuda_get(device, sizeof *largest);
    bool *overflow = cuda_get(device, sizeof *overflow);
    struct rb_why why = {{0}};

    for (int k = 0; k < TIMES; k++) {
        x[0] = x[N - 1] = (float)k;
        rb_device_push(device, x, (size_t)(N - k % 2) * sizeof *x);
        rb_device_push(device, x + N - 1, sizeof *x);
        x[0] = x[N - 1] = -1;
        rb_fixed_add(device, sums + (size_t)k * 2, x, 1, 1, 0, 1 << 20, largest, overflow);
        rb_fixed_add(device, sums + (size_t)k * 2 + 1, x + N - 1, 1, 1, 0, 1 << 20, largest,
                     overflow);
    }
    rb_device_pull(device, sums, (size_t)TIMES * 2 * sizeof *sums);
    assert_int_equal(rb_device_check(device, &why), 0);
    for (int k = 0; k < TIMES * 2; k++)
        assert_int_equal(sums[k], k / 2);
    rb_device_pull(device, x, N * sizeof *x);
    assert_true(x[0] == TIMES - 1 && x[N - 1] == TIMES - 1);
    rb_device_free(device, x);
    rb_device_free(device, sums);
    rb_device_free(device, largest);
    rb_device_free(device, overflow);
}

/* A copy takes what was there at that place in the queue, and waits to be pulled. */
void copies_keep_their_place(void **state)
{
    enum { N = 200 };
    struct rb_device *device = *state;
    int64_t *x = cuda_get(device, sizeof *x), *kept = cuda_get(device, N * sizeof *kept);

    for (int k = 0; k < N; k++) {
        *x = 1000 + k;
        rb_device_push(device, x, sizeof *x);
        rb_device_copy(device, &kept[k], x, sizeof *x);
    }
    *x = -1;
    rb_device_push(device, x, sizeof *x);
    assert_int_equal(kept[N - 1], 0);
    rb_device_pull(device, kept, N * sizeof *kept);
    for (int k = 0; k < N; k++)
        assert_int_equal(kept[k], 1000 + k);
    rb_device_free(device, x);
    rb_device_free(device, kept);
}

/* Pushes that are too large to be queued stay in order with those that are queued. */
void large_pushes_keep_their_place(void **state)
{
    enum { N = 5 << 20 };
    struct rb_device *device = *state;
    int32_t *x = cuda_get(device, N * sizeof *x);

    for (int k = 1; k < 5; k++) {
        x[7] = 10 * k;
        rb_device_push(device, x + 7, sizeof *x);
        x[7] = 10 * k + 1;
        if (k % 2)
            rb_device_push(device, x, N * sizeof *x);
        x[7] = 0;
        rb_device_pull(device, x, N * sizeof *x);
        assert_int_equal(x[7], 10 * k + k % 2);
    }
    rb_device_free(device, x);
}
