/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/tensorboard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static void test_sum(void **state)
{
    (void)state;
    assert_int_equal(rb_crc32c("123456789", 9), 0xe3069283); /* the check value of CRC-32C */
    assert_int_equal(rb_crc32c("", 0), 0);
}

/* The bytes that TensorBoard 2.21's own writer makes of the same two events. */
static const char theirs[] =
    "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b3531107d000000000000"
    "0061558d7e0900002040fc54d94110032a700a110a0a747261696e2f6c6f737315000020400a160a0f747261696e2f"
    "677261645f6e6f726d150000807f0a140a0d747261696e2f736b6970706564150000803f0a120a0b706572662f7374"
    "65705f73150000803e0a190a12706572662f73616d706c65735f7065725f731500008042ea445854";

static void test_bytes(void **state)
{
    json_t *columns = json_pack("[ssssssss]", "step", "time", "loss", "grad_norm", "lr", "step_ms",
                                "samples", "skipped");
    json_t *row = json_pack("[iIfsnfib]", 3, (json_int_t)1700000000500, 2.5, "inf", 250.0, 16, 1);
    struct rb_buffer out = {0};
    char hex[2 * sizeof theirs] = "";

    (void)state;
    rb_tensorboard_begin(1700000000500, &out);
    rb_tensorboard_row(columns, row, &out);
    assert_int_equal(out.size, strlen(theirs) / 2);
    for (size_t i = 0; i < out.size; i++)
        sprintf(hex + 2 * i, "%02x", (uint8_t)out.data[i]);
    assert_string_equal(hex, theirs);
    json_decref(columns);
    json_decref(row);
    rb_buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum), cmocka_unit_test(test_bytes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
