/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>

/* Does the job exist, and does rubatod answer?  If so, silence after this means that the job is
 * being saved. */
static int look(struct rb_session *session, const char *job, bool *ret_trains, struct rb_why *why)
{
    json_t *reply = NULL;
    int err = rb_session_call(session, "status", json_pack("{s:s}", "job", job), 0, &reply, why);

    *ret_trains = rb_value_count(reply, "devices") > 0;
    json_decref(reply);
    return err;
}

int rb_checkpoint(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *job = arguments->word[0];
    bool wait = rb_arguments_has(arguments, "wait"), trains;
    json_t *reply = NULL;
    struct rb_why why = {0};
    uint64_t deadline;
    int err;

    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), wait, &deadline, &why))
        return rb_session_usage(session, "%s", why.text);
    err = look(session, job, &trains, &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (!trains) /* a copy of a parked state shows nowhere else */
        wait = true;
    if (!wait) /* a refusal is still received */
        deadline = rb_clock_ns();
    err = rb_session_call(session, "checkpoint", json_pack("{s:s}", "job", job), deadline, &reply,
                          &why);
    if (err == RB_ETIMEOUT && !wait) {
        fprintf(
            session->err,
            "rubatoctl: asked for; it is there when it shows in: rubatoctl get checkpoints %s\n",
            job);
        return RB_EXIT_DONE;
    }
    if (err == RB_ETIMEOUT)
        rb_why_set(&why, err, "timed out; the checkpoint of %s goes on", job);
    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else
        fprintf(session->out, "%s: step %" PRId64 " in %s on %s\n", job,
                rb_value_integer(reply, "step", 0), rb_value_text(reply, "path", "?"),
                rb_value_text(reply, "node", "?"));
    json_decref(reply);
    return RB_EXIT_DONE;
}
