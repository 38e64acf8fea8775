/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/json.h"
#include "daemon/facts/writes.h"
#include "facts.pb-c.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

static void assert_text(char *text, const char *expected)
{
    assert_string_equal(text, expected);
    free(text);
}

static void base64_both_ways(void **state)
{
    static const char *const pairs[][2] = {
        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe", "//4="},
        {"~?>", "fj8+"},
    };
    struct rb_arena arena = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char *bytes;
        size_t size;
        assert_string_equal(rb_base64_encode(&arena, pairs[i][0], strlen(pairs[i][0])),
                            pairs[i][1]);
        assert_int_equal(rb_base64_decode(&arena, pairs[i][1], &bytes, &size), RB_OK);
        assert_int_equal(size, strlen(pairs[i][0]));
        assert_string_equal(bytes, pairs[i][0]);
    }
    rb_arena_done(&arena);
}

static void base64_refuses(void **state)
{
    static const char *const wrong[] = {
        "Z", "Zg=", "Zg", "Z===", "====", "Zm9*", "=m9v", "Zg==Zg=="};
    struct rb_arena arena = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *bytes;
        size_t size;
        assert_int_equal(rb_base64_decode(&arena, wrong[i], &bytes, &size), RB_EINVAL);
    }
    rb_arena_done(&arena);
}

static void requests(void **state)
{
    (void)state;
    assert_text(rb_etcd_range_text("a", "b", 7, 2),
                "{\"key\":\"YQ==\",\"range_end\":\"Yg==\",\"revision\":\"7\",\"limit\":\"2\"}");
    assert_text(rb_etcd_range_text("a", NULL, 0, 0), "{\"key\":\"YQ==\"}");
    assert_text(rb_etcd_watch_text("a", "b", 9),
                "{\"create_request\":{\"key\":\"YQ==\",\"range_end\":\"Yg==\",\"start_revision\":"
                "\"9\",\"progress_notify\":true,\"fragment\":true}}");
    assert_text(rb_etcd_grant_text(5), "{\"TTL\":\"5\"}");
    assert_text(rb_etcd_lease_text(INT64_MAX), "{\"ID\":\"9223372036854775807\"}");
}

static void transactions(void **state)
{
    struct rb_writes writes = {0};
    Rb__Cordon cordon = RB__CORDON__INIT;
    (void)state;
    cordon.since = 3;
    rb_writes_put_leased(&writes, RB_ABSENT, &cordon.base, "cordons/%s", "a");
    rb_writes_delete(&writes, 4, "x");
    rb_writes_delete_all(&writes, "j/");
    rb_writes_guard(&writes, 5, "g");
    struct rb_fence fence = {.key = "leader", .created = 6};
    char *text = rb_etcd_txn_text("/", writes.at, writes.n, 77, &fence);
    json_t *txn = parse(text);
    json_t *compare = json_object_get(txn, "compare"), *success = json_object_get(txn, "success");
    assert_int_equal(json_array_size(compare), 4);
    assert_int_equal(json_array_size(success), 3);
    const char *target, *revision, *value, *lease, *end;
    assert_int_equal(json_unpack(json_array_get(compare, 0), "{ss ss}", "target", &target,
                                 "create_revision", &revision),
                     0);
    assert_string_equal(target, "CREATE");
    assert_string_equal(revision, "6");
    assert_int_equal(json_unpack(json_array_get(compare, 1), "{ss ss}", "target", &target,
                                 "mod_revision", &revision),
                     0);
    assert_string_equal(target, "MOD");
    assert_string_equal(revision, "0"); /* absent */
    assert_int_equal(json_unpack(json_array_get(success, 0), "{s{ss ss}}", "request_put", "value",
                                 &value, "lease", &lease),
                     0);
    assert_string_equal(lease, "77");
    assert_int_equal(json_unpack(json_array_get(success, 2), "{s{ss}}", "request_delete_range",
                                 "range_end", &end),
                     0);
    assert_string_equal(end, "L2ow"); /* "/j0" */
    json_decref(txn);
    free(text);
    fence.revision = 8;
    text = rb_etcd_txn_text("/", writes.at, writes.n, 77, &fence);
    txn = parse(text);
    assert_int_equal(json_unpack(json_array_get(json_object_get(txn, "compare"), 1), "{ss ss}",
                                 "target", &target, "mod_revision", &revision),
                     0);
    assert_string_equal(revision, "8");
    int value_stays = 0, lease_stays = 0;
    assert_int_equal(json_unpack(json_array_get(json_object_get(txn, "success"), 3),
                                 "{s{s:b, s:b}}", "request_put", "ignore_value", &value_stays,
                                 "ignore_lease", &lease_stays),
                     0);
    assert_true(value_stays && lease_stays);
    json_decref(txn);
    free(text);
    rb_writes_done(&writes);
}

