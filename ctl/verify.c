/* SPDX-License-Identifier: Apache-2.0 */
/* Train the steps of a job once more, on other devices, and compare.
 *
 *     `repeat` > its rows beside the job's, as they come > the weights too, if the job is done >
 *     `delete`
 *
 * However verify ends, the job that it started is deleted. */
#include "base/arena.h"
#include "base/clock.h"
#include "ctl/progress.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "ctl/verified.h"
#include "ctl/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, POLL_MS = 200, NAME_MOST = 63 };

/* Limit for the calls at the beginning and the end, during which ctrl-c is not read. */
static const uint64_t SHORT_NS = UINT64_C(30) * 1000000000;

struct verify {
    const struct rb_session *session;
    char *id, *name;         /* the job's */
    char *again_id, *called; /* of the repeated job; NULL: none yet */
    char *reason;            /* the last reason printed for its waiting */
    int64_t devices, steps;
    int64_t until; /* the last step to be compared */
    bool whole;    /* all steps are compared, and the job is done */
    bool trained;  /* a row of the repeated job has come */
    uint64_t deadline;
    struct rb_verified verified;
};

static int ask(const struct verify *verify, const char *method, json_t *body, json_t **ret_reply,
               struct rb_why *why)
{
    return rb_session_ask_again(verify->session, method, body, verify->deadline, ret_reply, why);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static int check_steps(const struct verify *verify, int64_t done, struct rb_why *why)
{
    if (!done)
        return rb_why_set(why, RB_EREFUSED, "%s has done no step: there is nothing to compare with",
                          verify->name);
    if (verify->until > done)
        return rb_why_set(why, RB_EREFUSED, "%s has done %" PRId64 " steps, and not %" PRId64,
                          verify->name, done, verify->until);
    return 0;
}

static int look_at_job(struct verify *verify, const char *job, struct rb_why *why)
{
    json_t *status = NULL;
    int64_t done;
    int err = rb_session_call(verify->session, "status", json_pack("{s:s}", "job", job),
                              verify->deadline, &status, why);

    if (err)
        return err;
    done = rb_value_integer(status, "step", 0);
    verify->id = rb_string(rb_value_text(status, "id", job));
    verify->name = rb_string(rb_value_text(status, "name", job));
    verify->steps = rb_value_integer(status, "steps", 0);
    verify->until = verify->until ? verify->until : done;
    verify->whole =
        verify->until == verify->steps && !strcmp(rb_value_text(status, "phase", ""), "Succeeded");
    verify->verified.job = verify->name;
    json_decref(status);
    return check_steps(verify, done, why);
}

static int start(struct verify *verify, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *tail = rb_format("-verify-%" PRId64, verify->devices);
    const int room = NAME_MOST - (int)strlen(tail);
    RB_CLEANUP(rb_freep) char *name = rb_format("%.*s%s", room, verify->name, tail);
    struct rb_session session = *verify->session;
    json_t *reply = NULL;
    int err;

    rb_session_heed_ends(&session);
    session.to.interrupt_fd = -1; /* read after it, when there is something to delete */
    err = rb_session_call(&session, "repeat",
                          json_pack("{s:s,s:s,s:I}", "job", verify->id, "name", name, "devices",
                                    (json_int_t)verify->devices),
                          rb_clock_ns() + SHORT_NS, &reply, why);
    if (err == RB_EUNREACHABLE || err == RB_ETIMEOUT)
        return rb_why_add(why, RB_EUNREACHABLE, "%s may be there (then: rubatoctl delete %s)", name,
                          name);
    if (err)
        return err;
    verify->again_id = rb_string(rb_value_text(reply, "id", name));
    verify->called = RB_TAKE(name);
    json_decref(reply);
    return 0;
}

/* Delete the repeated job, also after ctrl-c, which is ignored here because it would end the
 * call. */
static void end(const struct verify *verify)
{
    struct rb_session session = *verify->session;
    struct rb_why why = {0};
    json_t *reply = NULL;
    int err;

    session.to.interrupt_fd = -1;
    err = rb_session_ask_again(&session, "delete", json_pack("{s:s}", "job", verify->again_id),
                               rb_clock_ns() + SHORT_NS, &reply, &why);
    if (err && err != RB_ENOTFOUND)
        fprintf(session.err, "rubatoctl: %s is left: %s; try: rubatoctl delete %s\n",
                verify->called, why.text, verify->called);
    json_decref(reply);
}

/* ---- Rows, as they come -----------------------------------------------------------------------*/

static int ask_rows(const struct verify *verify, const char *job, json_t **ret_reply,
                    struct rb_why *why)
{
    return ask(verify, "metrics",
               json_pack("{s:s,s:I,s:i}", "job", job, "after",
                         (json_int_t)verify->verified.rows.after, "limit", PAGE),
               ret_reply, why);
}

static int compare_rows(struct verify *verify, bool *ret_more, struct rb_why *why)
{
    json_t *there = NULL, *again = NULL;
    int err = ask_rows(verify, verify->again_id, &again, why);

    *ret_more = !err && json_array_size(json_object_get(again, "rows")) > 0;
    verify->trained |= *ret_more;
    if (*ret_more)
        err = ask_rows(verify, verify->id, &there, why);
    if (!err && *ret_more)
        rb_same_rows_add(&verify->verified.rows, there, again, verify->until);
    json_decref(there);
    json_decref(again);
    return err;
}

/* Print why the repeated job waits, each reason once. */
static void say_reason(struct verify *verify, struct rb_progress *progress, const json_t *status)
{
    const char *reason = rb_value_text(status, "reason", NULL);

    if (!reason || (verify->reason && !strcmp(reason, verify->reason)))
        return;
    rb_progress_end(progress);
    fprintf(verify->session->err, "rubatoctl: %s %s\n", verify->called, reason);
    free(verify->reason);
    verify->reason = rb_string(reason);
}

static int check_ended(const struct verify *verify, const json_t *status, struct rb_why *why)
{
    const char *phase = rb_value_text(status, "phase", "?");
    const char *reason = rb_value_text(status, "reason", NULL);

    if (!strcmp(phase, "Succeeded"))
        return 0;
    return rb_why_set(why, RB_EIO, "%s ended at step %" PRId64 ": %s%s%s", verify->called,
                      rb_value_integer(status, "step", 0), phase, reason ? ": " : "",
                      reason ? reason : "");
}

static int look(struct verify *verify, struct rb_progress *progress, bool *ret_over,
                struct rb_why *why)
{
    json_t *status = NULL;
    int err = ask(verify, "status", json_pack("{s:s}", "job", verify->again_id), &status, why);

