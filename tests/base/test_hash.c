/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* SplitMix64's first outputs for seed 0: its finaliser of the golden ratio and of twice that. */
static void mix_is_splitmix64s(void **state)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

    assert_true(rb_hash_mix(golden) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(rb_hash_mix(2 * golden) == UINT64_C(0x6e789e6aa1b965f4));
    assert_true(rb_hash_mix(0) == 0);
}

static void digests_are_hex(void **state)
{
    char digest[33];

    rb_hash_digest("", 0, digest);
    assert_string_equal(digest, "99aa06d3014798d86001c324468d497f");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mix_is_splitmix64s),
        cmocka_unit_test(digests_are_hex),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
