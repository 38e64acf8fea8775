/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of node "a": facts are written as JSON, processes are a table, what comes out is
 * compared as text, one word an action: "spawn:0:2" is device 0 for configuration 2. */
#include "daemon/agent/rules.h"
#include "base/buffer.h"
#include "daemon/facts/mirror.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8 };

struct world {
    struct rb_mirror *mirror;
    int64_t revision;
    struct rb_agent_worker workers[WORKERS];
    size_t n;
    uint64_t now, unix_ms;
    bool no_blobs;
    uint64_t wake;
    const char *more; /* of configurations that are put: ",\"spare\":2" */
    struct rb_agent_death deaths[2];
    size_t n_deaths;
};

static void put(struct world *world, const char *key, const char *value)
{
    struct rb_why why = {0};
    world->revision++;
    if (rb_mirror_put(world->mirror, key, value, strlen(value), world->revision, world->revision, 0,
                      &why))
        fail_msg("%s", why.text);
}

static void put_job(struct world *world, const char *state)
{
    put(world, "jobs/j/job",
        "{\"name\":\"gpt\",\"id\":\"j\",\"created\":1,\"spec\":{},\"model\":\"MODEL\",\"weights\":"
        "\"WEIGHTS\",\"node\":\"b\",\"steps\":9,\"microbatches\":4,\"numericClass\":\"cpu\"}");
    put(world, "jobs/j/state", state);
}

/* members: "a:0" a fresh one, "a:0=W" the process W, "*" behind it: it restores. */
static void put_configuration(struct world *world, unsigned number, const char *state,
                              const char *members)
{
    struct rb_buffer text = {0};
    char key[64];
    rb_buffer_format(&text,
                     "{\"number\":%u,\"state\":\"%s\",\"cause\":\"start\",\"asked\":1,"
                     "\"created\":1,\"members\":[",
                     number, state);
    while (*members) {
        char node[8], worker[16] = "";
        unsigned device;
        int used = 0;
        sscanf(members, "%7[a-z]:%u%n", node, &device, &used);
        members += used;
        if (*members == '=') {
            sscanf(members, "=%15[A-Za-z0-9]%n", worker, &used);
            members += used;
        }
        rb_buffer_format(&text, "{\"node\":\"%s\",\"device\":%u", node, device);
        if (*worker)
            rb_buffer_format(&text, ",\"worker\":\"%s\"", worker);
        if (*members == '*')
            rb_buffer_text(&text, ",\"restores\":true");
        members += strspn(members, "* ");
        rb_buffer_format(&text, "}%s", *members ? "," : "");
    }
    rb_buffer_format(&text, "]%s}", world->more ? world->more : "");
    snprintf(key, sizeof(key), "jobs/j/configurations/%08u", number);
    put(world, key, text.data);
    rb_buffer_done(&text);
}

static void put_report(struct world *world, const char *place, const char *worker,
                       const char *state, unsigned spawned_for)
{
    char key[64], value[256];
    snprintf(key, sizeof(key), "jobs/j/workers/%s", place);
    snprintf(value, sizeof(value),
             "{\"worker\":\"%s\",\"state\":\"%s\",\"addresses\":[\"tcp:x:1\"],\"spawnedFor\":%u}",
             worker, state, spawned_for);
    put(world, key, value);
}

static struct rb_agent_worker *add_worker(struct world *world, const char *name, uint32_t device,
                                          uint32_t spawned_for)
{
    struct rb_agent_worker *worker = &world->workers[world->n++];
    *worker = (struct rb_agent_worker){.job = "j",
                                       .worker = name,
                                       .device = device,
                                       .spawned_for = spawned_for,
                                       .connected = true,
                                       .waited = world->now};
    return worker;
}

static bool has_blob(const char *digest, void *context)
{
    const struct world *world = context;
    (void)digest;
    return !world->no_blobs;
}

