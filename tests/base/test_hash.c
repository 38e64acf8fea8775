/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

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

/* Also for files that are longer than one read. */
static void files_have_the_digest_of_their_bytes(void **state)
{
    const size_t most = (3 << 20) + 17;
    char *bytes = malloc(most), digest[33], of_file[33];
    uint64_t size;

    for (size_t i = 0; i < most; i++)
        bytes[i] = (char)(i * 7 + i / 999);
    for (size_t n = most; n > 1; n /= 1000) {
        char path[] = "/tmp/rubato-hash.XXXXXX";
        int fd = mkstemp(path);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, bytes, n), n);
        close(fd);
        rb_hash_digest(bytes, n, digest);
        assert_int_equal(rb_hash_file(path, of_file, &size, NULL), 0);
        assert_int_equal(size, n);
        assert_string_equal(of_file, digest);
        unlink(path);
        assert_int_equal(rb_hash_file(path, of_file, &size, NULL), RB_ENOTFOUND);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mix_is_splitmix64s),
        cmocka_unit_test(digests_are_hex),
        cmocka_unit_test(files_have_the_digest_of_their_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
