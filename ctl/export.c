/* SPDX-License-Identifier: Apache-2.0 */
/* The weights come in pieces into a file, which gets its name when all are there. */
#include "base/clock.h"
#include "ctl/human.h"
#include "ctl/output.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>

enum { QUIET_MS = 600000, PARK_MS = 120000, RETRY_MS = 200 };

struct target {
    struct rb_output output;
    uint64_t bytes;
};

static int write_piece(void *context, const void *bytes, size_t size, struct rb_why *why)
{
    struct target *target = context;

    target->bytes += size;
    return rb_output_add(&target->output, bytes, size, why);
}

static int fetch(const struct rb_session *session, const char *job, struct target *target,
                 json_t **ret_reply, struct rb_why *why)
{
    json_t *body = json_pack("{s:s}", "job", job);
    struct rb_client_call call = {
        .to = session->to,
        .method = "export",
        .node = "leader",
        .body = body,
        .quiet_ms = QUIET_MS,
        .piece = write_piece,
        .context = target,
    };
    uint64_t start = rb_clock_ns();
    int err;

    do { /* RB_EAGAIN: nothing came, as the state is on its way to where it is kept */
        err = rb_client_call(&call, ret_reply, why);
    } while (err == RB_EAGAIN && rb_clock_ns() - start < (uint64_t)PARK_MS * 1000000 &&
             !(err = rb_session_sleep(session, RETRY_MS, 0, why)));
    json_decref(body);
    if (!err && rb_value_integer(*ret_reply, "bytes", -1) != (int64_t)target->bytes) {
        err = rb_why_set(why, RB_EIO, "%" PRIu64 " bytes came of %" PRId64, target->bytes,
                         rb_value_integer(*ret_reply, "bytes", 0));
        json_decref(*ret_reply);
    }
    return err;
}

int rb_export(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *path = rb_arguments_value(arguments, "out"), *job = arguments->word[0];
    struct target target = {.bytes = 0};
    char text[RB_HUMAN_SIZE];
    json_t *reply = NULL;
    struct rb_why why = {0};
    int err;

    if (!path || !path[0])
        return rb_session_usage(session, "--out says where to");
    err = rb_output_open(session, path, &target.output, &why);
    if (!err)
        err = rb_output_close(&target.output, fetch(session, job, &target, &reply, &why), &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else
        fprintf(session->out, "%s: step %" PRId64 " of %s, %s\n", target.output.path,
                rb_value_integer(reply, "step", 0), job,
                rb_human_bytes((double)target.bytes, text));
    if (session->format == RB_FORMAT_TABLE)
        rb_session_notes(session, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}
