/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include "rpc.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static void put_call(struct rb_buffer *out, const char *method, const char *body)
{
    Rb__Call call = RB__CALL__INIT;

    call.method = (char *)method;
    call.body = (char *)body;
    rb_frame_put(out, RB_FRAME_CALL, &call.base);
}

static int take(struct rb_buffer *in, ProtobufCMessage **ret, struct rb_why *why)
{
    return rb_frame_take(in, RB_FRAME_CALL, &rb__call__descriptor, ret, why);
}

/* However a stream is cut, the same messages come out. */
static void test_any_cut(void **state)
{
    struct rb_buffer out = {0}, in = {0};
    ProtobufCMessage *message;
    int taken = 0;

    (void)state;
    put_call(&out, "first", "{}");
    put_call(&out, "second", NULL);
    for (size_t i = 0; i < out.size; i++) {
        rb_buffer_add(&in, out.data + i, 1);
        if (take(&in, &message, NULL))
            continue;
        assert_string_equal(((Rb__Call *)message)->method, taken ? "second" : "first");
        protobuf_c_message_free_unpacked(message, NULL);
        taken++;
    }
    assert_int_equal(taken, 2);
    assert_int_equal(in.size, 0);
    assert_int_equal(take(&in, &message, NULL), RB_EAGAIN);
    rb_buffer_done(&out);
    rb_buffer_done(&in);
}

static void test_large_payload(void **state)
{
    static char body[(1 << 20) + 1];
    struct rb_buffer out = {0};
    ProtobufCMessage *message;

    (void)state;
    memset(body, ' ', sizeof body - 1);
    put_call(&out, "submit", body);
    assert_int_equal(take(&out, &message, NULL), 0);
    assert_string_equal(((Rb__Call *)message)->body, body);
    protobuf_c_message_free_unpacked(message, NULL);
    rb_buffer_done(&out);
}

static int refused(const void *bytes, size_t size, const char *expected)
{
    struct rb_buffer in = {0};
    struct rb_why why = {0};
    ProtobufCMessage *message = NULL;
    int err;

    rb_buffer_add(&in, bytes, size);
    err = take(&in, &message, &why);
    if (expected && !strstr(why.text, expected))
        fail_msg("'%s' is not in '%s'", expected, why.text);
    assert_null(message);
    rb_buffer_done(&in);
    return err;
}

static void test_refusals(void **state)
{
    static const char huge[] = "RBF1\3\0\0\0\1\0\0\4\0\0\0\0",
                      vast[] = "RBF1\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";

    (void)state;
    assert_int_equal(refused("GET", 3, "Rubato's protocol"), RB_EINVAL);
    assert_int_equal(refused("RBF", 3, NULL), RB_EAGAIN);
    assert_int_equal(refused("RBF1\4\0\0\0\0\0\0\0\0\0\0\0", 16, "type 4"), RB_EINVAL);
    assert_int_equal(refused(huge, 16, "at most"), RB_ELIMIT);
    assert_int_equal(refused(vast, 16, "at most"), RB_ELIMIT);
    assert_int_equal(refused("RBF1\3\0\0\0\2\0\0\0\0\0\0\0\x0a", 17, NULL), RB_EAGAIN);
    assert_int_equal(refused("RBF1\3\0\0\0\2\0\0\0\0\0\0\0\x0a\x09", 18, "Call"), RB_EINVAL);
    assert_int_equal(refused("RBF1\3\0\0\0\0\0\0\0\0\0\0\0", 16, "Call"), RB_EINVAL);
}

/* Many tiny unknown fields: the memory that is asked for is bounded, so the message is refused and
 * not served. */
static void test_amplification(void **state)
{
    size_t fields = 8 << 20, size = 2 * fields;
    struct rb_buffer in = {0};
    struct rb_why why = {0};
    ProtobufCMessage *message = NULL;
    uint8_t *at;

    (void)state;
    rb_buffer_add(&in, "RBF1\3\0\0\0\0\0\0\1\0\0\0\0", 16);
    at = (uint8_t *)rb_buffer_reserve(&in, size);
    for (size_t i = 0; i < fields; i++) {
        at[2 * i] = 15 << 3;
        at[2 * i + 1] = 1;
    }
    in.size += size;
    assert_int_equal(take(&in, &message, &why), RB_EINVAL);
    assert_null(message);
    rb_buffer_done(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_large_payload),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_amplification),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