    if (err == RB_ENOTFOUND)
        return rb_why_set(why, err, "job %s was deleted meanwhile", verify->called);
    if (err)
        return err;
    *ret_over = rb_value_over(status);
    if (*ret_over)
        err = check_ended(verify, status, why);
    else
        say_reason(verify, progress, status);
    rb_progress_show(progress, status);
    json_decref(status);
    return err;
}

/* Is the comparison of rows complete?  Where the weights are compared too, the repeated job must be
 * done. */
static bool is_settled(const struct verify *verify, bool over)
{
    const struct rb_same_rows *rows = &verify->verified.rows;

    return rows->step || (rows->after >= verify->until && (over || !verify->whole));
}

static int follow(struct verify *verify, struct rb_why *why)
{
    struct rb_progress progress = {.session = verify->session};
    bool over = false, more = true;
    int err = 0;

    while (!err && !is_settled(verify, over) && (more || !over)) {
        err = look(verify, &progress, &over, why);
        if (!err)
            err = compare_rows(verify, &more, why);
        if (!err && !over && !is_settled(verify, over))
            err = rb_session_sleep(verify->session, POLL_MS, verify->deadline, why);
    }
    rb_progress_end(&progress);
    return err;
}

/* Was any row compared?  A missing checkpoint has made way for newer ones, and a job that should go
 * on from it begins with the newest (worker/checkpoint/restore.h). */
static int check_compared(const struct verify *verify, struct rb_why *why)
{
    if (verify->verified.rows.rows)
        return 0;
    if (!verify->trained)
        return rb_why_set(
            why, RB_EREFUSED,
            "there is no step to train again: the checkpoint that %s went on from has "
            "made way for newer ones",
            verify->name);
    return rb_why_set(why, RB_EREFUSED, "of the steps that were trained again %s has no row",
                      verify->name);
}

/* ---- Weights ----------------------------------------------------------------------------------*/

static int hash(const struct verify *verify, const char *id, const char *name,
                char ret_text[RB_WEIGHTS_SHA256], struct rb_why *why)
{
    int64_t step = 0;
    int err = rb_weights_sha256(verify->session, id, ret_text, &step, why);

    if (!err && step != verify->steps)
        err = rb_why_set(why, RB_EREFUSED,
                         "the weights of its last step are gone, the newest are those of %" PRId64,
                         step);
    return err ? rb_why_add(why, err, "%s", name) : 0;
}

static int compare_weights(struct verify *verify, struct rb_why *why)
{
    int err = hash(verify, verify->id, verify->name, verify->verified.there, why);

    return err ? err : hash(verify, verify->again_id, verify->called, verify->verified.again, why);
}

/* ---- The verb ---------------------------------------------------------------------------------*/

static int run(struct verify *verify, const char *job, struct rb_why *why)
{
    int err = look_at_job(verify, job, why);

    if (!err)
        err = start(verify, why);
    if (!err)
        err = follow(verify, why);
    if (!err)
        err = check_compared(verify, why);
    if (!err && verify->whole && !verify->verified.rows.step)
        err = compare_weights(verify, why);
    if (verify->again_id)
        end(verify);
    return err;
}

static int tell(const struct verify *verify)
{
    struct rb_buffer text = {0};
    json_t *json;

    if (verify->session->format == RB_FORMAT_TABLE) {
        rb_verified_text(&verify->verified, &text);
        rb_session_put(verify->session, &text);
    } else {
        json = rb_verified_json(&verify->verified);
        rb_session_print(verify->session, json);
        json_decref(json);
    }
    return rb_verified_same(&verify->verified) ? RB_EXIT_DONE : RB_EXIT_FAILED;
}

/* Other verbs say on ctrl-c that the job goes on; here nothing goes on. */
static int fail(const struct rb_session *session, int err, const struct rb_why *why)
{
    if (err != RB_ECANCELED)
        return rb_session_fail(session, err, why);
    fprintf(session->err, "rubatoctl: %s\n", why->text);
    return rb_session_exit(err);
}

static void done(struct verify *verify)
{
    rb_same_rows_done(&verify->verified.rows);
    free(verify->id);
    free(verify->name);
    free(verify->again_id);
    free(verify->called);
    free(verify->reason);
}

int rb_verify(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *devices = rb_arguments_value(arguments, "devices");
    const char *steps = rb_arguments_value(arguments, "steps");
    struct verify verify = {.session = session};
    struct rb_why why = {0};
    int err, code;

    if (!devices)
        return rb_session_usage(session, "--devices says on how many");
    if (rb_arguments_count(devices, 1, 1 << 20, &verify.devices, &why))
        return rb_session_usage(session, "--devices %s", why.text);
    if (steps && rb_arguments_count(steps, 1, INT64_C(1) << 50, &verify.until, &why))
        return rb_session_usage(session, "--steps %s", why.text);
    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), true, &verify.deadline, &why))
        return rb_session_usage(session, "%s", why.text);
    err = run(&verify, arguments->word[0], &why);
    code = err ? fail(session, err, &why) : tell(&verify);
    done(&verify);
    return code;
}