static void print(struct world *world, const struct rb_agent_action *action, struct rb_buffer *out)
{
    const char *worker = world->n ? world->workers[action->worker].worker : "";
    if (out->size)
        rb_buffer_text(out, " ");
    switch (action->kind) {
    case RB_AGENT_SPAWN:
        rb_buffer_format(out, "spawn:%u:%u", action->device, action->configuration->number);
        return;
    case RB_AGENT_FETCH:
        rb_buffer_format(out, "fetch:%s:%s", action->node, action->text);
        return;
    case RB_AGENT_CONFIGURE:
        rb_buffer_format(out, "configure:%s:%u:%zu%s", worker, action->configuration->number,
                         action->rank, action->foreseen ? ":go" : "");
        return;
    case RB_AGENT_GO:
        rb_buffer_format(out, "go:%s:%u", worker, action->number);
        return;
    case RB_AGENT_ABANDON:
        rb_buffer_format(out, "abandon:%s:%u", worker, action->number);
        return;
    case RB_AGENT_LEAVE:
        rb_buffer_format(out, "leave:%s", worker);
        return;
    case RB_AGENT_LEAVE_SAVING:
        rb_buffer_format(out, "save-and-leave:%s", worker);
        return;
    case RB_AGENT_KILL:
        rb_buffer_format(out, "kill:%s", worker);
        return;
    case RB_AGENT_FORGET:
        rb_buffer_format(out, "forget:%s", worker);
        return;
    case RB_AGENT_REPORT_DEAD:
        rb_buffer_format(out, "dead:%s", action->report->worker->worker);
        return;
    case RB_AGENT_REPORT_DELETE:
        rb_buffer_format(out, "delete:%s", action->report->worker->worker);
        return;
    }
}

static void expect(struct world *world, const char *expected)
{
    struct rb_arena arena = {0};
    struct rb_buffer out = {0};
    struct rb_agent_actions actions;
    struct rb_agent_view view = {
        .facts = rb_mirror_facts(world->mirror),
        .node = "a",
        .workers = world->workers,
        .n = world->n,
        .deaths = world->deaths,
        .n_deaths = world->n_deaths,
        .now_ms = world->now,
        .unix_ms = world->unix_ms,
        .has_blob = has_blob,
        .context = world,
    };
    rb_agent_decide(&view, &arena, &actions);
    for (size_t i = 0; i < actions.n; i++)
        print(world, &actions.at[i], &out);
    world->wake = actions.wake_ms;
    rb_buffer_text(&out, "");
    assert_string_equal(out.data ? out.data : "", expected);
    rb_buffer_done(&out);
    rb_arena_done(&arena);
}

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.mirror = rb_mirror_new(), .now = 1000};
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    rb_mirror_free(((struct world *)*state)->mirror);
    return 0;
}

static void nothing_to_do(void **state)
{
    expect(*state, "");
}

static void start_to_training(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    put_configuration(world, 1, "PREPARING", "a:0* b:0* a:1*");
    expect(world, "spawn:0:1 spawn:1:1");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    struct rb_agent_worker *w1 = add_worker(world, "W1", 1, 1);
    world->no_blobs = true;
    expect(world, "fetch:b:MODEL fetch:b:WEIGHTS"); /* each once */
    world->no_blobs = false;
    put_report(world, "a:0", "W0", "IDLE", 1);
    put_report(world, "a:1", "W1", "IDLE", 1);
    expect(world, ""); /* b's is not there yet */
    put_report(world, "b:0", "X", "IDLE", 7);
    expect(world, ""); /* ... and that is another's */
    put_report(world, "b:0", "B0", "IDLE", 1);
    expect(world, "configure:W0:1:0 configure:W1:1:2");
    w0->configured = w1->configured = 1;
    w0->ready = 1;
    expect(world, "");
    w1->ready = 1;
    put_configuration(world, 1, "GO", "a:0=W0* b:0=B0* a:1=W1*");
    expect(world, "go:W0:1 go:W1:1");
    w0->went = w1->went = 1;
    w0->active = w1->active = 1;
    put_configuration(world, 1, "ACTIVE", "a:0=W0* b:0=B0* a:1=W1*");
    expect(world, "");
}

