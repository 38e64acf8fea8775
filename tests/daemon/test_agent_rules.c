/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's rules for configurations: which processes are spawned, prepared, told to go,
 * dismissed. */
#include "tests/daemon/agent_scene.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void nothing_to_do(void **state)
{
    scene_expect(*state, "");
}

static void start_to_training(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "PREPARING", "a:0* b:0* a:1*");
    scene_expect(scene, "spawn:0:1 spawn:1:1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 1);
    scene->no_blobs = true;
    scene_expect(scene, "fetch:b:MODEL fetch:b:WEIGHTS"); /* each once */
    scene->no_blobs = false;
    scene_put_report(scene, "a:0", "W0", "IDLE", 1);
    scene_put_report(scene, "a:1", "W1", "IDLE", 1);
    scene_expect(scene, ""); /* b's blob is not there yet */
    scene_put_report(scene, "b:0", "X", "IDLE", 7);
    scene_expect(scene, ""); /* ... and that one is for another configuration */
    scene_put_report(scene, "b:0", "B0", "IDLE", 1);
    scene_expect(scene, "configure:W0:1:0 configure:W1:1:2");
    w0->configured = w1->configured = 1;
    w0->ready = 1;
    scene_expect(scene, "");
    w1->ready = 1;
    scene_put_configuration(scene, 1, "GO", "a:0=W0* b:0=B0* a:1=W1*");
    scene_expect(scene, "go:W0:1 go:W1:1");
    w0->went = w1->went = 1;
    w0->active = w1->active = 1;
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0* b:0=B0* a:1=W1*");
    scene_expect(scene, "");
}

static void grow_and_shrink(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"next\":2,\"newest\":2}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 a:1=W1");
    scene_put_configuration(scene, 2, "PREPARING", "a:1=W1 a:2");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 1);
    w0->configured = w0->ready = w0->went = w0->active = 1;
    w1->configured = w1->ready = w1->went = w1->active = 1;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "TRAINING", 1);
    scene_expect(scene, "spawn:2:2");
    struct rb_agent_worker *w2 = scene_add_worker(scene, "W2", 2, 2);
    scene_put_report(scene, "a:2", "W2", "IDLE", 2);
    scene_expect(scene, "configure:W1:2:0 configure:W2:2:1");
    w1->configured = w2->configured = w1->ready = w2->ready = 2;
    scene_put_configuration(scene, 2, "GO", "a:1=W1 a:2=W2");
    scene_expect(scene, "go:W1:2 go:W2:2 go:W0:2"); /* the leaver too */
    w0->went = w1->went = w2->went = 2;
    w1->active = w2->active = 2;
    scene_expect(scene, ""); /* the leaver lingers */
    scene_put_configuration(scene, 1, "RETIRED", "a:0=W0 a:1=W1");
    scene_put_configuration(scene, 2, "ACTIVE", "a:1=W1 a:2=W2");
    scene_expect(scene, "leave:W0");
    w0->left = scene->now;
    scene_expect(scene, "");
    assert_int_not_equal(scene->wake, UINT64_MAX);
    scene->now = scene->wake;
    scene_expect(scene, "kill:W0");
    w0->gone = true;
    scene_expect(scene, "forget:W0");
}

static void abandoned(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":3}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0");
    scene_put_configuration(scene, 2, "ABANDONED", "a:0=W0 a:1");
    scene_put_configuration(scene, 3, "PREPARING", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 2);
    w0->ready = w0->went = w0->active = 1;
    w0->configured = 2;
    w1->configured = w1->ready = 2;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "IDLE", 2);
    scene_expect(scene, "abandon:W0:2 abandon:W1:2 configure:W0:3:0 configure:W1:3:1");
    w0->abandoned = w1->abandoned = 2;
    w0->configured = w1->configured = 3;
    scene_expect(scene, "");
    scene_put_configuration(scene, 3, "ABANDONED", "a:0=W0 a:1=W1");
    scene_expect(scene, "abandon:W0:3 abandon:W1:3 leave:W1");
}

/* Given up after its GO: a process that trains there is kept until facts know, one that does not
 * train is not kept. */
static void given_up_and_flipped_to(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":2}");
    scene->more = ",\"went\":2";
    scene_put_configuration(scene, 1, "ACTIVE", "b:0=X");
    scene_put_configuration(scene, 2, "GO", "b:0=X a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 2);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 2);
    w0->configured = w0->ready = w0->went = w0->active = 2;
    w1->configured = w1->ready = w1->went = 2;
    scene_put_configuration(scene, 2, "ABANDONED", "b:0=X a:0=W0 a:1=W1");
    scene_expect(scene, "abandon:W1:2 leave:W1");
    w1->abandoned = 2;
    w1->left = scene->now;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":3,\"newest\":3}");
    scene_put_configuration(scene, 1, "RETIRED", "b:0=X");
    scene_put_configuration(scene, 3, "ACTIVE", "b:0=X");
    scene_expect(scene, "leave:W0");
}

static void unready_is_not_told_again(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"newest\":1}");
    scene_put_configuration(scene, 1, "PREPARING", "a:0");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    scene_put_report(scene, "a:0", "W0", "IDLE", 1);
    w0->unready = 1;
    scene_expect(scene, "");
}

static void a_fresh_one_waits_for_the_device(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"next\":5,\"newest\":5}");
    scene_put_configuration(scene, 4, "RETIRED", "a:0=OLD");
    scene_put_configuration(scene, 5, "PREPARING", "a:0");
    struct rb_agent_worker *old = scene_add_worker(scene, "OLD", 0, 4);
    scene_expect(scene, "leave:OLD");
    old->left = scene->now;
    scene_expect(scene, "");
    old->gone = true;
    scene_expect(scene,
                 "spawn:0:5"); /* which takes the place of OLD: to forget it is not another's */
}

/* Two configurations at once may want a device: one gets it. */
static void a_device_has_one_process(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"next\":2,\"newest\":2}");
    scene_put_configuration(scene, 1, "PREPARING", "a:0 a:1");
    scene_put_configuration(scene, 2, "PREPARING", "a:0 a:2");
    scene_expect(scene, "spawn:0:1 spawn:1:1 spawn:2:2");
}

static void one_that_failed_is_not_spawned_again(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "PREPARING", "a:0");
    scene_put_report(scene, "a:0", "W0", "FAILED", 1);
    scene_expect(scene, "");
    scene_put_configuration(scene, 1, "ABANDONED", "a:0");
    scene_expect(scene, "delete:W0");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_to_do),
        TEST(start_to_training),
        TEST(grow_and_shrink),
        TEST(abandoned),
        TEST(given_up_and_flipped_to),
        TEST(unready_is_not_told_again),
        TEST(a_fresh_one_waits_for_the_device),
        TEST(a_device_has_one_process),
        TEST(one_that_failed_is_not_spawned_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
