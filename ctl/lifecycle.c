/* SPDX-License-Identifier: Apache-2.0 */
/* pause, resume, cancel, delete: one request to the leader. */
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <string.h>

/* Was the job in the requested phase already? */
static bool was_so(const char *method, const char *phase)
{
    return (strcmp(method, "pause") == 0 && strcmp(phase, "Paused") == 0) ||
           (strcmp(method, "cancel") == 0 && strcmp(phase, "Cancelled") == 0);
}

static void tell(struct rb_session *session, const char *job, const char *method,
                 const json_t *reply)
{
    const char *phase = rb_value_text(reply, "phase", "gone");

    if (strcmp(method, "delete") == 0)
        fprintf(session->out, "%s: %s\n", job,
                rb_value_over(reply) ? "deleted" : "is cancelled and deleted");
    else if (was_so(method, phase))
        fprintf(session->out, "%s: is %s already\n", job, phase);
    else
        fprintf(session->out, "%s: %s asked for, now %s\n", job, method, phase);
}

/* body: what the request has beside the job; taken. */
static int say(struct rb_session *session, const struct rb_arguments *arguments, const char *method,
               json_t *body)
{
    json_t *reply = NULL;
    struct rb_why why = {0};
    int err;

    json_object_set_new(body, "job", json_string(arguments->word[0]));
    err = rb_session_call(session, method, body, 0, &reply, &why);

    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else
        tell(session, arguments->word[0], method, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}

int rb_pause(struct rb_session *session, const struct rb_arguments *arguments)
{
    return say(session, arguments, "pause", json_object());
}

int rb_resume(struct rb_session *session, const struct rb_arguments *arguments)
{
    return say(session, arguments, "resume", json_object());
}

int rb_cancel(struct rb_session *session, const struct rb_arguments *arguments)
{
    return say(session, arguments, "cancel",
               json_pack("{s:b}", "keep", !rb_arguments_has(arguments, "now")));
}

int rb_delete(struct rb_session *session, const struct rb_arguments *arguments)
{
    return say(session, arguments, "delete", json_object());
}
