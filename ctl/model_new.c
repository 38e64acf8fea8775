/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/human.h"
#include "ctl/output.h"
#include "ctl/verbs.h"
#include "graph/models/models.h"

int rb_model_new(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *settings[RB_ARGUMENTS_MAX], *path = rb_arguments_value(arguments, "out");
    int n = rb_arguments_values(arguments, "set", settings);
    struct rb_buffer onnx = {0};
    char text[RB_HUMAN_SIZE];
    struct rb_why why = {0};
    int err;

    if (!path || !path[0])
        return rb_session_usage(session, "--out says where to");
    err = rb_models_new(arguments->word[0], settings, n, &onnx, &why);
    if (!err)
        err = rb_output_write(session, path, onnx.data, onnx.size, &why);
    if (!err)
        fprintf(session->err, "rubatoctl: %s: a new %s of %s\n", path, arguments->word[0],
                rb_human_bytes((double)onnx.size, text));
    rb_buffer_done(&onnx);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
