/* SPDX-License-Identifier: Apache-2.0 */
/* Walking the kernel elements of a window finds all those that matter, and quickly. */
#include "kernels/window.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

/* Is element k of output o inside the input? */
static bool inside(const struct rb_window *w, int64_t o, int64_t k)
{
    int64_t at = o * w->stride[0] + k * w->dilation[0] - w->begin[0];

    return at >= 0 && at < w->in[0];
}

static void check(const struct rb_window *w)
{
    int64_t first = 0, end = 0, next = rb_window_next(w, 0, 0, &first, &end);

    for (int64_t k = 0; k < w->kernel[0]; k++) {
        int64_t seen = 0;

        for (int64_t o = 0; o < w->out[0]; o++)
            seen += inside(w, o, k);
        assert_int_equal(k == next, seen > 0);
        if (k != next)
            continue;
        assert_int_equal(end - first, seen);
        assert_true(inside(w, first, k) && inside(w, end - 1, k));
        next = rb_window_next(w, 0, k + 1, &first, &end);
    }
    assert_int_equal(next, w->kernel[0]);
}

static void elements_are_those_that_some_output_sees(void **state)
{
    (void)state;
    for (int64_t in = 0; in <= 4; in++)
        for (int64_t out = 0; out <= 4; out++)
            for (int64_t kernel = 1; kernel <= 9; kernel++)
                for (int64_t stride = 1; stride <= 7; stride++)
                    for (int64_t dilation = 1; dilation <= 4; dilation++)
                        for (int64_t begin = 0; begin <= 24; begin++)
                            check(&(struct rb_window){.in = {in},
                                                      .out = {out},
                                                      .kernel = {kernel},
                                                      .stride = {stride},
                                                      .dilation = {dilation},
                                                      .begin = {begin}});
}

/* The largest windows that can be written down, on one number: a step for each element would take
 * years over three axes. */
static void huge_windows_are_walked_in_few_steps(void **state)
{
    const int64_t huge = (int64_t)1 << 30;
    const struct rb_window w = {.in = {1, 1, 1},
                                .out = {2, 1, 3},
                                .kernel = {huge, huge, huge},
                                .stride = {huge - 1, huge, huge / 3},
                                .dilation = {1, 1, huge},
                                .begin = {huge - 1, huge - 1, huge - 1}};
    const int64_t want[3] = {2, 1, 0};

    (void)state;
    for (int round = 0; round < 1000; round++)
        for (int axis = 0; axis < 3; axis++) {
            int64_t found = 0, first, end;

            for (int64_t k = rb_window_next(&w, axis, 0, &first, &end); k < huge;
                 k = rb_window_next(&w, axis, k + 1, &first, &end))
                found += end - first;
            assert_int_equal(found, want[axis]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_those_that_some_output_sees),
        cmocka_unit_test(huge_windows_are_walked_in_few_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
