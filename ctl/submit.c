/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/follow.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <inttypes.h>

static void print_submitted(const struct rb_session *session, const json_t *reply)
{
    int64_t resumed = rb_value_integer(reply, "resumeStep", 0);
    int64_t steps = rb_value_integer(reply, "steps", 0);

    if (session->format != RB_FORMAT_TABLE) {
        rb_session_print(session, reply);
        return;
    }
    fprintf(session->out, "%s: %s; %" PRId64 " step%s", rb_value_text(reply, "name", "?"),
            rb_value_text(reply, "summary", "submitted"), steps, steps == 1 ? "" : "s");
    if (resumed)
        fprintf(session->out, ", resumed from step %" PRId64, resumed);
    fputs("\n", session->out);
}

static void say_notes(const struct rb_session *session, const json_t *reply)
{
    const json_t *note;
    size_t i;

    json_array_foreach(json_object_get(reply, "notes"), i, note)
    {
        fprintf(session->err, "rubatoctl: %s\n", json_string_value(note));
    }
}

static int read_job(const struct rb_arguments *arguments, const char *path, json_t **ret_body,
                    char ret_name[64], struct rb_why *why)
{
    const char *overrides[RB_ARGUMENTS_MAX];
    int n = rb_arguments_values(arguments, "set", overrides);
    Rb__JobFile *job = NULL;
    int err = rb_spec_read(path, overrides, n, &job, why);

    if (err)
        return err;
    snprintf(ret_name, 64, "%s", job->metadata->name);
    *ret_body = json_object();
    json_object_set_new(*ret_body, "name", json_string(ret_name));
    json_object_set_new(*ret_body, "spec", rb_reflect_to_json(&job->spec->base, true));
    rb__job_file__free_unpacked(job, NULL);
    return 0;
}

int rb_submit(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *path = rb_arguments_value(arguments, "file");
    bool wait = rb_arguments_has(arguments, "wait");
    json_t *body = NULL, *reply = NULL;
    struct rb_goal done = {RB_GOAL_DONE, 0};
    struct rb_why why = {0};
    uint64_t deadline;
    char name[64];
    int err, code = RB_EXIT_DONE;

    if (!path)
        return rb_session_usage(session, "-f says which job file");
    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), wait, &deadline, &why))
        return rb_session_usage(session, "%s", why.text);
    err = read_job(arguments, path, &body, name, &why);
    if (!err)
        err = rb_session_call(session, "submit", body, 0, &reply, &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (!wait || session->format == RB_FORMAT_TABLE) /* one document: with --wait the outcome */
        print_submitted(session, reply);
    fflush(session->out);
    say_notes(session, reply);
    if (wait)
        code = rb_follow(session, name, rb_value_text(reply, "id", NULL), &done, deadline);
    else
        fprintf(session->err, "rubatoctl: see how it does with: rubatoctl status %s\n", name);
    json_decref(reply);
    return code;
}
