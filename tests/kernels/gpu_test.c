/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of errors of CUDA and NCCL, which are functions here that fail when told: no error
 * is left behind for the next launch to find, and what may still be in use is not given back.
 *
 * The path of the NCCL that does nothing is this program's argument. */
#include "kernels/cuda/gpu.h"
#include "tests/kernels/fake_cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 1000, IN_PROGRESS = 7, SYSTEM_ERROR = 2 };

static struct fake_nccl *nccl;

static void clean(const char *after)
{
    if (fake_cuda.last)
        fail_msg("call %d failed, and an error stays behind %s", fake_cuda.fails, after);
}

static bool is_never(void *context)
{
    (void)context;
    return false;
}

static void use_memory(struct rb_gpu *gpu)
{
    int32_t from[COUNT], to[COUNT];
    void *memory = rb_gpu_alloc(gpu, sizeof from);
    struct rb_why why;

    clean("rb_gpu_alloc");
    for (int i = 0; i < COUNT; i++)
        from[i] = i;
    rb_gpu_in(gpu, memory, from, memory ? sizeof from : 0);
    clean("rb_gpu_in");
    rb_gpu_out(gpu, to, memory, memory ? sizeof to : 0);
    clean("rb_gpu_out");
    if (memory && !rb_gpu_check(gpu, &why))
        assert_memory_equal(from, to, sizeof from);
    rb_gpu_wait(gpu);
    clean("rb_gpu_wait");
    rb_gpu_free(gpu, memory);
    clean("rb_gpu_free");
}

static void use_marks(struct rb_gpu *gpu)
{
    struct rb_gpu_marks *marks;
    struct rb_why why;
    int asked, err = rb_gpu_marks_new(gpu, 2, &marks, &why);

    clean("rb_gpu_marks_new");
    if (err)
        return;
    rb_gpu_marks_set(marks, 0);
    rb_gpu_marks_set(marks, 1);
    (void)rb_gpu_marks_between(marks, 0, 1);
    clean("rb_gpu_marks_between");
    fake_cuda.busy = 2;
    for (asked = 1; !rb_gpu_marks_reached(marks, 1); asked++)
        clean("rb_gpu_marks_reached");
    if (!rb_gpu_check(gpu, &why))
        assert_int_equal(asked, 3);
    fake_cuda.busy = 0;
    clean("rb_gpu_marks_reached");
    rb_gpu_marks_free(marks);
    clean("rb_gpu_marks_free");
}

static void use_tape(struct rb_gpu *gpu)
{
    struct rb_gpu_tape *tape;
    struct rb_why why;
    int values = 3, err = rb_gpu_tape_start(gpu, sizeof values, &tape, &why);

    clean("rb_gpu_tape_start");
    if (err)
        return;
    rb_gpu_zero(gpu, rb_gpu_tape_values(tape), sizeof values);
    err = rb_gpu_tape_end(tape, &why);
    clean("rb_gpu_tape_end");
    if (!err)
        rb_gpu_tape_play(tape, &values);
    clean("rb_gpu_tape_play");
    rb_gpu_tape_free(tape);
    clean("rb_gpu_tape_free");
}

static int enter(struct rb_gpu *gpu, struct rb_gpu_circle **ret_circle)
{
    uint8_t ticket[RB_CIRCLE_TICKET];
    struct rb_why why;
    int err = rb_gpu_circle_ticket(gpu, ticket, &why);

    err = err ? err : rb_gpu_circle_enter(gpu, ticket, 0, 1, ret_circle, &why);
    clean("rb_gpu_circle_enter");
    return err;
}

static void sum(struct rb_gpu_circle *circle)
{
    int32_t in[2] = {5, 6}, out[2] = {0};
    struct rb_circle_range range = {RB_CIRCLE_ALL, RB_CIRCLE_ALL, 0, 2};
    struct rb_why why;

    fake_cuda.busy = 3;
    if (!rb_gpu_circle_sum(circle, in, out, &range, 1, is_never, NULL, &why))
        assert_int_equal(out[1], 6);
    fake_cuda.busy = 0;
    clean("rb_gpu_circle_sum");
}

static void use_circle(struct rb_gpu *gpu)
{
    struct rb_gpu_circle *circle;

    if (enter(gpu, &circle))
        return;
    sum(circle);
    rb_gpu_circle_stop(circle);
    clean("rb_gpu_circle_stop");
    rb_gpu_circle_leave(circle);
    clean("rb_gpu_circle_leave");
}

/* Use everything once. */
static void use_all(void)
{
    struct rb_gpu_about about;
    struct rb_why why;
    struct rb_gpu *gpu;
    int count, err;

    (void)rb_gpu_count(&count, &why);
    clean("rb_gpu_count");
    (void)rb_gpu_describe(0, &about, &why);
    clean("rb_gpu_describe");
    err = rb_gpu_open(0, &gpu, &why);
    clean("rb_gpu_open");
    if (err)
        return;
    use_memory(gpu);
    use_marks(gpu);
    use_tape(gpu);
    use_circle(gpu);
    rb_gpu_close(gpu);
    clean("rb_gpu_close");
}

static void no_error_stays_behind(void **state)
{
    int most;

    (void)state;
    fake_cuda_start(0);
    use_all();
    assert_int_equal(fake_cuda.streams, 0);
    assert_int_equal(fake_cuda.events, 0);
    assert_int_equal(fake_cuda.graphs, 0);
    most = fake_cuda.calls;
    assert_true(most > 50);
    for (int fails = 1; fails <= most; fails++) {
        fake_cuda_start(fails);
        use_all();
    }
    fake_cuda_start(0);
}

/* Leave a circle in a way that does not end it properly. */
static void leave_when(int answer, int busy, int streams, bool works)
{
    struct rb_gpu_circle *circle;
    struct rb_why why;
    struct rb_gpu *gpu;
    int before;

    fake_cuda_start(0);
    assert_int_equal(rb_gpu_open(0, &gpu, &why), 0);
    assert_int_equal(enter(gpu, &circle), 0);
    before = fake_cuda.streams;
    sum(circle);
    *nccl = (struct fake_nccl){.answer = answer};
    fake_cuda.busy = busy;
    rb_gpu_circle_leave(circle);
    assert_int_equal(nccl->aborted, 1);
    assert_int_equal(fake_cuda.streams, before - streams);
    assert_int_equal(rb_gpu_check(gpu, &why) == 0, works);
    clean("rb_gpu_circle_leave");
    rb_gpu_close(gpu);
    fake_cuda_start(0);
    *nccl = (struct fake_nccl){0};
}

static void what_may_be_used_is_kept(void **state)
{
    (void)state;
    leave_when(0, 0, 1, true);
    leave_when(IN_PROGRESS, 5, 0, true);
    leave_when(SYSTEM_ERROR, 5, 0, true);
    leave_when(IN_PROGRESS, -1, 0, false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_error_stays_behind),
        cmocka_unit_test(what_may_be_used_is_kept),
    };
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;

    nccl = library ? dlsym(library, "fake_nccl") : NULL;
    if (!nccl) {
        fprintf(stderr, "usage: gpu_test LIBRARY\n");
        return 2;
    }
    setenv("RUBATO_NCCL", argv[1], 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
