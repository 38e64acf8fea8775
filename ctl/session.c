/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/session.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/signals.h"
#include "ctl/value.h"
#include "ctl/write.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

enum { QUIET_MS = 600000, READ_MS = 60000, HEARD_MS = 1500, GRACE_MS = 30000, RETRY_MS = 300 };

int rb_session_exit(int err)
{
    switch (err) {
    case RB_OK:
        return RB_EXIT_DONE;
    case RB_ENOTFOUND:
        return RB_EXIT_NOT_FOUND;
    case RB_EREFUSED:
    case RB_EINVAL:
    case RB_ELIMIT:
    case RB_EUNSUPPORTED:
    case RB_EEXISTS:
    case RB_EFULL:
        return RB_EXIT_REFUSED;
    case RB_EUNREACHABLE:
    case RB_EAGAIN:
        return RB_EXIT_UNREACHABLE;
    case RB_ETIMEOUT:
        return RB_EXIT_TIMEOUT;
    case RB_ECANCELED:
        return RB_EXIT_INTERRUPTED;
    default:
        return RB_EXIT_FAILED;
    }
}

int rb_session_fail(const struct rb_session *session, int err, const struct rb_why *why)
{
    fprintf(session->err, "rubatoctl: %s\n", why->text[0] ? why->text : rb_error_text(err));
    if (err == RB_ECANCELED && session->to.interrupt_fd >= 0)
        fprintf(session->err, "rubatoctl: nothing that was asked for is undone; jobs go on\n");
    return rb_session_exit(err);
}

int rb_session_usage(const struct rb_session *session, const char *format, ...)
{
    va_list args;

    fputs("rubatoctl: ", session->err);
    va_start(args, format);
    vfprintf(session->err, format, args);
    va_end(args);
    if (session->verb)
        fprintf(session->err, "; see: rubatoctl help %s\n", session->verb);
    else
        fputs("; see: rubatoctl help\n", session->err);
    return RB_EXIT_USAGE;
}

/* Does the method only read facts and rows?  Even so rubatod may wait half a minute for a silent
 * node. */
static bool only_reads(const char *method)
{
    static const char *const reads[] = {"version", "get",  "status",  "describe", "events",
                                        "metrics", "logs", "receipt", "cluster"};

    for (size_t i = 0; i < RB_COUNT(reads); i++)
        if (!strcmp(method, reads[i]))
            return true;
    return false;
}

/* How long a call may be quiet: `most`, or until the deadline.  The deadline limits the waiting, so
 * a call has at least HEARD_MS, in which a rubatod that is there answers. */
static int64_t quiet_until(int64_t most, uint64_t deadline)
{
    uint64_t now = rb_clock_ns();

    if (!deadline || deadline > now + (uint64_t)most * 1000000)
        return most;
    if (deadline < now + (uint64_t)HEARD_MS * 1000000)
        return HEARD_MS;
    return (int64_t)((deadline - now) / 1000000) + 1;
}

static bool is_over(uint64_t deadline)
{
    return deadline && rb_clock_ns() >= deadline;
}

/* The call was ended not by --timeout but by the silence of rubatod, or of etcd towards rubatod. */
static int unknown(const char *method, struct rb_why *why)
{
    struct rb_why told = *why;

    if (only_reads(method))
        return RB_EUNREACHABLE;
    return rb_why_set(why, RB_EUNREACHABLE, "%s: whether it was done is not known", told.text);
}

static int call(const struct rb_session *session, const char *method, json_t *body,
                int64_t quiet_ms, uint64_t deadline, json_t **ret_body, struct rb_why *why)
{
    struct rb_client_call one = {
        .to = session->to,
        .method = method,
        .node = "leader",
        .body = body,
    };
    uint64_t start = rb_clock_ns();
    int err;

    do { /* RB_EAGAIN: nothing was done, so any request may be repeated */
        one.quiet_ms = quiet_until(quiet_ms, deadline);
        err = rb_client_call(&one, ret_body, why);
    } while (err == RB_EAGAIN && rb_clock_ns() - start < (uint64_t)GRACE_MS * 1000000 &&
             !(err = rb_session_sleep(session, RETRY_MS, deadline, why)));
    json_decref(body);
    return err == RB_ETIMEOUT && !is_over(deadline) ? unknown(method, why) : err;
}

/* Ten minutes leave time for compiling a large model. */
int rb_session_call(const struct rb_session *session, const char *method, json_t *body,
                    uint64_t deadline, json_t **ret_body, struct rb_why *why)
{
    return call(session, method, body, only_reads(method) ? READ_MS : QUIET_MS, deadline, ret_body,
                why);
}