static void grow_and_shrink(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"next\":2,\"newest\":2}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 a:1=W1");
    put_configuration(world, 2, "PREPARING", "a:1=W1 a:2");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    struct rb_agent_worker *w1 = add_worker(world, "W1", 1, 1);
    w0->configured = w0->ready = w0->went = w0->active = 1;
    w1->configured = w1->ready = w1->went = w1->active = 1;
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W1", "TRAINING", 1);
    expect(world, "spawn:2:2");
    struct rb_agent_worker *w2 = add_worker(world, "W2", 2, 2);
    put_report(world, "a:2", "W2", "IDLE", 2);
    expect(world, "configure:W1:2:0 configure:W2:2:1");
    w1->configured = w2->configured = w1->ready = w2->ready = 2;
    put_configuration(world, 2, "GO", "a:1=W1 a:2=W2");
    expect(world, "go:W1:2 go:W2:2 go:W0:2"); /* the leaver too */
    w0->went = w1->went = w2->went = 2;
    w1->active = w2->active = 2;
    expect(world, ""); /* the leaver lingers */
    put_configuration(world, 1, "RETIRED", "a:0=W0 a:1=W1");
    put_configuration(world, 2, "ACTIVE", "a:1=W1 a:2=W2");
    expect(world, "leave:W0");
    w0->left = world->now;
    expect(world, "");
    assert_int_not_equal(world->wake, UINT64_MAX);
    world->now = world->wake;
    expect(world, "kill:W0");
    w0->gone = true;
    expect(world, "forget:W0");
}

static void abandoned(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":3}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0");
    put_configuration(world, 2, "ABANDONED", "a:0=W0 a:1");
    put_configuration(world, 3, "PREPARING", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    struct rb_agent_worker *w1 = add_worker(world, "W1", 1, 2);
    w0->ready = w0->went = w0->active = 1;
    w0->configured = 2;
    w1->configured = w1->ready = 2;
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W1", "IDLE", 2);
    expect(world, "abandon:W0:2 abandon:W1:2 configure:W0:3:0 configure:W1:3:1");
    w0->abandoned = w1->abandoned = 2;
    w0->configured = w1->configured = 3;
    expect(world, "");
    put_configuration(world, 3, "ABANDONED", "a:0=W0 a:1=W1");
    expect(world, "abandon:W0:3 abandon:W1:3 leave:W1");
}

static void unready_is_not_told_again(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"newest\":1}");
    put_configuration(world, 1, "PREPARING", "a:0");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    put_report(world, "a:0", "W0", "IDLE", 1);
    w0->unready = 1;
    expect(world, "");
}

static void a_dead_one_is_kept_while_spoken_of(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 b:0=B0");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    w0->active = 1;
    w0->gone = true;
    put_report(world, "a:0", "W0", "DEAD", 1);
    expect(world, "");
    /* A fresh one on its device, while the old configuration still counts. */
    put_configuration(world, 2, "PREPARING", "a:0 b:0=B0");
    expect(world, "spawn:0:2");
    put_configuration(world, 1, "RETIRED", "a:0=W0 b:0=B0");
    world->n = 0;
    add_worker(world, "W2", 0, 2);
    put_report(world, "a:0", "W2", "STARTING", 2);
    put_report(world, "b:0", "B0", "FROZEN", 1);
    expect(world, "configure:W2:2:0");
}

static void a_fresh_one_waits_for_the_device(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"next\":5,\"newest\":5}");
    put_configuration(world, 4, "RETIRED", "a:0=OLD");
    put_configuration(world, 5, "PREPARING", "a:0");
    struct rb_agent_worker *old = add_worker(world, "OLD", 0, 4);
    expect(world, "leave:OLD");
    old->left = world->now;
    expect(world, "");
    old->gone = true;
    expect(world, "spawn:0:5"); /* which takes the place of OLD: to forget it is not another's */
}

/* Two configurations at once may want it: one gets it. */
static void a_device_has_one_process(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"next\":2,\"newest\":2}");
    put_configuration(world, 1, "PREPARING", "a:0 a:1");
    put_configuration(world, 2, "PREPARING", "a:0 a:2");
    expect(world, "spawn:0:1 spawn:1:1 spawn:2:2");
}

static void one_that_failed_is_not_spawned_again(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    put_configuration(world, 1, "PREPARING", "a:0");
    put_report(world, "a:0", "W0", "FAILED", 1);
    expect(world, "");
    put_configuration(world, 1, "ABANDONED", "a:0");
    expect(world, "delete:W0");
}

static void saver(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1,\"saver\":\"W0\"}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    struct rb_agent_worker *w1 = add_worker(world, "W1", 1, 1);
    w0->active = w1->active = 1;
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W1", "FROZEN", 1);
    expect(world, "save-and-leave:W0");
    w0->left = world->now;
    w0->saving = true;
    world->now += 60000;
    expect(world, ""); /* saving may take its time */
    w0->gone = true;
    expect(world, ""); /* its report must be read */
    put_job(world, "{\"phase\":\"Paused\",\"newest\":1}");
    put_configuration(world, 1, "RETIRED", "a:0=W0 a:1=W1");
    expect(world, "forget:W0 leave:W1");
}

