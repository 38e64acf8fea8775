/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/coll/pair.h"

#include "base/arena.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pair_set_up(void **state)
{
    struct pair *pair = rb_alloc(sizeof *pair);

    alarm(120);
    strcpy(pair->folder, "/tmp/rubato-meet-XXXXXX");
    assert_non_null(mkdtemp(pair->folder));
    for (int i = 0; i < 2; i++) {
        char path[100];

        snprintf(path, sizeof path, "%s/%d", pair->folder, i);
        assert_int_equal(rb_listener_open(path, "127.0.0.1", &pair->listener[i], NULL), 0);
    }
    *state = pair;
    return 0;
}

int pair_tear_down(void **state)
{
    struct pair *pair = *state;

    for (int i = 0; i < 2; i++)
        rb_listener_close(pair->listener[i]);
    rb_file_remove(pair->folder, NULL);
    free(pair);
    return 0;
}

static void *open_one(void *data)
{
    struct opener *o = data;
    const char *addresses[2][2];
    struct rb_coll_member members[2] = {{"first", addresses[0], 2}, {"second", addresses[1], 2}};
    struct rb_group group = {
        .job = o->job ? o->job : "job",
        .configuration = o->configuration,
        .digest = o->digest ? o->digest : "digest",
        .rank = o->rank,
        .size = 2,
        .members = members,
    };

    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 2; i++)
            addresses[r][i] = rb_listener_address(o->pair->listener[r], i);
    if (o->worker)
        members[o->rank].worker = o->worker;
    o->err = rb_coll_open(o->pair->listener[o->rank], &group, o->timeout_ms, o->cancel, &o->coll,
                          &o->why);
    return NULL;
}

void pair_start(struct opener *o)
{
    assert_int_equal(pthread_create(&o->thread, NULL, open_one, o), 0);
}

void pair_join(struct opener *o)
{
    pthread_join(o->thread, NULL);
}

void pair_open(struct pair *pair, uint32_t configuration, struct rb_coll *ret[2])
{
    struct opener o[2];

    for (int r = 0; r < 2; r++) {
        o[r] = (struct opener){
            .pair = pair, .rank = r, .configuration = configuration, .timeout_ms = LONG_MS};
        pair_start(&o[r]);
    }
    for (int r = 0; r < 2; r++) {
        pair_join(&o[r]);
        assert_int_equal(o[r].err, 0);
        ret[r] = o[r].coll;
    }
}

void pair_close(struct rb_coll *coll[2])
{
    rb_coll_close(coll[0]);
    rb_coll_close(coll[1]);
}
