/* SPDX-License-Identifier: Apache-2.0 */
/* The weights come in pieces into a file, which gets its name when all have arrived. */
#include "ctl/human.h"
#include "ctl/output.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "ctl/weights.h"

#include <inttypes.h>

static int write_piece(void *context, const void *bytes, size_t size, struct rb_why *why)
{
    return rb_output_add(context, bytes, size, why);
}

int rb_export(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *path = rb_arguments_value(arguments, "out"), *job = arguments->word[0];
    struct rb_output output;
    char text[RB_HUMAN_SIZE];
    json_t *reply = NULL;
    struct rb_why why = {0};
    int err;

    if (!path || !path[0])
        return rb_session_usage(session, "--out says where to");
    err = rb_output_open(session, path, &output, &why);
    if (!err)
        err = rb_output_close(
            &output, rb_weights_fetch(session, job, write_piece, &output, &reply, &why), &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else
        fprintf(session->out, "%s: step %" PRId64 " of %s, %s\n", output.path,
                rb_value_integer(reply, "step", 0), job,
                rb_human_bytes(rb_value_real(reply, "bytes", 0), text));
    if (session->format == RB_FORMAT_TABLE)
        rb_session_notes(session, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}
