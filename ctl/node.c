/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <string.h>

enum { POLL_MS = 200 };

static void print_node(const struct rb_session *session, const char *verb, const json_t *reply)
{
    const json_t *jobs = json_object_get(reply, "jobs"), *job;
    size_t i;

    if (session->format != RB_FORMAT_TABLE) {
        rb_session_print(session, reply);
        return;
    }
    fprintf(session->out, "%s: %sed", rb_value_text(reply, "node", "?"), verb);
    json_array_foreach(jobs, i, job)
    {
        fprintf(session->out, "%s%s", i ? ", " : "; still used by ", json_string_value(job));
    }
    fputs("\n", session->out);
}

static int ask(const struct rb_session *session, const char *node, const char *verb,
               uint64_t deadline, json_t **ret_reply, struct rb_why *why)
{
    json_t *body = json_pack("{s:s, s:s}", "node", node, "verb", verb);

    return rb_session_ask_again(session, "node", body, deadline, ret_reply, why);
}

static int change(struct rb_session *session, const struct rb_arguments *arguments,
                  const char *verb)
{
    const char *node = arguments->word[0];
    bool wait = rb_arguments_has(arguments, "wait") && strcmp(verb, "drain") == 0;
    json_t *reply = NULL;
    struct rb_why why = {0};
    uint64_t deadline;
    int err;

    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), &deadline, &why))
        return rb_session_usage(session, "--timeout %s", why.text);
    err = rb_session_call(session, "node", json_pack("{s:s, s:s}", "node", node, "verb", verb),
                          deadline, &reply, &why);
    while (!err && wait && rb_value_count(reply, "jobs")) {
        json_decref(reply);
        reply = NULL;
        err = rb_session_sleep(session, POLL_MS, deadline, &why);
        if (err == RB_ETIMEOUT)
            rb_why_set(&why, err, "timed out; %s goes on being drained", node);
        if (!err)
            err = ask(session, node, verb, deadline, &reply, &why);
    }
    if (err)
        return rb_session_fail(session, err, &why);
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
