/* SPDX-License-Identifier: Apache-2.0 */
/* What a path below /api asks for, and what it may not ask for. */
#include "daemon/http/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4 };

/* "job=gpt&limit=5": nothing is unescaped. */
static int read_query(const char *path, const char *text, const char **ret_method,
                      json_t **ret_body)
{
    struct rb_query_argument argument[MOST] = {{0}};
    struct rb_why why = {{0}};
    char *copy = strdup(text), *rest = copy, *word;
    size_t n = 0;
    int err;

    while (*text && (word = strsep(&rest, "&"))) {
        argument[n].name = strsep(&word, "=");
        argument[n++].value = word;
    }
    err = rb_query_read(path, argument, n, ret_method, ret_body, &why);
    assert_int_equal(!err, !why.text[0]);
    free(copy);
    return err;
}

static void assert_asks(const char *path, const char *text, const char *method, const char *body)
{
    json_t *wanted = json_loads(body, 0, NULL), *got = NULL;
    const char *asked = NULL;

    assert_int_equal(read_query(path, text, &asked, &got), RB_OK);
    assert_string_equal(asked, method);
    if (!json_equal(got, wanted))
        fail_msg("%s?%s: %s, not %s", path, text, json_dumps(got, 0), body);
    json_decref(wanted);
    json_decref(got);
}

static void assert_refused(const char *path, const char *text, int err)
{
    const char *method = "untouched";
    json_t *body = NULL;

    assert_int_equal(read_query(path, text, &method, &body), err);
    assert_string_equal(method, "untouched");
    assert_null(body);
}

static void each_path_asks_for_its_method(void **state)
{
    (void)state;
    assert_asks("/api/jobs", "", "get", "{\"kind\":\"jobs\"}");
    assert_asks("/api/nodes", "", "get", "{\"kind\":\"nodes\"}");
    assert_asks("/api/devices", "", "get", "{\"kind\":\"devices\"}");
    assert_asks("/api/configurations", "job=gpt", "get",
                "{\"kind\":\"configurations\",\"job\":\"gpt\"}");
    assert_asks("/api/checkpoints", "job=gpt", "get", "{\"kind\":\"checkpoints\",\"job\":\"gpt\"}");
    assert_asks("/api/status", "job=<img src=x>", "status", "{\"job\":\"<img src=x>\"}");
    assert_asks("/api/events", "", "events", "{}");
    assert_asks("/api/events", "job=gpt&after=17-a", "events",
                "{\"job\":\"gpt\",\"after\":\"17-a\"}");
    assert_asks("/api/metrics", "job=gpt&after=007&limit=5", "metrics",
                "{\"job\":\"gpt\",\"after\":7,\"limit\":5}");
}

static void rows_are_asked_for_in_pages(void **state)
{
    (void)state;
    assert_asks("/api/metrics", "job=gpt", "metrics", "{\"job\":\"gpt\",\"limit\":4096}");
    assert_asks("/api/metrics", "job=gpt&limit=999999999999999", "metrics",
                "{\"job\":\"gpt\",\"limit\":4096}");
    assert_asks("/api/metrics", "limit=4096&job=gpt&after=999999999999999", "metrics",
                "{\"job\":\"gpt\",\"limit\":4096,\"after\":999999999999999}");
    assert_refused("/api/metrics", "job=gpt&limit=0", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&limit=1000000000000000", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&limit=-1", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&after= 1", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&after=1e3", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&after=", RB_EINVAL);
}

static void what_is_no_question_is_refused(void **state)
{
    char text[300] = "job=";

    (void)state;
    assert_refused("/api/status", "", RB_EINVAL);
    assert_refused("/api/metrics", "after=1", RB_EINVAL);
    assert_refused("/api/configurations", "", RB_EINVAL);
    assert_refused("/api/checkpoints", "name=gpt", RB_EINVAL);
    assert_refused("/api/status", "job", RB_EINVAL);
    assert_refused("/api/status", "job=", RB_EINVAL);
    assert_refused("/api/status", "job=a&job=b", RB_EINVAL);
    assert_refused("/api/status", "job=a&after=1", RB_EINVAL);
    assert_refused("/api/status", "job=\xff\xfe", RB_EINVAL);
    assert_refused("/api/jobs", "job=gpt", RB_EINVAL);
    assert_refused("/api/jobs", "kind=nodes", RB_EINVAL);
    assert_refused("/api/events", "limit=1", RB_EINVAL);
    assert_refused("/api/metrics", "job=gpt&lost=1", RB_EINVAL);
    memset(text + 4, 'a', 257);
    assert_refused("/api/status", text, RB_EINVAL);
}

/* Every method of docs/rpc.md that a page may not call. */
static void nothing_else_can_be_asked_for(void **state)
{
    static const char *const others[] = {
        "",         "/",          "version",   "submit",    "get",          "describe",
        "resize",   "receipt",    "node",      "pause",     "resume",       "cancel",
        "delete",   "checkpoint", "export",    "logs",      "cluster",      "node-metrics",
        "blob",     "node-save",  "node-file", "node-logs", "member-dead",  "burst",
        "status/x", "/status",    "STATUS",    "jobs/",     "../api/status"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < RB_COUNT(others); i++) {
        snprintf(path, sizeof path, "/api/%s", others[i]);
        assert_refused(path, "job=gpt", RB_ENOTFOUND);
    }
    assert_refused("/api", "", RB_ENOTFOUND);
    assert_refused("", "", RB_ENOTFOUND);
}

static void errors_have_a_status(void **state)
{
    (void)state;
    assert_int_equal(rb_query_status(RB_OK), 200);
    assert_int_equal(rb_query_status(RB_EINVAL), 400);
    assert_int_equal(rb_query_status(RB_ENOTFOUND), 404);
    assert_int_equal(rb_query_status(RB_EUNREACHABLE), 503);
    assert_int_equal(rb_query_status(RB_EAGAIN), 503);
    assert_int_equal(rb_query_status(RB_ECANCELED), 503);
    assert_int_equal(rb_query_status(RB_ETIMEOUT), 504);
    assert_int_equal(rb_query_status(RB_EINTERNAL), 500);
    assert_int_equal(rb_query_status(RB_EIO), 500);
    assert_int_equal(rb_query_status(-1000), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_path_asks_for_its_method),
        cmocka_unit_test(rows_are_asked_for_in_pages),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(nothing_else_can_be_asked_for),
        cmocka_unit_test(errors_have_a_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
