/* SPDX-License-Identifier: Apache-2.0 */
/* Tapes and marks of the CUDA backend. */
#include "tests/kernels/cuda_tests.h"

#include "tests/kernels/case.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TAPED = 3000 };

/* What is done each time: dropout of x into y, a copy of y, which is doubled into z, z into sums
 * twice. */
struct taped {
    struct rb_device *device;
    struct rb_kernel *dropout, *twice;
    float *x, *y, *copy, *z;
    int32_t *sum;
    uint32_t *largest;
    bool *overflow;
};

static void taped_open(struct rb_device *device, struct taped *t)
{
    struct rb_why why = {{0}};
    struct rb_case c;

    *t = (struct taped){
        .device = device,
        .x = cuda_get(device, TAPED * sizeof *t->x),
        .y = cuda_get(device, TAPED * sizeof *t->y),
        .copy = cuda_get(device, TAPED * sizeof *t->copy),
        .z = cuda_get(device, TAPED * sizeof *t->z),
        .sum = cuda_get(device, 4 * TAPED * sizeof *t->sum),
        .largest = cuda_get(device, sizeof *t->largest),
        .overflow = cuda_get(device, sizeof *t->overflow),
    };
    rb_case_read("Dropout f32[3000] > f32[3000] ratio=0.25", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &t->dropout, &why), 0);
    rb_case_read("Add f32[3000] f32[3000] > f32[3000]", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &t->twice, &why), 0);
    for (int i = 0; i < TAPED; i++)
        t->x[i] = sinf((float)i);
    rb_device_push(device, t->x, TAPED * sizeof *t->x);
}

static void taped_done(struct taped *t)
{
    rb_kernel_free(t->dropout);
    rb_kernel_free(t->twice);
    rb_device_free(t->device, t->x);
    rb_device_free(t->device, t->y);
    rb_device_free(t->device, t->copy);
    rb_device_free(t->device, t->z);
    rb_device_free(t->device, t->sum);
    rb_device_free(t->device, t->largest);
    rb_device_free(t->device, t->overflow);
}

/* The arguments of the k-th time: another step, other exponents, other places and other weights. */
static struct rb_key taped_into(const struct taped *t, int k, struct rb_fixed into[2])
{
    for (int i = 0; i < 2; i++)
        into[i] = (struct rb_fixed){
            .sum = t->sum + (size_t)((k + i) % 4) * TAPED,
            .fresh = k < 2,
            .weight = 1 + 0.5f * (float)i + (float)k,
            .exponent = 10 + 3 * k + i,
            .limit = k == 4 ? 1000 : 1 << 29,
            .largest = t->largest,
            .overflow = t->overflow,
        };
    return (struct rb_key){42, (uint64_t)k, 7u + (uint32_t)k};
}

static void taped_ask(const struct taped *t, const struct rb_key *one, const struct rb_fixed *into)
{
    rb_kernel_run(t->dropout, (const void *const[]){t->x}, (void *const[]){t->y}, one);
    rb_device_copy(t->device, t->copy, t->y, TAPED * sizeof *t->y);
    rb_kernel_run(t->twice, (const void *const[]){t->copy, t->y}, (void *const[]){t->z}, one);
    for (int i = 0; i < 2; i++)
        (into[i].fresh ? rb_fixed_set : rb_fixed_add)(
            t->device, into[i].sum, t->z, TAPED, into[i].weight, into[i].exponent, into[i].limit,
            into[i].largest, into[i].overflow);
}

struct seen {
    int32_t sum[4 * TAPED];
    uint32_t largest;
    bool overflow;
};

static void taped_look(const struct taped *t, struct seen *seen)
{
    rb_device_pull(t->device, t->sum, sizeof seen->sum);
    rb_device_pull(t->device, t->largest, sizeof seen->largest);
    rb_device_pull(t->device, t->overflow, sizeof seen->overflow);
    memcpy(seen->sum, t->sum, sizeof seen->sum);
    seen->largest = *t->largest;
    seen->overflow = *t->overflow;
}

