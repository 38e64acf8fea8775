/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/daemon/agent_scene.h"

#include "base/buffer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scene_put(struct scene *scene, const char *key, const char *value)
{
    struct rb_why why = {0};
    scene->revision++;
    if (rb_mirror_put(scene->mirror, key, value, strlen(value), scene->revision, scene->revision, 0,
                      &why))
        fail_msg("%s", why.text);
}

void scene_put_job(struct scene *scene, const char *state)
{
    scene_put(
        scene, "jobs/j/job",
        "{\"name\":\"gpt\",\"id\":\"j\",\"created\":1,\"spec\":{},\"model\":\"MODEL\",\"weights\":"
        "\"WEIGHTS\",\"node\":\"b\",\"steps\":9,\"microbatches\":4,\"numericClass\":\"cpu\"}");
    scene_put(scene, "jobs/j/state", state);
}

/* members: "a:0" a fresh process, "a:0=W" the process W; with "*" behind it, the member
 * restores. */
void scene_put_configuration(struct scene *scene, unsigned number, const char *state,
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
    rb_buffer_format(&text, "]%s}", scene->more ? scene->more : "");
    snprintf(key, sizeof(key), "jobs/j/configurations/%08u", number);
    scene_put(scene, key, text.data);
    rb_buffer_done(&text);
}

void scene_put_report(struct scene *scene, const char *place, const char *worker, const char *state,
                      unsigned spawned_for)
{
    char key[64], value[256];
    snprintf(key, sizeof(key), "jobs/j/workers/%s", place);
    snprintf(value, sizeof(value),
             "{\"worker\":\"%s\",\"state\":\"%s\",\"addresses\":[\"tcp:x:1\"],\"spawnedFor\":%u}",
             worker, state, spawned_for);
    scene_put(scene, key, value);
}

struct rb_agent_worker *scene_add_worker(struct scene *scene, const char *name, uint32_t device,
                                         uint32_t spawned_for)
{
    struct rb_agent_worker *worker = &scene->workers[scene->n++];
    *worker = (struct rb_agent_worker){.job = "j",
                                       .worker = name,
                                       .device = device,
                                       .spawned_for = spawned_for,
                                       .connected = true,
                                       .waited = scene->now};
    return worker;
}

static bool has_blob(const char *digest, void *context)
{
    const struct scene *scene = context;
    (void)digest;
    return !scene->no_blobs;
}

static void print(struct scene *scene, const struct rb_agent_action *action, struct rb_buffer *out)
{
    const char *worker = scene->n ? scene->workers[action->worker].worker : "";
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
    case RB_AGENT_STAY:
        rb_buffer_format(out, "stay:%s", worker);
        return;
    case RB_AGENT_FREEZE:
        rb_buffer_format(out, "freeze:%s:%s", worker, action->node);
        return;
    case RB_AGENT_ASK:
        rb_buffer_format(out, "ask:%s", action->node);
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

void scene_expect(struct scene *scene, const char *expected)
{
    struct rb_arena arena = {0};
    struct rb_buffer out = {0};
    struct rb_agent_actions actions;
    struct rb_agent_view view = {
        .facts = rb_mirror_facts(scene->mirror),
        .node = "a",
        .workers = scene->workers,
        .n = scene->n,
        .deaths = scene->deaths,
        .n_deaths = scene->n_deaths,
        .silent = &scene->silent,
        .n_silent = scene->silent != NULL,
        .now_ms = scene->now,
        .unix_ms = scene->unix_ms,
        .has_blob = has_blob,
        .context = scene,
    };
    rb_agent_decide(&view, &arena, &actions);
    for (size_t i = 0; i < actions.n; i++)
        print(scene, &actions.at[i], &out);
    scene->wake = actions.wake_ms;
    rb_buffer_text(&out, "");
    assert_string_equal(out.data ? out.data : "", expected);
    rb_buffer_done(&out);
    rb_arena_done(&arena);
}

int scene_setup(void **state)
{
    static struct scene scene;
    scene = (struct scene){.mirror = rb_mirror_new(), .now = 1000};
    *state = &scene;
    return 0;
}

int scene_teardown(void **state)
{
    rb_mirror_free(((struct scene *)*state)->mirror);
    return 0;
}
