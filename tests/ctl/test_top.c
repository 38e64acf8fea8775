/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` shows of rubatod's answers, at any size of a terminal. */
#include "ctl/chart.h"
#include "ctl/history.h"
#include "ctl/top_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);

    assert_non_null(json);
    return json;
}

/* Steps [from, to) on so many devices, with losses 1/step. */
static void add_steps(struct rb_history *history, int from, int to, int devices)
{
    json_t *columns = parse("[\"step\", \"loss\", \"step_ms\", \"devices\", \"configuration\"]");
    json_t *rows = json_array();

    for (int step = from; step < to; step++)
        json_array_append_new(
            rows, json_pack("[i,f,f,i,i]", step, 1.0 / step, 10.0 + step % 100, devices, devices));
    rb_history_add(history, columns, rows);
    json_decref(columns);
    json_decref(rows);
}

static void test_history(void **state)
{
    struct rb_history history = {0};
    double median, slow;

    (void)state;
    rb_history_times(&history, &median, &slow);
    assert_true(isnan(median) && isnan(slow));
    add_steps(&history, 1, 101, 2);
    assert_int_equal(history.n, 100);
    add_steps(&history, 41, 61, 3); /* done again after a fall back */
    assert_int_equal(history.n, 60);
    assert_int_equal(history.row[40].devices, 3);
    rb_history_times(&history, &median, &slow);
    assert_true(median == 61 && slow == 70); /* of the last configuration alone */
    rb_history_fall_back(&history, 10);
    assert_int_equal(history.row[history.n - 1].step, 10);
    add_steps(&history, 11, RB_HISTORY_ROWS + 21, 2);
    assert_int_equal(history.n, RB_HISTORY_ROWS);
    assert_int_equal(history.row[0].step, 21);
    rb_history_done(&history);
}

static void check_bar(double part, bool blocks, const char *expected)
{
    struct rb_buffer bar = {0};

    rb_chart_bar(part, 4, blocks, &bar);
    assert_string_equal(bar.data, expected);
    rb_buffer_done(&bar);
}

static void test_bar(void **state)
{
    (void)state;
    check_bar(0, true, "    ");
    check_bar(NAN, true, "    ");
    check_bar(-1, true, "    ");
    check_bar(0.5, true, "██  ");
    check_bar(0.53, true, "██▏ ");
    check_bar(7, true, "████");
    check_bar(INFINITY, true, "    ");
    check_bar(0.63, false, "##: ");
}

static void test_curve(void **state)
{
    static const char *const expected[] = {
        "    4.0000 |   #    ", "           |  :#    ", "           | .##    ",
        "    1.0000 |.###!!..", "   devices  1-12---3", "            steps 7 to 14",
    };
    const double losses[] = {1, 2, 3, 4, 0, 0, 1, 1};
    const int devices[] = {1, 1, 12, 12, 12, 12, 12, 3};
    struct rb_history_row rows[8] = {{0}};
    const struct rb_history history = {rows, 8};
    struct rb_lines lines = {0};

    (void)state;
    for (int i = 0; i < 8; i++)
        rows[i] = (struct rb_history_row){
            .step = 7 + i, .devices = devices[i], .loss = losses[i] > 0 ? losses[i] : NAN};
    rows[4].loss = INFINITY;
    rb_chart_losses(&history, 80, 4, false, &lines);
    assert_int_equal(lines.n, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(lines.line[i].text, expected[i]);
    rb_lines_done(&lines);
}

/* Several rows a column; and a curve of one loss. */
static void test_curve_of_many(void **state)
{
    struct rb_history history = {0};
    struct rb_lines lines = {0};

    (void)state;
    add_steps(&history, 1, 1001, 1);
    rb_chart_losses(&history, 32, 3, false, &lines);
    assert_int_equal(lines.n, 5);
    assert_int_equal(strlen(lines.line[0].text), 32);
    rb_lines_done(&lines);
    for (size_t i = 0; i < history.n; i++)
        history.row[i].loss = 2;
    rb_chart_losses(&history, 31, 2, false, &lines);
    assert_non_null(strstr(lines.line[1].text, "|####"));
    assert_null(strstr(lines.line[0].text, "#"));
    rb_lines_done(&lines);
    rb_history_done(&history);
}

/* ---- Views -----------------------------------------------------------------------------------*/

static const struct rb_history none = {0};

static bool shows(const struct rb_lines *lines, const char *text)
{
    for (size_t i = 0; i < lines->n; i++) {
        if (strstr(lines->line[i].text, text))
            return true;
    }
    return false;
}

static const char *chosen_line(const struct rb_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        if (lines->line[i].look == RB_LOOK_CHOSEN)
            return lines->line[i].text;
    }
    return "";
}

static struct rb_lines view(const struct rb_top_seen *seen, int width, int height)
{
    struct rb_lines lines = {0};

    rb_top_view(seen, width, height, false, &lines);
    return lines;
}

#define JOBS                                                                                       \
    "[{\"name\": \"zeta\", \"id\": \"a\", \"phase\": \"Running\", \"step\": 5, \"steps\": 10,"     \
    "  \"devices\": 1, \"want\": 1},"                                                              \
    " {\"name\": \"alpha\", \"id\": \"b\", \"phase\": \"Paused\", \"step\": 900, \"steps\": 1000," \
    "  \"devices\": 0, \"want\": 4}]"

static void test_all(void **state)
{
    json_t *jobs = parse(JOBS);
    json_t *nodes = parse("[{\"name\": \"n1\", \"state\": \"ready\"},"
                          " {\"name\": \"n2\", \"state\": \"drained\"}]");
    json_t *devices = parse("[{\"node\": \"n1\", \"job\": \"zeta\"}, {\"node\": \"n1\"},"
                            " {\"node\": \"n2\", \"sick\": \"ECC\"}]");
    struct rb_top_seen seen = {.jobs = jobs, .nodes = nodes, .devices = devices, .history = &none};
    struct rb_lines lines = view(&seen, 100, 30);

    (void)state;
    assert_true(shows(&lines, "2 jobs, 2 nodes, 1 of 3 devices in use, 1 unhealthy"));
    assert_true(shows(&lines, "########            1 of 2    zeta 1"));
    assert_true(shows(&lines, "unhealthy devices"));
    assert_non_null(strstr(chosen_line(&lines), "zeta"));
    rb_lines_done(&lines);

    assert_string_equal(rb_top_move(&seen, 1), "b");
    assert_string_equal(rb_top_move(&seen, 5), "b");
    assert_string_equal(rb_top_move(&seen, -1), "a");
    seen.order = RB_TOP_BY_NAME;
    seen.chosen = "a"; /* the cursor stays on its job */
    assert_string_equal(rb_top_move(&seen, -1), "b");
    seen.order = RB_TOP_BY_STEP;
    assert_string_equal(rb_top_move(&seen, -1), "b");
    seen.order = RB_TOP_BY_DEVICES;
    assert_string_equal(rb_top_move(&seen, 1), "b");
    seen.chosen = "gone";
    assert_string_equal(rb_top_move(&seen, 0), "a");

    seen.heard = 86400000;
    lines = view(&seen, 80, 8); /* room for few lines */
    assert_true(shows(&lines, "1970-01-02 00:00:00 UTC"));
    assert_true(lines.n <= 8);
    rb_lines_done(&lines);
    json_decref(jobs);
    json_decref(nodes);
    json_decref(devices);
}

#define STATUS                                                                                     \
    "{\"name\": \"gpt\", \"phase\": \"Running\", \"step\": 50, \"steps\": 100, \"loss\": 0.5,"     \
    " \"samples\": 800, \"throughput\": 100, \"configuration\": 2,"                                \
    " \"plan\": {\"summary\": \"data parallel x2\"}, \"devices\": ["                               \
    " {\"node\": \"a\", \"device\": 0, \"kind\": \"cpu\", \"pid\": 42, \"microbatches\": 2,"       \
    "  \"microbatchMs\": 17.5},"                                                                   \
    " {\"node\": \"b\", \"device\": 1, \"kind\": \"cpu\", \"pid\": 43, \"microbatches\": 1,"       \
    "  \"microbatchMs\": 60, \"straggler\": {\"since\": 1}}]}"

static void test_job(void **state)
{
    json_t *status = parse(STATUS);
    json_t *events = parse("[{\"kind\": \"started\", \"text\": \"a\\u001b[31mb\", \"time\": 1}]");
    struct rb_history history = {0};
    struct rb_top_seen seen = {
        .job = "gpt", .status = status, .events = events, .history = &history};
    struct rb_lines lines;

    (void)state;
    add_steps(&history, 1, 51, 2);
    seen.trouble = "nobody answers";
    lines = view(&seen, 120, 40);
    assert_int_equal(lines.n, 40);
    assert_true(shows(&lines, "gpt: Running"));
    assert_true(shows(&lines, "configuration 2: data parallel x2"));
    assert_true(shows(&lines, "a step takes 36 ms, 99 of 100 at most 60"));
    assert_true(shows(&lines, "[############            ] step 50/100 | loss 0.5000"));
    assert_true(shows(&lines, "[#######################.]  2 of 17.5 ms"));
    assert_true(shows(&lines, "1 of 60 ms, a straggler"));
    assert_true(shows(&lines, "steps 1 to 50"));
    assert_true(shows(&lines, "started: a?[31mb")); /* only `top` itself controls the terminal */
    assert_true(shows(&lines, "nobody answers"));
    rb_lines_done(&lines);

    seen.help = true;
    lines = view(&seen, 80, 24);
    assert_true(shows(&lines, "ctrl-c"));
    rb_lines_done(&lines);
    rb_history_done(&history);
    json_decref(status);
    json_decref(events);
}

/* No line is wider than the terminal, and there are no more lines than fit. */
static void check_sizes(const struct rb_top_seen *seen)
{
    for (int height = 1; height < 50; height++) {
        for (int width = 1; width < 130; width += 3) {
            struct rb_lines lines = {0};

            rb_top_view(seen, width, height, true, &lines);
            assert_true(lines.n <= (size_t)height);
            for (size_t i = 0; i < lines.n; i++) {
                int n = 0;

                for (const char *at = lines.line[i].text; *at; at++)
                    n += (*at & 0xc0) != 0x80;
                assert_true(n <= width);
            }
            rb_lines_done(&lines);
        }
    }
}

/* Any number of jobs leaves room for nodes. */
static void check_nodes(const struct rb_top_seen *seen)
{
    json_t *one = json_pack("[{s:s,s:s}]", "name", "n1", "state", "ready");
    struct rb_top_seen few = *seen;
    struct rb_lines lines = view(seen, 80, 24);

    assert_true(shows(&lines, "NODE") && shows(&lines, " of 0"));
    rb_lines_done(&lines);
    few.nodes = one;
    lines = view(&few, 80, 24);
    assert_true(shows(&lines, "n1                ready"));
    assert_true(shows(&lines, "more") && shows(&lines, "q: leave"));
    rb_lines_done(&lines);
    json_decref(one);
}

static void test_sizes(void **state)
{
    json_t *status = parse(STATUS), *many = json_array(), *nodes = json_array();
    struct rb_history history = {0};
    struct rb_top_seen seen = {.job = "gpt", .status = status, .history = &history};

    (void)state;
    add_steps(&history, 1, 500, 2);
    check_sizes(&seen);
    seen.status = NULL; /* before the first answer */
    seen.history = &none;
    check_sizes(&seen);
    seen.job = NULL;
    check_sizes(&seen);
    for (int i = 0; i < 60; i++) {
        char name[16];

        snprintf(name, sizeof name, "j%d", i);
        json_array_append_new(many, json_pack("{s:s,s:s}", "name", name, "id", name));
        json_array_append_new(nodes, json_pack("{s:s}", "name", name));
    }
    seen.jobs = many;
    seen.nodes = nodes;
    seen.chosen = "j55";
    check_sizes(&seen);
    check_nodes(&seen);
    for (int height = 8; height < 60; height++) { /* the cursor must be visible */
        struct rb_lines lines = view(&seen, 80, height);

        assert_non_null(strstr(chosen_line(&lines), "j55"));
        rb_lines_done(&lines);
    }
    rb_history_done(&history);
    json_decref(status);
    json_decref(many);
    json_decref(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history), cmocka_unit_test(test_bar),
        cmocka_unit_test(test_curve),   cmocka_unit_test(test_curve_of_many),
        cmocka_unit_test(test_all),     cmocka_unit_test(test_job),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
