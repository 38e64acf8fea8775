/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's rules for processes and their reports: which processes are kept, killed,
 * forgotten. */
#include "tests/daemon/agent_scene.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static void put_node(struct scene *scene, const char *name)
{
    char key[16], value[80];

    snprintf(key, sizeof key, "nodes/%s", name);
    snprintf(value, sizeof value,
             "{\"name\":\"%s\",\"address\":\"x\",\"numericClass\":\"cpu\",\"started\":1}", name);
    scene_put(scene, key, value);
}

static void a_dead_one_is_kept_while_spoken_of(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 b:0=B0");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    w0->active = 1;
    w0->gone = true;
    scene_put_report(scene, "a:0", "W0", "DEAD", 1);
    scene_expect(scene, "");
    /* A fresh process on its device, while the old configuration still counts. */
    scene_put_configuration(scene, 2, "PREPARING", "a:0 b:0=B0");
    scene_expect(scene, "spawn:0:2");
    scene_put_configuration(scene, 1, "RETIRED", "a:0=W0 b:0=B0");
    scene->n = 0;
    scene_add_worker(scene, "W2", 0, 2);
    scene_put_report(scene, "a:0", "W2", "STARTING", 2);
    scene_put_report(scene, "b:0", "B0", "FROZEN", 1);
    scene_expect(scene, "configure:W2:2:0");
}

static void saver(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1,\"saver\":\"W0\"}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 1);
    w0->active = w1->active = 1;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "FROZEN", 1);
    scene_expect(scene, "save-and-leave:W0");
    w0->left = scene->now;
    w0->saving = true;
    scene->now += 60000;
    scene_expect(scene, ""); /* saving may take its time */
    w0->gone = true;
    scene_expect(scene, ""); /* its report must be read */
    scene_put_job(scene, "{\"phase\":\"Paused\",\"newest\":1}");
    scene_put_configuration(scene, 1, "RETIRED", "a:0=W0 a:1=W1");
    scene_expect(scene, "forget:W0 leave:W1");
}

/* A process could not save, and the job goes on with it, no matter who told it to save. */
static void a_saver_that_stays(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 1);
    w0->active = w1->active = w0->configured = w1->configured = 1;
    w0->left = scene->now;
    w0->saving = true;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "FROZEN", 1);
    scene->now += 60000;
    scene_expect(scene, "stay:W0");
    w0->left = 0;
    w0->saving = false;
    scene_expect(scene, "");
    scene_put_configuration(scene, 3, "PREPARING", "a:0=W0 a:1=W1");
    scene_expect(scene, "configure:W0:3:0 configure:W1:3:1");
    w0->saving = true; /* its job has ended: it gets no further order, and is killed in the end */
    w0->left = scene->now;
    scene_put_job(scene, "{\"phase\":\"Cancelled\",\"newest\":3}");
    scene_put_configuration(scene, 1, "RETIRED", "a:0=W0 a:1=W1");
    scene_put_configuration(scene, 3, "ABANDONED", "a:0=W0 a:1=W1");
    scene_expect(scene, "leave:W1");
    scene->now = scene->wake;
    scene_expect(scene, "kill:W0 leave:W1");
}

static void reports_without_processes(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 b:0=B0");
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W9", "IDLE", 1);
    scene_put_report(scene, "b:0", "B0", "TRAINING", 1);
    scene_put_report(scene, "ab:0", "C0", "TRAINING", 1); /* another node's */
    scene_expect(scene, "dead:W0 delete:W9");
    scene_put_report(scene, "a:0", "W0", "DEAD", 1);
    rb_mirror_delete(scene->mirror, "jobs/j/workers/a:1");
    scene_expect(scene, "");
}

static void a_deleted_job(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    scene_expect(scene, "leave:W0");
    w0->connected = false; /* it has not even said Hello */
    scene_expect(scene, "kill:W0");
    w0->gone = true;
    scene_expect(scene, "forget:W0");
}

static void one_that_does_not_start(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "PREPARING", "a:0");
    scene_add_worker(scene, "W0", 0, 1)->connected = false;
    scene_put_report(scene, "a:0", "W0", "STARTING", 1);
    scene_expect(scene, "");
    scene->now = scene->wake;
    scene_expect(scene, "kill:W0");
}

/* Its peers wait for it: only its end lets them go on. */
static void one_that_does_nothing(void **state)
{
    struct scene *scene = *state;
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = scene_add_worker(scene, "W0", 0, 1);
    struct rb_agent_worker *w1 = scene_add_worker(scene, "W1", 1, 1);
    w0->active = w1->active = w0->configured = w1->configured = 1;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "TRAINING", 1);
    w0->unanswered = 9;
    scene_expect(scene, "");
    w0->unanswered = 10;
    scene_expect(scene, "kill:W0");
    w0->connected = false; /* a process that cannot hear is not asked */
    w0->waited = scene->now;
    scene_expect(scene, "");
    w1->stopped = "it was stopped";
    scene_expect(scene, "kill:W1");
    w1->left = 1;
    scene_expect(scene, "kill:W1");
    w1->gone = true;
    scene_expect(scene, "");
}

/* A node that had to be left by now: a process that is still there is killed, if enough others have
 * the state. */