static void answers(void **state)
{
    struct rb_arena arena = {0};
    struct rb_why why = {0};
    struct rb_etcd_range range;
    struct rb_etcd_txn txn;
    struct rb_etcd_lease lease;
    (void)state;
    json_t *json = parse("{\"header\":{\"revision\":\"12\"},\"kvs\":[{\"key\":\"YQ==\","
                         "\"value\":\"e30=\",\"create_revision\":\"3\",\"mod_revision\":9,"
                         "\"lease\":\"-4\"}],\"more\":true}");
    assert_int_equal(rb_etcd_range_read(json, &arena, &range, &why), RB_OK);
    assert_int_equal(range.revision, 12);
    assert_int_equal(range.n, 1);
    assert_true(range.more);
    assert_string_equal(range.kvs[0].key, "a");
    assert_string_equal(range.kvs[0].value, "{}");
    assert_int_equal(range.kvs[0].created, 3);
    assert_int_equal(range.kvs[0].revision, 9);
    assert_int_equal(range.kvs[0].lease, -4);
    json_decref(json);
    json = parse("{\"header\":{\"revision\":\"13\"}}"); /* false is left out */
    assert_int_equal(rb_etcd_txn_read(json, &txn, &why), RB_OK);
    assert_false(txn.succeeded);
    assert_int_equal(txn.revision, 13);
    json_decref(json);
    json = parse("{\"result\":{\"ID\":\"5\"}}"); /* a dead lease has no TTL */
    assert_int_equal(rb_etcd_lease_read(json, &lease, &why), RB_OK);
    assert_int_equal(lease.ttl_s, 0);
    json_decref(json);
    rb_arena_done(&arena);
}

static void hostile_answers(void **state)
{
    static const char *const wrong[] = {
        "{\"header\":{\"revision\":\"x\"}}",
        "{\"header\":{\"revision\":\"99999999999999999999\"}}",
        "{\"kvs\":[{}]}",
        "{\"kvs\":[{\"key\":\"AA==\"}]}", /* a zero byte */
        "{\"kvs\":[{\"key\":7}]}",
        "{\"kvs\":[{\"key\":\"YQ==\",\"value\":\"*\"}]}",
        "{\"kvs\":[null]}",
    };
    struct rb_arena arena = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct rb_why why = {0};
        struct rb_etcd_range range;
        json_t *json = parse(wrong[i]);
        assert_int_equal(rb_etcd_range_read(json, &arena, &range, &why), RB_EINVAL);
        assert_true(why.text[0]);
        json_decref(json);
    }
    rb_arena_done(&arena);
}

static void watches(void **state)
{
    struct rb_arena arena = {0};
    struct rb_why why = {0};
    struct rb_etcd_watch watch;
    (void)state;
    json_t *json = parse("{\"result\":{\"header\":{\"revision\":\"5\"},\"created\":true}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_OK);
    assert_true(watch.created && !watch.progress);
    json_decref(json);
    json = parse("{\"result\":{\"header\":{\"revision\":\"6\"},\"events\":["
                 "{\"kv\":{\"key\":\"YQ==\",\"value\":\"Yg==\",\"mod_revision\":\"6\"}},"
                 "{\"type\":\"DELETE\",\"kv\":{\"key\":\"Yw==\",\"mod_revision\":\"6\"}}]}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_OK);
    assert_int_equal(watch.n, 2);
    assert_false(watch.events[0].deleted);
    assert_true(watch.events[1].deleted);
    assert_string_equal(watch.events[1].kv.key, "c");
    json_decref(json);
    json = parse("{\"result\":{\"canceled\":true,\"compact_revision\":\"40\"}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_OK);
    assert_true(watch.canceled);
    assert_int_equal(watch.compacted, 40);
    json_decref(json);
    json = parse("{\"result\":{\"header\":{\"revision\":\"6\"}}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_OK);
    assert_true(watch.progress);
    json_decref(json);
    json = parse("{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_EUNREACHABLE);
    assert_non_null(strstr(why.text, "no leader"));
    json_decref(json);
    json = parse("{\"result\":{\"events\":[{\"type\":\"BURN\",\"kv\":{\"key\":\"YQ==\"}}]}}");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_EINVAL);
    json_decref(json);
    json = parse("[]");
    assert_int_equal(rb_etcd_watch_read(json, &arena, &watch, &why), RB_EINVAL);
    json_decref(json);
    rb_arena_done(&arena);
}

static void errors(void **state)
{
    static const struct {
        const char *text;
        int err;
    } cases[] = {
        {"{\"error\":\"x\",\"code\":5}", RB_ENOTFOUND},
        {"{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}", RB_EFULL},
        {"{\"code\":8,\"message\":\"etcdserver: too many requests\"}", RB_EUNREACHABLE},
        {"{\"code\":11}", RB_ESTALE},
        {"{\"code\":14}", RB_EUNREACHABLE},
        {"{\"code\":99}", RB_EUNREACHABLE},
        {"\"text\"", RB_EUNREACHABLE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rb_why why = {0};
        json_t *json = json_loads(cases[i].text, JSON_DECODE_ANY, NULL);
        assert_int_equal(rb_etcd_error_read(400, json, &why), cases[i].err);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_both_ways), cmocka_unit_test(base64_refuses),
        cmocka_unit_test(requests),         cmocka_unit_test(transactions),
        cmocka_unit_test(answers),          cmocka_unit_test(hostile_answers),
        cmocka_unit_test(watches),          cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
