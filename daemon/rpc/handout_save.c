/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/members.h"
#include "daemon/rpc/handout.h"

#include <string.h>

json_t *rb_handout_place(int64_t step, const char *path, const char *node)
{
    return json_pack("{s:I,s:s,s:s}", "step", (json_int_t)step, "path", path, "node", node);
}

static void ask_next(struct rb_handout *handout, int err, const struct rb_why *why);

static void saved(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_handout *handout = context;
    struct rb_request *request = handout->op.request;
    const char *path = json_string_value(json_object_get(body, "path"));
    struct rb_why own = {{0}};

    handout->call = NULL;
    if (err) {
        ask_next(handout, err, why);
        return;
    }
    handout->step = json_integer_value(json_object_get(body, "step"));
    if (!path) {
        rb_why_set(&own, RB_EINTERNAL, "its node did not say where the state lies");
        rb_handout_fail(handout, RB_EINTERNAL, &own);
    } else if (handout->step < 1) {
        rb_why_set(&own, RB_EREFUSED, "it has not done its first step yet");
        rb_handout_fail(handout, RB_EREFUSED, &own);
    } else if (handout->exports) {
        rb_handout_fetch(handout, handout->nodes[handout->asked - 1], path);
    } else {
        json_t *reply = rb_handout_place(handout->step, path, handout->nodes[handout->asked - 1]);

        rb_handout_free(&handout->op);
        rb_request_reply(request, reply);
    }
}

/* Is the job's state on the way to where it is kept?  *ret_reason: why it is not there yet, as far
 * as is known. */
static bool is_being_parked(const struct rb_handout *handout, const char **ret_reason)
{
    const struct rb_job_facts *job =
        rb_facts_job(rb_methods_facts(handout->op.methods), handout->job);
    const Rb__Wish *wish = job && job->wish.message ? job->wish.wish : NULL;

    if (!wish || !job->state.message)
        return false;
    *ret_reason = job->state.state->reason;
    return wish->paused || wish->cancelled || job->state.state->saver;
}

/* Ask the next member's node, or fail with the error of the one asked last. */
static void ask_next(struct rb_handout *handout, int err, const struct rb_why *why)
{
    bool elsewhere = !err || err == RB_ENOTFOUND || err == RB_EUNREACHABLE || err == RB_EPEER ||
                     (err == RB_ETIMEOUT && handout->lost);
    struct rb_why parked = {{0}};
    const char *reason = NULL;

    if (err && elsewhere && handout->asked == handout->n_nodes && handout->exports &&
        is_being_parked(handout, &reason)) {
        rb_why_set(&parked, RB_EAGAIN, "the job's state is being saved: try again%s%s%s",
                   reason ? " (" : "", reason ? reason : "", reason ? ")" : "");
        rb_handout_fail(handout, RB_EAGAIN, &parked);
        return;
    }
    if (!elsewhere || handout->asked == handout->n_nodes) {
        rb_handout_fail(handout, err, why);
        return;
    }
    rb_handout_call(
        handout, handout->nodes[handout->asked++],
        &(struct rb_client_options){
            .method = "node-save",
            .body = json_pack("{s:s,s:b}", "job", handout->job, "export", handout->exports),
            .done = saved,
        });
}

static void list_node(struct rb_handout *handout, const char *node)
{
    for (size_t i = 0; i < handout->n_nodes; i++)
        if (!strcmp(handout->nodes[i], node))
            return;
    handout->nodes[handout->n_nodes++] = rb_string(node);
}

void rb_handout_save(struct rb_handout *handout, const struct rb_job_facts *job,
                     const Rb__Configuration *active)
{
    const char *saver = job->state.state->saver;

    handout->nodes = rb_alloc(sizeof(*handout->nodes) * (active->n_members + 1));
    for (size_t m = 0; saver && m < active->n_members; m++)
        if (active->members[m]->worker && !strcmp(active->members[m]->worker, saver))
            list_node(handout, active->members[m]->node);
    for (size_t m = 0; m < active->n_members; m++)
        list_node(handout, active->members[m]->node);
    ask_next(handout, 0, NULL);
}

void rb_handout_save_parked(struct rb_handout *handout, const Rb__Checkpoint *parked)
{
    handout->nodes = rb_alloc(sizeof(*handout->nodes));
    list_node(handout, parked->node);
    ask_next(handout, 0, NULL);
}
