/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/follow.h"

#include "base/arena.h"
#include "base/clock.h"
#include "ctl/arguments.h"
#include "ctl/human.h"
#include "ctl/progress.h"
#include "ctl/value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { POLL_MS = 100, SLOW_POLL_MS = 500 };

int rb_goal_parse(const char *text, struct rb_goal *ret, struct rb_why *why)
{
    static const struct {
        const char *name;
        struct rb_goal goal;
    } plain[] = {{"done", {RB_GOAL_DONE, 0}},
                 {"running", {RB_GOAL_RUNNING, 0}},
                 {"paused", {RB_GOAL_PAUSED, 0}}};

    for (size_t i = 0; i < RB_COUNT(plain); i++) {
        if (strcmp(text, plain[i].name) != 0)
            continue;
        *ret = plain[i].goal;
        return 0;
    }
    if (strncmp(text, "step=", 5) == 0) {
        ret->kind = RB_GOAL_STEP;
        return rb_arguments_count(text + 5, 0, INT64_C(1) << 50, &ret->number, why);
    }
    if (strncmp(text, "devices=", 8) == 0) {
        ret->kind = RB_GOAL_DEVICES;
        return rb_arguments_count(text + 8, 0, 1 << 20, &ret->number, why);
    }
    return rb_why_set(why, RB_EINVAL,
                      "'%.40s': expected done, running, paused, step=N or devices=N", text);
}

int rb_goal_check(const struct rb_goal *goal, const json_t *status, struct rb_why *why)
{
    int64_t steps = rb_value_integer(status, "steps", INT64_MAX);
    int64_t min = rb_value_integer(status, "min", 0), max = rb_value_integer(status, "max", 0);
    int64_t n = goal->number;

    if (goal->kind == RB_GOAL_STEP && n > steps)
        return rb_why_set(why, RB_EREFUSED, "it has %" PRId64 " steps, and none of number %" PRId64,
                          steps, n);
    if (goal->kind == RB_GOAL_DEVICES && n && (n < min || (max && n > max)))
        return rb_why_set(why, RB_EREFUSED,
                          "it trains on %" PRId64 " to %" PRId64 " devices, never on %" PRId64, min,
                          max, n);
    return 0;
}

enum rb_goal_state rb_goal_look(const struct rb_goal *goal, const json_t *status)
{
    const char *phase = rb_value_text(status, "phase", "");
    bool running = strcmp(phase, "Running") == 0, reached = false;

    switch (goal->kind) {
    case RB_GOAL_DONE:
        reached = strcmp(phase, "Succeeded") == 0;
        break;
    case RB_GOAL_RUNNING:
        reached = running;
        break;
    case RB_GOAL_PAUSED:
        reached = strcmp(phase, "Paused") == 0;
        break;
    case RB_GOAL_STEP:
        reached = rb_value_integer(status, "step", -1) >= goal->number;
        break;
    case RB_GOAL_DEVICES:
        reached =
            rb_value_count(status, "devices") == goal->number && (running || goal->number == 0);
        break;
    }
    if (reached)
        return RB_GOAL_REACHED;
    return rb_value_over(status) ? RB_GOAL_MISSED : RB_GOAL_AHEAD;
}

static void print_outcome(const struct rb_session *session, const char *job, const json_t *status)
{
    const char *reason = rb_value_text(status, "reason", NULL);
    double loss = rb_value_real(status, "loss", NAN);
    int64_t devices = rb_value_count(status, "devices");
    char text[RB_HUMAN_SIZE];

    if (session->format != RB_FORMAT_TABLE) {
        rb_session_print(session, status);
        return;
    }
    fprintf(session->out, "%s: %s at step %" PRId64 " of %" PRId64, job,
            rb_value_text(status, "phase", "?"), rb_value_integer(status, "step", 0),
            rb_value_integer(status, "steps", 0));
    if (rb_value_there(status, "loss"))
        fprintf(session->out, ", loss %s", rb_human_real(loss, text));
    fprintf(session->out, ", %" PRId64 " device%s%s%s\n", devices, devices == 1 ? "" : "s",
            reason ? ": " : "", reason ? reason : "");
}

