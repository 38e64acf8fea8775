/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/rows.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct world {
    char folder[64];
    char *path;
    struct rb_rows *rows;
};

static void open_rows(struct world *world)
{
    struct rb_why why = {0};
    assert_int_equal(rb_rows_open(world->path, &world->rows, &why), RB_OK);
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.folder = "/tmp/rubato-rows.XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    world.path = rb_format("%s/metrics", world.folder);
    open_rows(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct rb_why why;
    rb_rows_close(world->rows);
    rb_file_remove(world->folder, &why);
    free(world->path);
    return 0;
}

static bool add(struct world *world, int64_t step, uint32_t configuration, double loss)
{
    struct rb_why why = {0};
    bool new = false;
    Rb__Row row = RB__ROW__INIT;
    row.step = step;
    row.time = 1000 + (uint64_t)step;
    row.loss = loss;
    row.grad_norm = 0.1;
    row.configuration = configuration;
    row.samples = 8;
    if (step == 2) {
        row.has_eval_loss = true;
        row.eval_loss = 1.0 / 3;
    }
    assert_int_equal(rb_rows_add(world->rows, &row, &new, &why), RB_OK);
    return new;
}

static json_t *read_all(struct world *world, int64_t after, size_t limit)
{
    struct rb_why why = {0};
    json_t *rows;
    assert_int_equal(rb_rows_read(world->rows, after, limit, false, &rows, &why), RB_OK);
    return rows;
}

static double at(const json_t *rows, size_t row, size_t column)
{
    return json_number_value(json_array_get(json_array_get(rows, row), column));
}

static void each_step_once(void **state)
{
    struct world *world = *state;
    json_t *none = read_all(world, INT64_MAX, 100);
    assert_int_equal(json_array_size(none), 0);
    json_decref(none);
    assert_true(add(world, 1, 1, 5));
    assert_true(add(world, 2, 1, 0.1 + 0.2));
    assert_false(add(world, 1, 1, 6)); /* another worker reports the same */
    assert_false(add(world, 2, 1, 6));
    assert_true(add(world, 3, 2, NAN));
    json_t *rows = read_all(world, 0, 100);
    assert_int_equal(json_array_size(rows), 3);
    assert_true(at(rows, 0, 2) == 5);
    assert_true(at(rows, 1, 2) == 0.1 + 0.2); /* to the bit */
    assert_true(at(rows, 1, 12) == 1.0 / 3);
    assert_true(json_is_null(json_array_get(json_array_get(rows, 0), 12)));
    assert_true(json_is_null(json_array_get(json_array_get(rows, 2), 2))); /* NaN */
    json_decref(rows);
    rows = read_all(world, 1, 1);
    assert_int_equal(json_array_size(rows), 1);
    assert_int_equal(at(rows, 0, 0), 2);
    json_decref(rows);
}

static void later_configuration_counts(void **state)
{
    struct world *world = *state;
    for (int64_t step = 1; step <= 5; step++)
        add(world, step, 1, 1);
    assert_true(add(world, 4, 2, 2));  /* back to the checkpoint of step 3 */
    assert_false(add(world, 5, 1, 3)); /* late news of the old configuration */
    assert_true(add(world, 5, 2, 2));
    rb_rows_close(world->rows);
    open_rows(world);
    assert_false(add(world, 5, 2, 9));
    json_t *rows = read_all(world, 0, 100);
    assert_int_equal(json_array_size(rows), 5);
    assert_true(at(rows, 2, 2) == 1);
    assert_true(at(rows, 3, 2) == 2);
    assert_int_equal(at(rows, 4, 7), 2);
    json_decref(rows);
}

static void lines_that_were_replaced_are_kept(void **state)
{
    struct world *world = *state;
    struct rb_why why = {0};
    json_t *rows;
    for (int64_t step = 1; step <= 3; step++)
        add(world, step, 1, 1);
    for (uint32_t configuration = 2; configuration <= 3; configuration++)
        for (int64_t step = 2; step <= 3; step++)
            add(world, step, configuration, configuration);
    for (int open = 0; open < 2; open++) {
        assert_int_equal(rb_rows_read(world->rows, 1, 1, true, &rows, &why), RB_OK);
        assert_int_equal(json_array_size(rows), 3); /* all of step 2 */
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(at(rows, i, 0), 2);
        assert_int_equal(at(rows, 2, 7), 3);
        assert_int_equal(at(rows, 0, 7) + at(rows, 1, 7), 1 + 2);
        json_decref(rows);
        rows = read_all(world, 0, 100);
        assert_int_equal(json_array_size(rows), 3);
        json_decref(rows);
        rb_rows_close(world->rows);
        open_rows(world);
    }
}

static void survives_half_a_line(void **state)
{
    struct world *world = *state;
    add(world, 1, 1, 1);
    add(world, 2, 1, 1);
    rb_rows_close(world->rows);
    int fd = open(world->path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "not a line\n3 1003 1 2", 21), 21);
    close(fd);
    open_rows(world);
    assert_int_equal(rb_rows_last(world->rows), 2);
    add(world, 3, 1, 7);
    rb_rows_close(world->rows);
    open_rows(world);
    json_t *rows = read_all(world, 0, 100);
    assert_int_equal(json_array_size(rows), 3);
    assert_true(at(rows, 2, 2) == 7);
    json_decref(rows);
}

static void gaps_and_bounds(void **state)
{
    struct world *world = *state;
    struct rb_why why = {0};
    bool new;
    Rb__Row row = RB__ROW__INIT;
    assert_int_equal(rb_rows_unbroken(world->rows), 0);
    add(world, 11, 3, 1); /* a node that came later */
    add(world, 12, 3, 1);
    add(world, 14, 3, 1);
    assert_int_equal(rb_rows_unbroken(world->rows), 12);
    add(world, 13, 3, 1);
    assert_int_equal(rb_rows_unbroken(world->rows), 14);
    json_t *rows = read_all(world, -5, 100);
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(at(rows, 3, 0), 14);
    json_decref(rows);
    row.step = 0;
    assert_int_equal(rb_rows_add(world->rows, &row, &new, &why), RB_EINVAL);
    row.step = INT64_MAX;
    assert_int_equal(rb_rows_add(world->rows, &row, &new, &why), RB_EINVAL);
}

/* A file that may not grow stands for a full disk: it takes half a line and then nothing. */
static void full_disk_loses_nothing(void **state)
{
    struct world *world = *state;
    struct rb_why why = {0};
    struct rlimit usual, small;
    bool new;
    Rb__Row row = RB__ROW__INIT;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = usual;
    small.rlim_cur = 120;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (row.step = 1; row.step <= 20; row.step++) {
        int err = rb_rows_add(world->rows, &row, &new, &why);
        assert_true(new);
        assert_int_equal(err != RB_OK, row.step > 3);
    }
    assert_int_equal(rb_rows_unbroken(world->rows), 20);
    json_t *rows = read_all(world, 0, 100);
    assert_int_equal(json_array_size(rows), 20);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(at(rows, i, 0), i + 1);
    json_decref(rows);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_true(add(world, 21, 1, 1));
    rb_rows_close(world->rows);
    open_rows(world);
    assert_int_equal(rb_rows_unbroken(world->rows), 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_step_once, setup, teardown),
        cmocka_unit_test_setup_teardown(later_configuration_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_that_were_replaced_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_half_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(gaps_and_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(full_disk_loses_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