int rb_session_spec(const struct rb_session *session, const char *job, Rb__Spec **ret_spec,
                    char **ret_class, struct rb_why *why)
{
    json_t *reply = NULL;
    ProtobufCMessage *spec = NULL;
    RB_CLEANUP(rb_freep) char *class = NULL;
    int err = rb_session_call(session, "describe", json_pack("{s:s}", "job", job), 0, &reply, why);

    if (!err)
        err = rb_reflect_from_json(json_object_get(json_object_get(reply, "job"), "spec"),
                                   &rb__spec__descriptor, &spec, why);
    if (!err)
        err = rb_spec_check(job, (const Rb__Spec *)spec, why);
    if (!err)
        class = rb_string(rb_value_text(json_object_get(reply, "job"), "numericClass", "cpu"));
    json_decref(reply);
    if (!err) {
        *ret_spec = (Rb__Spec *)spec;
        *ret_class = RB_TAKE(class);
    } else if (spec) {
        protobuf_c_message_free_unpacked(spec, NULL);
    }
    return err;
}

/* Is the cause perhaps a rubatod that is being restarted, or a cluster that is electing its
 * leader? */
static bool may_come_back(int err)
{
    return err == RB_EUNREACHABLE || err == RB_EAGAIN || err == RB_ETIMEOUT;
}

int rb_session_ask_again(const struct rb_session *session, const char *method, json_t *body,
                         uint64_t deadline, json_t **ret_body, struct rb_why *why)
{
    uint64_t start = rb_clock_ns();
    bool said = false;
    int err;

    for (;;) {
        int slept;

        err = call(session, method, json_incref(body), QUIET_MS, deadline, ret_body, why);
        if (!may_come_back(err) || rb_clock_ns() - start > (uint64_t)GRACE_MS * 1000000)
            break;
        slept = rb_session_sleep(session, RETRY_MS, deadline, why);
        if (slept) {
            err = slept;
            break;
        }
        if (!said)
            fprintf(session->err, "rubatoctl: %s; trying again\n", why->text);
        said = true;
    }
    json_decref(body);
    return err;
}

void rb_session_heed_ends(const struct rb_session *session)
{
    static const int ends[] = {SIGTERM, SIGHUP};
    sigset_t set;

    if (session->to.interrupt_fd < 0)
        return;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    for (size_t i = 0; i < RB_COUNT(ends); i++)
        if (!rb_signal_ignored(ends[i])) /* blocking it would make it heard */
            sigaddset(&set, ends[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signalfd(session->to.interrupt_fd, &set, 0);
}

int rb_session_sleep(const struct rb_session *session, int ms, uint64_t deadline,
                     struct rb_why *why)
{
    uint64_t now = rb_clock_ns(), end = now + (uint64_t)ms * 1000000;
    struct pollfd interrupt = {session->to.interrupt_fd, POLLIN, 0};

    if (deadline && deadline < end)
        end = deadline;
    while (now < end) {
        if (poll(&interrupt, 1, (int)((end - now) / 1000000) + 1) > 0)
            return rb_why_set(why, RB_ECANCELED, "interrupted");
        now = rb_clock_ns();
    }
    if (deadline && now >= deadline)
        return rb_why_set(why, RB_ETIMEOUT, "timed out");
    return 0;
}

int rb_session_deadline(const char *timeout, bool waits, uint64_t *ret_deadline, struct rb_why *why)
{
    int64_t ms;

    *ret_deadline = 0;
    if (!timeout)
        return 0;
    if (rb_spec_duration_ms(timeout, &ms))
        return rb_why_set(why, RB_EINVAL, "--timeout '%.40s' is no duration: seconds, or 90s 5m 2h",
                          timeout);
    if (!waits)
        return rb_why_set(why, RB_EINVAL, "--timeout goes with --wait");
    *ret_deadline = rb_clock_ns() + (uint64_t)ms * 1000000;
    return 0;
}

int rb_session_print(const struct rb_session *session, const json_t *json)
{
    struct rb_buffer text = {0};

    if (session->format == RB_FORMAT_JSON)
        rb_write_json(json, &text);
    else
        rb_write_yaml(json, &text);
    rb_session_put(session, &text);
    return 0;
}

void rb_session_put(const struct rb_session *session, struct rb_buffer *text)
{
    fwrite(text->data, 1, text->size, session->out);
    rb_buffer_done(text);
}

void rb_session_notes(const struct rb_session *session, const json_t *reply)
{
    const json_t *note;
    size_t i;

    json_array_foreach(json_object_get(reply, "notes"), i, note)
    {
        fprintf(session->err, "%s\n", json_string_value(note));
    }
}
