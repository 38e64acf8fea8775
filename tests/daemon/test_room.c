/* SPDX-License-Identifier: Apache-2.0 */
/* A full disk is named as such: which disk, how much is free, what to do. */
#include "daemon/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void what_is_full(void **unused)
{
    static const struct {
        struct rb_room room;
        const char *says; /* NULL: there is room */
    } cases[] = {
        {{100 << 20, 64 << 20, 0, 0}, NULL},
        {{100 << 20, 64 << 20, 9, 1}, NULL},
        {{100 << 20, (64 << 20) - 1, 9, 1},
         "the disk of /s/etcd is full: 64.0 of its 100 MiB are free, and 64 are needed: make room "
         "there, or name another --state-dir"},
        {{20 << 20, 0, 0, 0}, "full: 0.0 of its 20 MiB"},
        {{100 << 20, 64 << 20, 9, 0}, "/s/etcd takes no further file: remove some of its 9"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct rb_why why = {{0}};
        int err = rb_room_judge("/s/etcd", &cases[i].room, RB_ROOM_ETCD, &why);

        assert_int_equal(err, cases[i].says ? RB_EFULL : 0);
        if (cases[i].says && !strstr(why.text, cases[i].says))
            fail_msg("'%s' is not in: %s", cases[i].says, why.text);
    }
}

static void folders_that_are_not_there(void **unused)
{
    static const char *const folders[] = {"/", "/none/such/folder", "relative"};
    struct rb_why why;

    (void)unused;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(rb_room_check(folders[i], 0, NULL), 0);
    assert_int_equal(rb_room_check("/none/such", UINT64_C(1) << 62, &why), RB_EFULL);
    assert_non_null(strstr(why.text, "/none/such"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_full),
        cmocka_unit_test(folders_that_are_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