static void one_that_stays_too_long(void **state)
{
    struct scene *scene = *state;
    put_node(scene, "a");
    put_node(scene, "b");
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 b:0=W1");
    struct rb_agent_worker *worker = scene_add_worker(scene, "W0", 0, 1);
    worker->active = worker->configured = 1;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "b:0", "W1", "TRAINING", 1);
    scene_put(scene, "cordons/a", "{\"since\":1,\"drain\":true,\"deadline\":5000}");
    scene->unix_ms = 4000;
    scene_expect(scene, "");
    assert_int_equal(scene->wake, scene->now + 1000);
    scene->unix_ms = 5000;
    scene_expect(scene, "kill:W0");
    scene_put_report(scene, "b:0", "W1", "DEAD", 1); /* then W0 is the only one */
    scene_expect(scene, "");
    scene_put_report(scene, "b:0", "W1", "TRAINING", 1);
    scene_put(scene, "cordons/b", "{\"since\":1,\"drain\":true}"); /* b must be left, too */
    scene_expect(scene, "");
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1,\"saver\":\"W0\"}");
    scene_expect(scene, "save-and-leave:W0");
}

/* W0 on a trains with others, and none of their nodes has a lease. */
static struct rb_agent_worker *train_with_absent(struct scene *scene, const char *members)
{
    put_node(scene, "a");
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    scene_put_configuration(scene, 1, "ACTIVE", members);
    struct rb_agent_worker *worker = scene_add_worker(scene, "W0", 0, 1);
    worker->active = worker->configured = 1;
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    return worker;
}

/* A node that is stopped whole ends no link: a process that waits for it has to be told. */
static void one_that_waits_in_vain(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *worker = train_with_absent(scene, "a:0=W0 b:0=W1");
    scene_put_report(scene, "b:0", "W1", "TRAINING", 1);
    worker->stepped = scene->now - 2000;
    worker->step_ms = 100;
    scene_expect(scene, ""); /* b has lost its lease, and W0 trains on */
    assert_int_equal(scene->wake, scene->now + 1000);
    scene->now += 1000;
    scene_expect(scene, "ask:b"); /* or has it? */
    scene->silent = "b";
    scene_expect(scene, "freeze:W0:b");
    worker->step_ms = 2000; /* long steps are late later */
    scene_expect(scene, "");
    assert_int_equal(scene->wake, scene->now + 5000);
    scene->now += 5000;
    scene_expect(scene, "freeze:W0:b");
    worker->stepped = 0; /* W0 has frozen */
    scene_expect(scene, "");
    worker->stepped = scene->now - 60000;
    put_node(scene, "b"); /* a long step */
    scene_expect(scene, "");
    scene_put_configuration(scene, 2, "PREPARING", "a:0=W0 b:0=W1 c:0"); /* nobody waits for c */
    worker->configured = 2;
    scene_expect(scene, "");
    rb_mirror_delete(scene->mirror, "nodes/a"); /* nor for its own node */
    scene_expect(scene, "");
}

/* Nor does a process that is to save wait for the vote that it hears out first. */
static void a_saver_that_waits_in_vain(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *worker = train_with_absent(scene, "a:0=W0 b:0=W1");
    scene_put_report(scene, "b:0", "W1", "TRAINING", 1);
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":1,\"saver\":\"W0\"}");
    worker->stepped = scene->now - 3000;
    scene_expect(scene, "save-and-leave:W0");
    worker->left = scene->now;
    worker->saving = true;
    scene_expect(scene, "ask:b");
    scene->silent = "b";
    scene_expect(scene, "freeze:W0:b");
    worker->stepped = 0; /* it saves */
    scene->now += 60000;
    scene_expect(scene, "");
}

/* W0 has flipped with a newcomer that was stopped then, and would report it after the first step
 * there.  The configuration is given up meanwhile; W0 waits in it all the same. */
static void one_that_waits_where_it_has_not_said(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *worker = train_with_absent(scene, "a:0=W0");
    scene_put_configuration(scene, 2, "ABANDONED", "a:0=W0 b:0=W1");
    worker->configured = worker->went = worker->abandoned = 2;
    worker->stepped = scene->now - 3000;
    scene_expect(scene, ""); /* it has had no GO yet */
    scene->more = ",\"went\":5";
    scene_put_configuration(scene, 2, "ABANDONED", "a:0=W0 b:0=W1");
    scene_expect(scene, "ask:b");
    scene->silent = "b";
    scene_expect(scene, "freeze:W0:b");
}

/* Of two nodes that have lost their leases one trains on, and answers: that says nothing of the
 * other. */
static void one_of_two_that_are_away(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *worker = train_with_absent(scene, "a:0=W0 b:0=W1 c:0=W2");
    worker->stepped = scene->now - 3000;
    scene_expect(scene, "ask:b ask:c");
    scene->silent = "c";
    scene_expect(scene, "freeze:W0:c");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_dead_one_is_kept_while_spoken_of),
        TEST(saver),
        TEST(a_saver_that_stays),
        TEST(reports_without_processes),
        TEST(a_deleted_job),
        TEST(one_that_does_not_start),
        TEST(one_that_does_nothing),
        TEST(one_that_waits_in_vain),
        TEST(a_saver_that_waits_in_vain),
        TEST(one_that_waits_where_it_has_not_said),
        TEST(one_of_two_that_are_away),
        TEST(one_that_stays_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