static void reports_without_processes(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 b:0=B0");
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W9", "IDLE", 1);
    put_report(world, "b:0", "B0", "TRAINING", 1);
    put_report(world, "ab:0", "C0", "TRAINING", 1); /* another node's */
    expect(world, "dead:W0 delete:W9");
    put_report(world, "a:0", "W0", "DEAD", 1);
    rb_mirror_delete(world->mirror, "jobs/j/workers/a:1");
    expect(world, "");
}

static void a_deleted_job(void **state)
{
    struct world *world = *state;
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    expect(world, "leave:W0");
    w0->connected = false; /* it has not even said Hello */
    expect(world, "kill:W0");
    w0->gone = true;
    expect(world, "forget:W0");
}

static void one_that_does_not_start(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Preparing\",\"next\":1,\"newest\":1}");
    put_configuration(world, 1, "PREPARING", "a:0");
    add_worker(world, "W0", 0, 1)->connected = false;
    put_report(world, "a:0", "W0", "STARTING", 1);
    expect(world, "");
    world->now = world->wake;
    expect(world, "kill:W0");
}

/* Its peers wait for it: only its end lets them go on. */
static void one_that_does_nothing(void **state)
{
    struct world *world = *state;
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 a:1=W1");
    struct rb_agent_worker *w0 = add_worker(world, "W0", 0, 1);
    struct rb_agent_worker *w1 = add_worker(world, "W1", 1, 1);
    w0->active = w1->active = w0->configured = w1->configured = 1;
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W1", "TRAINING", 1);
    w0->unanswered = 9;
    expect(world, "");
    w0->unanswered = 10;
    expect(world, "kill:W0");
    w0->connected = false; /* who cannot hear is not asked */
    w0->waited = world->now;
    expect(world, "");
    w1->stopped = "it was stopped";
    expect(world, "kill:W1");
    w1->left = 1;
    expect(world, "kill:W1");
    w1->gone = true;
    expect(world, "");
}

/* A node that had to be left by now: who is there still is killed, if enough others have the state.
 */
static void one_that_stays_too_long(void **state)
{
    struct world *world = *state;
    put(world, "nodes/a",
        "{\"name\":\"a\",\"address\":\"x\",\"numericClass\":\"cpu\",\"started\":1}");
    put(world, "nodes/b",
        "{\"name\":\"b\",\"address\":\"x\",\"numericClass\":\"cpu\",\"started\":1}");
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1}");
    put_configuration(world, 1, "ACTIVE", "a:0=W0 b:0=W1");
    struct rb_agent_worker *worker = add_worker(world, "W0", 0, 1);
    worker->active = worker->configured = 1;
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "b:0", "W1", "TRAINING", 1);
    put(world, "cordons/a", "{\"since\":1,\"drain\":true,\"deadline\":5000}");
    world->unix_ms = 4000;
    expect(world, "");
    assert_int_equal(world->wake, world->now + 1000);
    world->unix_ms = 5000;
    expect(world, "kill:W0");
    put_report(world, "b:0", "W1", "DEAD", 1); /* then it is the only one */
    expect(world, "");
    put_report(world, "b:0", "W1", "TRAINING", 1);
    put(world, "cordons/b", "{\"since\":1,\"drain\":true}"); /* that one must leave, too */
    expect(world, "");
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":1,\"saver\":\"W0\"}");
    expect(world, "save-and-leave:W0");
}

/* Ours are W0 and W1, b has B0; they train in configuration 1, which keeps 2 and 3. */
static void put_three(struct world *world, struct rb_agent_worker **ret_w0,
                      struct rb_agent_worker **ret_w1)
{
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":3}");
    world->more = ",\"spare\":2";
    put_configuration(world, 1, "ACTIVE", "a:0=W0 a:1=W1 b:0=B0");
    put_report(world, "a:0", "W0", "TRAINING", 1);
    put_report(world, "a:1", "W1", "TRAINING", 1);
    put_report(world, "b:0", "B0", "TRAINING", 1);
    *ret_w0 = add_worker(world, "W0", 0, 1);
    *ret_w1 = add_worker(world, "W1", 1, 1);
    (*ret_w0)->configured = (*ret_w0)->ready = (*ret_w0)->went = (*ret_w0)->active = 1;
    (*ret_w1)->configured = (*ret_w1)->ready = (*ret_w1)->went = (*ret_w1)->active = 1;
    expect(world, "");
}