/* A tape keeps nothing that changes from one time to the next. */
void a_tape_does_what_asking_does(void **state)
{
    static struct seen asked, played;
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};
    struct rb_fixed into[2];
    struct taped a, b;
    struct rb_key one;

    taped_open(*state, &a);
    taped_open(*state, &b);
    one = taped_into(&b, 9, into);
    assert_true(rb_device_tapes(*state));
    assert_int_equal(rb_tape_start(*state, 2, &tape, &why), 0);
    taped_ask(&b, &one, into);
    if (rb_tape_end(tape, &why))
        fail_msg("%s", why.text);
    for (int k = 0; k < 6; k++) {
        one = taped_into(&a, k, into);
        taped_ask(&a, &one, into);
        one = taped_into(&b, k, into);
        assert_true(rb_tape_play(tape, &one, into, 2));
        taped_look(&a, &asked);
        taped_look(&b, &played);
        assert_memory_equal(asked.sum, played.sum, sizeof asked.sum);
        assert_int_equal(asked.largest, played.largest);
        assert_int_equal(asked.overflow, played.overflow);
    }
    assert_true(asked.overflow);
    assert_int_equal(rb_device_check(*state, &why), 0);
    assert_false(rb_tape_play(tape, &one, into, 1));
    rb_tape_free(tape);
    taped_done(&a);
    taped_done(&b);
}

/* A copy from or to the host is refused on a tape, and the device still works. */
void a_copy_is_not_kept(void **state)
{
    struct rb_device *device = *state;
    float *x = cuda_get(device, sizeof *x);
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};

    assert_int_equal(rb_tape_start(device, 0, &tape, &why), 0);
    rb_device_pull(device, x, sizeof *x);
    assert_int_equal(rb_tape_end(tape, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "copy"));
    rb_tape_free(tape);
    assert_int_equal(rb_device_check(device, &why), 0);
    *x = 3;
    rb_device_push(device, x, sizeof *x);
    *x = 4;
    rb_device_pull(device, x, sizeof *x);
    assert_true(*x == 3);
    rb_device_free(device, x);
}

/* The switch by which runs are compared. */
void tapes_can_be_unwanted(void **state)
{
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};

    setenv("RUBATO_TAPES", "0", 1);
    assert_int_equal(rb_tape_start(*state, 0, &tape, &why), RB_EUNSUPPORTED);
    unsetenv("RUBATO_TAPES");
    assert_non_null(strstr(why.text, "not wanted"));
    assert_int_equal(rb_device_check(*state, &why), 0);
    a_tape_does_what_asking_does(state);
}

/* A mark tells when everything asked for before it was done; a tape takes no marks. */
void marks_have_times(void **state)
{
    struct rb_device *device = *state;
    int32_t *sum = cuda_get(device, (1 << 20) * sizeof *sum);
    float *x = cuda_get(device, (1 << 20) * sizeof *x);
    uint32_t *largest = cuda_get(device, sizeof *largest);
    bool *overflow = cuda_get(device, sizeof *overflow);
    struct rb_marks *marks;
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};
    int asked;

    assert_int_equal(rb_marks_new(device, 3, &marks, &why), 0);
    rb_marks_set(marks, 0);
    rb_fixed_add(device, sum, x, 1 << 20, 1, 0, 1, largest, overflow);
    rb_marks_set(marks, 1);
    rb_fixed_add(device, sum, x, 1 << 20, 1, 0, 1, largest, overflow);
    rb_marks_set(marks, 2);
    assert_true(rb_marks_between(marks, 0, 1) > 0);
    assert_true(rb_marks_between(marks, 1, 2) > 0);
    assert_true(rb_marks_between(marks, 0, 2) > rb_marks_between(marks, 1, 2));
    for (asked = 1; !rb_marks_reached(marks, 2); asked++)
        ;
    if (strstr(getenv("RUBATO_CUDA_MODULE") ? getenv("RUBATO_CUDA_MODULE") : "", "cuda-host"))
        assert_true(asked > 1); /* a caller that asks has to wait a little */
    assert_int_equal(rb_device_check(device, &why), 0);
    assert_int_equal(rb_tape_start(device, 0, &tape, &why), 0);
    rb_marks_set(marks, 0);
    assert_int_equal(rb_tape_end(tape, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "mark"));
    rb_tape_free(tape);
    assert_int_equal(rb_device_check(device, &why), 0);
    rb_marks_free(marks);
    rb_device_free(device, sum);
    rb_device_free(device, x);
    rb_device_free(device, largest);
    rb_device_free(device, overflow);
}
