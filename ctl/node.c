/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/human.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "proto/spec.h"

#include <string.h>

enum { POLL_MS = 200 };

static void print_node(const struct rb_session *session, const char *verb, const json_t *reply)
{
    const json_t *jobs = json_object_get(reply, "jobs"), *job;
    int64_t until = rb_value_integer(reply, "until", 0);
    char text[RB_HUMAN_SIZE];
    size_t i;

    if (session->format != RB_FORMAT_TABLE) {
        rb_session_print(session, reply);
        return;
    }
    fprintf(session->out, "%s: %sed", rb_value_text(reply, "node", "?"), verb);
    if (until)
        fprintf(session->out, ", to be left by %s", rb_human_time((uint64_t)until, text));
    json_array_foreach(jobs, i, job)
    {
        fprintf(session->out, "%s%s", i ? ", " : "; still used by ", json_string_value(job));
    }
    fputs("\n", session->out);
}

/* --deadline T, in ms. */
static int add_deadline(const struct rb_arguments *arguments, json_t *body, struct rb_why *why)
{
    const char *text = rb_arguments_value(arguments, "deadline");
    int64_t ms;

    if (!text)
        return 0;
    if (rb_spec_duration_ms(text, &ms))
        return rb_why_set(why, RB_EINVAL,
                          "--deadline '%.40s' is no duration: seconds, or 90s 5m 2h", text);
    json_object_set_new(body, "deadline", json_integer(ms));
    return 0;
}

/* How far is the drain?  If it was taken back meanwhile, that counts. */
static int look(const struct rb_session *session, const char *node, uint64_t deadline,
                json_t **reply, struct rb_why *why)
{
    json_t *body = json_pack("{s:s, s:s}", "node", node, "verb", "look");
    int err;

    json_decref(*reply);
    *reply = NULL;
    err = rb_session_ask_again(session, "node", body, deadline, reply, why);
    if (!err && !json_is_true(json_object_get(*reply, "drained")))
        err =
            rb_why_set(why, RB_EREFUSED, "%s is not drained any more: somebody took it back", node);
    return err;
}

static int change(struct rb_session *session, const struct rb_arguments *arguments,
                  const char *verb)
{
    const char *node = arguments->word[0];
    bool wait = rb_arguments_has(arguments, "wait");
    json_t *reply = NULL, *body = json_pack("{s:s, s:s}", "node", node, "verb", verb);
    struct rb_why why = {0};
    uint64_t deadline;
    int err;

    err = rb_session_deadline(rb_arguments_value(arguments, "timeout"), wait, &deadline, &why);
    if (!err)
        err = add_deadline(arguments, body, &why);
    if (err) {
        json_decref(body);
        return rb_session_usage(session, "%s", why.text);
    }
    err = rb_session_call(session, "node", body, deadline, &reply, &why);
    while (!err && wait && rb_value_count(reply, "jobs")) {
        err = rb_session_sleep(session, POLL_MS, deadline, &why);
        if (err == RB_ETIMEOUT)
            rb_why_set(&why, err, "timed out; %s goes on being drained", node);
        if (!err)
            err = look(session, node, deadline, &reply, &why);
    }
    if (err) {
        json_decref(reply);
        return rb_session_fail(session, err, &why);
    }
    print_node(session, verb, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}

int rb_node_drain(struct rb_session *session, const struct rb_arguments *arguments)
{
    return change(session, arguments, "drain");
}

int rb_node_cordon(struct rb_session *session, const struct rb_arguments *arguments)
{
    return change(session, arguments, "cordon");
}

int rb_node_uncordon(struct rb_session *session, const struct rb_arguments *arguments)
{
    return change(session, arguments, "uncordon");
}