/* Say that the job ended otherwise; if the goal was its end, the outcome says so itself. */
static void tell_missed(const struct rb_session *session, const char *job,
                        const struct rb_goal *goal)
{
    if (goal->kind == RB_GOAL_STEP)
        fprintf(session->err, "rubatoctl: %s ended before step %" PRId64 "\n", job, goal->number);
    else if (goal->kind == RB_GOAL_DEVICES)
        fprintf(session->err, "rubatoctl: %s ended without %" PRId64 " device%s\n", job,
                goal->number, goal->number == 1 ? "" : "s");
    else if (goal->kind == RB_GOAL_PAUSED)
        fprintf(session->err, "rubatoctl: %s ended without being paused\n", job);
    else if (goal->kind == RB_GOAL_RUNNING)
        fprintf(session->err, "rubatoctl: %s ended without running meanwhile\n", job);
}

/* From the first answer on the job is asked for by its id: another job may get the name of a
 * deleted one. */
static int look(const struct rb_session *session, const char *job, char **id, uint64_t deadline,
                json_t **ret_status, struct rb_why *why)
{
    json_t *body = json_pack("{s:s}", "job", *id ? *id : job);
    int err;

    if (!*id) {
        err = rb_session_call(session, "status", body, deadline, ret_status, why);
        *id = err ? NULL : rb_string(rb_value_text(*ret_status, "id", job));
        return err;
    }
    err = rb_session_ask_again(session, "status", body, deadline, ret_status, why);
    return err == RB_ENOTFOUND ? rb_why_set(why, err, "job %s was deleted meanwhile", job) : err;
}

/* Print notes once each, and new ones as they come: they say that what is shown may be old. */
static void tell_notes(struct rb_progress *progress, const json_t *status, json_t **told)
{
    json_t *notes = json_object_get(status, "notes");

    if (json_equal(notes, *told) || (!json_array_size(notes) && !*told))
        return;
    rb_progress_end(progress);
    rb_session_notes(progress->session, status);
    json_decref(*told);
    *told = json_incref(notes);
}

int rb_follow(const struct rb_session *session, const char *job, const char *id,
              const struct rb_goal *goal, uint64_t deadline)
{
    RB_CLEANUP(rb_freep) char *own = id ? rb_string(id) : NULL;
    struct rb_progress progress = {.session = session};
    enum rb_goal_state state = RB_GOAL_AHEAD;
    uint64_t start = rb_clock_ns();
    struct rb_why why = {0};
    json_t *told = NULL;
    bool first = true;
    int err = 0;

    while (state == RB_GOAL_AHEAD) {
        json_t *status = NULL;
        bool fresh = rb_clock_ns() - start < UINT64_C(20000000000);

        err = look(session, job, &own, deadline, &status, &why);
        if (!err && first)
            err = rb_goal_check(goal, status, &why) ? rb_why_add(&why, RB_EREFUSED, "%s", job) : 0;
        if (err) {
            json_decref(status);
            break;
        }
        first = false;
        state = rb_goal_look(goal, status);
        tell_notes(&progress, status, &told);
        if (state == RB_GOAL_AHEAD || session->terminal)
            rb_progress_show(&progress, status);
        if (state != RB_GOAL_AHEAD) {
            rb_progress_end(&progress);
            print_outcome(session, job, status);
        }
        if (state == RB_GOAL_MISSED)
            tell_missed(session, job, goal);
        json_decref(status);
        if (state == RB_GOAL_AHEAD)
            err = rb_session_sleep(session, fresh ? POLL_MS : SLOW_POLL_MS, deadline, &why);
        if (err)
            break;
    }
    json_decref(told);
    rb_progress_end(&progress);
    if (err == RB_ECANCELED) {
        fprintf(session->err, "rubatoctl: interrupted; %s goes on (rubatoctl wait %s --for done)\n",
                job, job);
        return RB_EXIT_INTERRUPTED;
    }
    if (err == RB_ETIMEOUT && deadline && rb_clock_ns() >= deadline)
        rb_why_set(&why, err, "timed out; %s goes on", job);
    if (err)
        return rb_session_fail(session, err, &why);
    return state == RB_GOAL_REACHED ? RB_EXIT_DONE : RB_EXIT_FAILED;
}
