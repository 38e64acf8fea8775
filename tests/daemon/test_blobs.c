/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/blobs.h"

#include "base/arena.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

struct place {
    char folder[64];
    struct rb_blobs *blobs;
    char digest[33];
};

static void open_place(struct place *place)
{
    strcpy(place->folder, "/tmp/rubato-blobs-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    assert_int_equal(rb_blobs_open(uv_default_loop(), place->folder, &place->blobs, NULL), 0);
    assert_int_equal(rb_blobs_put(place->blobs, "weights", 7, place->digest, NULL), 0);
}

static void close_place(struct place *place)
{
    rb_blobs_close(place->blobs);
    assert_int_equal(rb_file_remove(place->folder, NULL), 0);
}

static void what_is_held_stays(void **unused)
{
    struct place place;

    (void)unused;
    open_place(&place);
    rb_blobs_hold(place.blobs, place.digest);
    rb_blobs_hold(place.blobs, place.digest);
    rb_blobs_remove(place.blobs, place.digest);
    assert_true(rb_blobs_has(place.blobs, place.digest));
    rb_blobs_release(place.blobs, place.digest);
    rb_blobs_remove(place.blobs, place.digest);
    assert_true(rb_blobs_has(place.blobs, place.digest));
    rb_blobs_release(place.blobs, place.digest);
    rb_blobs_remove(place.blobs, place.digest);
    assert_false(rb_blobs_has(place.blobs, place.digest));
    close_place(&place);
}

static void what_was_half_written_goes(void **unused)
{
    struct place place;
    char half[128], other[128];

    (void)unused;
    open_place(&place);
    rb_blobs_close(place.blobs);
    snprintf(half, sizeof half, "%s/%s.7.tmp", place.folder, place.digest);
    snprintf(other, sizeof other, "%s/notes.tmp", place.folder);
    assert_int_equal(rb_file_write_lightly(half, "wei", 3, NULL), 0);
    assert_int_equal(rb_file_write_lightly(other, "mine", 4, NULL), 0);
    assert_int_equal(rb_blobs_open(uv_default_loop(), place.folder, &place.blobs, NULL), 0);
    assert_int_not_equal(access(half, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    assert_true(rb_blobs_has(place.blobs, place.digest));
    close_place(&place);
}

static void what_is_no_digest_is_left_alone(void **unused)
{
    struct place place;

    (void)unused;
    open_place(&place);
    rb_blobs_release(place.blobs, place.digest); /* never held */
    rb_blobs_remove(place.blobs, "");
    rb_blobs_remove(place.blobs, "../somewhere");
    assert_true(rb_blobs_has(place.blobs, place.digest));
    rb_blobs_hold(place.blobs, place.digest); /* a close lets go */
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(what_was_half_written_goes),
        cmocka_unit_test(what_is_no_digest_is_left_alone),
    };

    return cmocka_run_group_tests_name("blobs", tests, NULL, NULL);
}