static void hear_of_b0(struct world *world)
{
    world->deaths[world->n_deaths++] = (struct rb_agent_death){"j", "B0"};
}

static void survivors_are_told_at_once(void **state)
{
    struct world *world = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(world, &w0, &w1);
    w1->gone = true;
    expect(world, "configure:W0:2:0:go");
    w0->configured = w0->went = 2;
    expect(world, "");
    hear_of_b0(world); /* before they have met */
    expect(world, "configure:W0:3:0:go");
    w0->configured = w0->went = 3;
    expect(world, "");
    world->more = ",\"spare\":1,\"leftOf\":1";
    put_configuration(world, 2, "GO", "a:0=W0 b:0=B0"); /* the coordinator, who knows less */
    expect(world, "");
    w0->active = 3;
    expect(world, "");
}

static void told_by_another_agent(void **state)
{
    struct world *world = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(world, &w0, &w1);
    hear_of_b0(world);
    expect(world, "configure:W0:2:0:go configure:W1:2:1:go");
    w0->configured = w0->went = w1->configured = w1->went = 2;
    w0->ready = w1->ready = 2;
    expect(world, "");
    w0->went = w1->went = 1; /* a rubatod that was started again does not know what it said */
    expect(world, "go:W0:2 go:W1:2");
}

static void what_prepares_beside_is_over(void **state)
{
    struct world *world = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(world, &w0, &w1);
    put_configuration(world, 4, "PREPARING", "a:0=W0 a:1=W1 b:0=B0 a:2");
    expect(world, "spawn:2:4");
    w0->configured = w0->ready = 4;
    w1->gone = true;
    expect(world, "abandon:W0:4 configure:W0:2:0:go");
    w0->abandoned = 4;
    w0->configured = w0->went = 2;
    w0->ready = 1;
    expect(world, "");
    put_configuration(world, 4, "GO", "a:0=W0 a:1=W1 b:0=B0 a:2=W2");
    expect(world, ""); /* from before the coordinator knew */
    put_configuration(world, 5, "PREPARING", "a:0=W0 b:0=B0");
    expect(world, "");
    world->more = NULL;
    put(world, "jobs/j/configurations/00000005",
        "{\"number\":5,\"state\":\"PREPARING\",\"cause\":\"crash\",\"asked\":1,\"created\":1,"
        "\"members\":[{\"node\":\"a\",\"device\":0,\"worker\":\"W0\"}]}");
    expect(world, "configure:W0:5:0"); /* its own way out */
}

static void what_is_not_foreseen(void **state)
{
    struct world *world = *state;
    struct rb_agent_worker *w0, *w1;
    put_three(world, &w0, &w1);
    w1->gone = true;
    put_configuration(world, 4, "GO", "a:0=W0 b:0=B0"); /* it may have been flipped to */
    w0->configured = w0->ready = w0->went = 4;
    expect(world, "");
    world->more = ",\"spare\":1,\"went\":7";
    put_configuration(world, 4, "ABANDONED", "a:0=W0 b:0=B0");
    w0->abandoned = 4;
    expect(world, "");
    put(world, "jobs/j/configurations/00000004",
        "{\"number\":4,\"state\":\"ABANDONED\",\"cause\":"
        "\"grow\",\"asked\":1,\"created\":1}");
    expect(world, "configure:W0:2:0:go"); /* that one never went */
    put_job(world, "{\"phase\":\"Running\",\"active\":1,\"newest\":4,\"saver\":\"B0\"}");
    expect(world, ""); /* its end was asked for */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_to_do),
        TEST(start_to_training),
        TEST(grow_and_shrink),
        TEST(abandoned),
        TEST(unready_is_not_told_again),
        TEST(a_dead_one_is_kept_while_spoken_of),
        TEST(a_fresh_one_waits_for_the_device),
        TEST(a_device_has_one_process),
        TEST(one_that_failed_is_not_spawned_again),
        TEST(saver),
        TEST(reports_without_processes),
        TEST(a_deleted_job),
        TEST(one_that_does_not_start),
        TEST(one_that_does_nothing),
        TEST(one_that_stays_too_long),
        TEST(survivors_are_told_at_once),
        TEST(told_by_another_agent),
        TEST(what_prepares_beside_is_over),
        TEST(what_is_not_foreseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
