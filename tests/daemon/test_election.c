/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/election.h"
#include "daemon/facts/mirror.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static const char leader_text[] = "{\"node\":\"a\",\"address\":\"unix:/a\"}";

struct world {
    struct rb_mirror *mirror;
    struct rb_election election;
    struct rb_election_view view;
};

static enum rb_election_action step(struct world *world)
{
    world->view.facts = rb_mirror_facts(world->mirror);
    return rb_election_step(&world->election, &world->view);
}

/* A candidate's lease holds the key, made at revision `created`. */
static void put_leader(struct world *world, int64_t lease, int64_t created)
{
    struct rb_why why;
    assert_int_equal(rb_mirror_put(world->mirror, "leader", leader_text, strlen(leader_text),
                                   created, created, lease, &why),
                     RB_OK);
}

static void put_node(struct world *world, const char *name, bool leaving)
{
    struct rb_why why;
    char key[32], text[128];
    snprintf(key, sizeof key, "nodes/%s", name);
    snprintf(text, sizeof text,
             "{\"name\":\"%s\",\"address\":\"unix:/\",\"numericClass\":\"c\",\"started\":1,"
             "\"leaving\":%s}",
             name, leaving ? "true" : "false");
    assert_int_equal(rb_mirror_put(world->mirror, key, text, strlen(text), 2, 2, 10, &why), RB_OK);
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.mirror = rb_mirror_new(), .view = {.lease = 10, .now_ms = 1000}};
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    rb_mirror_free(((struct world *)*state)->mirror);
    return 0;
}

static void wins(void **state)
{
    struct world *world = *state;
    assert_int_equal(step(world), RB_ELECTION_CAMPAIGN);
    assert_int_equal(step(world), RB_ELECTION_NOTHING); /* one campaign at a time */
    rb_election_campaigned(&world->election, RB_OK, &world->view);
    put_leader(world, 10, 7);
    assert_int_equal(step(world), RB_ELECTION_LEAD);
    assert_int_equal(world->election.fence, 7);
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
}

static void loses_and_waits(void **state)
{
    struct world *world = *state;
    assert_int_equal(step(world), RB_ELECTION_CAMPAIGN);
    rb_election_campaigned(&world->election, RB_ESTALE, &world->view);
    assert_int_equal(step(world), RB_ELECTION_NOTHING); /* not at once */
    put_leader(world, 99, 7);
    world->view.now_ms += 1000;
    assert_int_equal(step(world), RB_ELECTION_NOTHING); /* another node has it */
    rb_mirror_delete(world->mirror, "leader");
    assert_int_equal(step(world), RB_ELECTION_CAMPAIGN);
}

static void key_shows_before_the_answer(void **state)
{
    struct world *world = *state;
    assert_int_equal(step(world), RB_ELECTION_CAMPAIGN);
    put_leader(world, 10, 7);
    assert_int_equal(step(world), RB_ELECTION_LEAD);
    rb_election_campaigned(&world->election, RB_ETIMEOUT, &world->view); /* it was made after all */
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
    assert_int_equal(world->election.state, RB_ELECTION_LEADING);
}

static void steps_down(void **state)
{
    struct world *world = *state;
    put_leader(world, 10, 7);
    assert_int_equal(step(world), RB_ELECTION_LEAD);
    world->view.lease = 0; /* lost */
    assert_int_equal(step(world), RB_ELECTION_FOLLOW);
    assert_int_equal(world->election.fence, 0);
    world->view.lease = 10;
    assert_int_equal(step(world), RB_ELECTION_LEAD); /* the key outlived it: the same reign */
    put_leader(world, 10, 9); /* gone and won again meanwhile: another reign */
    assert_int_equal(step(world), RB_ELECTION_FOLLOW);
    assert_int_equal(step(world), RB_ELECTION_LEAD);
    assert_int_equal(world->election.fence, 9);
    put_leader(world, 99, 11);
    assert_int_equal(step(world), RB_ELECTION_FOLLOW);
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
}

static void without_lease_or_leaving(void **state)
{
    struct world *world = *state;
    world->view.lease = 0;
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
    put_leader(world, 0, 3); /* a key without a lease is nobody's */
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
    rb_mirror_delete(world->mirror, "leader");
    world->view.lease = 10;
    world->view.leaving = true;
    put_node(world, "a", true);
    put_node(world, "b", false);
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
    put_leader(world, 10, 8); /* won before it left: it leads on */
    assert_int_equal(step(world), RB_ELECTION_LEAD);
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
}

/* The coordinator does not end before others that stop, too: it has to park what they have. */
static void all_leave(void **state)
{
    struct world *world = *state;
    world->view.leaving = true;
    put_node(world, "a", true);
    put_node(world, "b", true);
    put_leader(world, 99, 7);
    assert_int_equal(step(world), RB_ELECTION_NOTHING);
    rb_mirror_delete(world->mirror, "leader");
    assert_int_equal(step(world), RB_ELECTION_CAMPAIGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wins, setup, teardown),
        cmocka_unit_test_setup_teardown(loses_and_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(key_shows_before_the_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_down, setup, teardown),
        cmocka_unit_test_setup_teardown(without_lease_or_leaving, setup, teardown),
        cmocka_unit_test_setup_teardown(all_leave, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
