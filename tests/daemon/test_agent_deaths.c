/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's rules when members are proven dead: survivors go on at once. */
#include "tests/daemon/agent_scene.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* W0 and W1 are of this node, B0 is of b; they train in configuration 1, which keeps 2 and 3. */
static void put_three(struct scene *scene, struct rb_agent_worker **ret_w0,
                      struct rb_agent_worker **ret_w1)
{
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":3}");
    scene->more = ",\"spare\":2";
    scene_put_configuration(scene, 1, "ACTIVE", "a:0=W0 a:1=W1 b:0=B0");
    scene_put_report(scene, "a:0", "W0", "TRAINING", 1);
    scene_put_report(scene, "a:1", "W1", "TRAINING", 1);
    scene_put_report(scene, "b:0", "B0", "TRAINING", 1);
    *ret_w0 = scene_add_worker(scene, "W0", 0, 1);
    *ret_w1 = scene_add_worker(scene, "W1", 1, 1);
    (*ret_w0)->configured = (*ret_w0)->ready = (*ret_w0)->went = (*ret_w0)->active = 1;
    (*ret_w1)->configured = (*ret_w1)->ready = (*ret_w1)->went = (*ret_w1)->active = 1;
    scene_expect(scene, "");
}

static void hear_of_b0(struct scene *scene)
{
    scene->deaths[scene->n_deaths++] = (struct rb_agent_death){"j", "B0"};
}

static void survivors_are_told_at_once(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(scene, &w0, &w1);
    w1->gone = true;
    scene_expect(scene, "configure:W0:2:0:go");
    w0->configured = w0->went = 2;
    scene_expect(scene, "");
    hear_of_b0(scene); /* before they have met */
    scene_expect(scene, "configure:W0:3:0:go");
    w0->configured = w0->went = 3;
    scene_expect(scene, "");
    scene->more = ",\"spare\":1,\"leftOf\":1";
    scene_put_configuration(scene, 2, "GO", "a:0=W0 b:0=B0"); /* its coordinator knows less */
    scene_expect(scene, "");
    w0->active = 3;
    scene_expect(scene, "");
}

static void told_by_another_agent(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(scene, &w0, &w1);
    hear_of_b0(scene);
    scene_expect(scene, "configure:W0:2:0:go configure:W1:2:1:go");
    w0->configured = w0->went = w1->configured = w1->went = 2;
    w0->ready = w1->ready = 2;
    scene_expect(scene, "");
    w0->went = w1->went = 1; /* a restarted rubatod does not know what it told them */
    scene_expect(scene, "go:W0:2 go:W1:2");
}

static void what_prepares_beside_is_over(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(scene, &w0, &w1);
    scene_put_configuration(scene, 4, "PREPARING", "a:0=W0 a:1=W1 b:0=B0 a:2");
    scene_expect(scene, "spawn:2:4");
    w0->configured = w0->ready = 4;
    w1->gone = true;
    scene_expect(scene, "abandon:W0:4 configure:W0:2:0:go");
    w0->abandoned = 4;
    w0->configured = w0->went = 2;
    w0->ready = 1;
    scene_expect(scene, "");
    scene_put_configuration(scene, 4, "GO", "a:0=W0 a:1=W1 b:0=B0 a:2=W2");
    scene_expect(scene, ""); /* from before the coordinator knew */
    scene_put_configuration(scene, 5, "PREPARING", "a:0=W0 b:0=B0");
    scene_expect(scene, "");
    scene->more = NULL;
    scene_put(scene, "jobs/j/configurations/00000005",
              "{\"number\":5,\"state\":\"PREPARING\",\"cause\":\"crash\",\"asked\":1,\"created\":1,"
              "\"members\":[{\"node\":\"a\",\"device\":0,\"worker\":\"W0\"}]}");
    scene_expect(scene, "configure:W0:5:0"); /* the coordinator's own solution */
}

static void what_is_not_foreseen(void **state)
{
    struct scene *scene = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(scene, &w0, &w1);
    w1->gone = true;
    scene_put_configuration(scene, 4, "GO", "a:0=W0 b:0=B0"); /* members may have flipped to it */
    w0->configured = w0->ready = w0->went = 4;
    scene_expect(scene, "");
    scene->more = ",\"spare\":1,\"went\":7";
    scene_put_configuration(scene, 4, "ABANDONED", "a:0=W0 b:0=B0");
    w0->abandoned = 4;
    scene_expect(scene, "");
    scene_put(scene, "jobs/j/configurations/00000004",
              "{\"number\":4,\"state\":\"ABANDONED\",\"cause\":"
              "\"grow\",\"asked\":1,\"created\":1}");
    scene_expect(scene, "configure:W0:2:0:go"); /* configuration 4 never had a GO */
    scene_put_job(scene, "{\"phase\":\"Running\",\"active\":1,\"newest\":4,\"saver\":\"B0\"}");
    scene_expect(scene, ""); /* the job's end was asked for */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(survivors_are_told_at_once),
        TEST(told_by_another_agent),
        TEST(what_prepares_beside_is_over),
        TEST(what_is_not_foreseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
