/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_progress(struct rb_table *page, const json_t *status)
{
    int64_t step = rb_value_integer(status, "step", 0),
            steps = rb_value_integer(status, "steps", 0);
    double rate = rb_value_real(status, "throughput", 0);
    double samples = rb_value_real(status, "samples", 0);
    double eval = rb_value_real(status, "evalLoss", NAN);
    double accuracy = rb_value_real(status, "evalAccuracy", NAN);
    char text[RB_HUMAN_SIZE], more[RB_HUMAN_SIZE];

    rb_page_add(page, "step", "%" PRId64 "/%" PRId64 " (%.1f %%)", step, steps,
                steps ? 100.0 * (double)step / (double)steps : 0);
    if (rb_value_there(status, "loss"))
        rb_page_add(page, "loss", "%s", rb_human_real(rb_value_real(status, "loss", NAN), text));
    if (!isnan(eval) && isnan(accuracy))
        rb_page_add(page, "evaluation", "loss %s", rb_human_real(eval, text));
    else if (!isnan(eval))
        rb_page_add(page, "evaluation", "loss %s, accuracy %.2f %%", rb_human_real(eval, text),
                    100 * accuracy);
    rb_page_add(page, "samples", "%s", rb_human_count(samples, text));
    if (rate > 0 && step && steps > step)
        rb_page_add(page, "throughput", "%s samples/s, eta %s", rb_human_count(rate, text),
                    rb_human_span((double)(steps - step) * samples / (double)step / rate, more));
    else if (rate > 0)
        rb_page_add(page, "throughput", "%s samples/s", rb_human_count(rate, text));
}

/* ", 16 microbatches of 20.5 ms", and for a straggler the time of the others */
static void say_share(const json_t *device, char *text, size_t room)
{
    int64_t share = rb_value_integer(device, "microbatches", -1);
    double ms = rb_value_real(device, "microbatchMs", NAN);
    const json_t *straggler = json_object_get(device, "straggler");
    int n;

    if (share < 0)
        return;
    n = snprintf(text, room, ", %" PRId64 " microbatch%s", share, share == 1 ? "" : "es");
    if (!isnan(ms) && n > 0 && (size_t)n < room)
        n += snprintf(text + n, room - (size_t)n, " of %.3g ms", ms);
    if (straggler && n > 0 && (size_t)n < room)
        snprintf(text + n, room - (size_t)n,
                 ", a straggler: took %.3g ms where the others took %.3g",
                 rb_value_real(straggler, "microbatchMs", NAN),
                 rb_value_real(straggler, "othersMs", NAN));
}

static void add_devices(struct rb_table *page, const json_t *status)
{
    const json_t *devices = json_object_get(status, "devices"), *device;
    size_t i;

    rb_page_add(page, "devices", "%" PRId64 " (want %" PRId64 ", %" PRId64 " to %" PRId64 ")",
                rb_value_count(status, "devices"), rb_value_integer(status, "want", 0),
                rb_value_integer(status, "min", 0), rb_value_integer(status, "max", 0));
    json_array_foreach(devices, i, device)
    {
        int64_t pid = rb_value_integer(device, "pid", 0);
        char text[RB_HUMAN_SIZE] = "", share[4 * RB_HUMAN_SIZE] = "";

        say_share(device, share, sizeof share);
        if (pid)
            snprintf(text, sizeof text, ", pid %" PRId64, pid);
        rb_page_add(page, "", "%s:%" PRId64 " %s%s%s", rb_value_text(device, "node", "?"),
                    rb_value_integer(device, "device", 0), rb_value_text(device, "kind", "?"), text,
                    share);
    }
}

static void add_checkpoint(struct rb_table *page, const json_t *status)
{
    const json_t *checkpoint = json_object_get(status, "checkpoint");

    if (json_is_object(checkpoint))
        rb_page_add(page, "checkpoint", "step %" PRId64 ", %s",
                    rb_value_integer(checkpoint, "step", 0),
                    rb_value_text(checkpoint, "path", "?"));
    else if (json_is_integer(checkpoint))
        rb_page_add(page, "checkpoint", "step %" PRId64, (int64_t)json_integer_value(checkpoint));
    else if (rb_value_text(status, "checkpoint", NULL))
        rb_page_add(page, "checkpoint", "%s", rb_value_text(status, "checkpoint", ""));
    if (rb_value_text(status, "checkpointFailed", NULL))
        rb_page_add(page, "checkpoint", "failed: %s",
                    rb_value_text(status, "checkpointFailed", ""));
}

static void print_status(const struct rb_session *session, const json_t *status)
{
    const char *reason = rb_value_text(status, "reason", NULL);
    const json_t *plan = json_object_get(status, "plan");
    int64_t configuration = rb_value_integer(status, "configuration", 0);
    struct rb_table page = RB_PAGE;

    rb_page_add(&page, "job", "%s", rb_value_text(status, "name", "?"));
    rb_page_add(&page, "phase", "%s", rb_value_text(status, "phase", "?"));
    if (reason)
        rb_page_add(&page, "reason", "%s", reason);
    add_progress(&page, status);
    if (configuration)
        rb_page_add(&page, "configuration", "%" PRId64 ": %s", configuration,
                    rb_value_text(plan, "summary", "-"));
    if (rb_value_text(plan, "chosen", NULL))
        rb_page_add(&page, "planner", "%s", rb_value_text(plan, "chosen", ""));
    add_devices(&page, status);
    add_checkpoint(&page, status);
    rb_page_print(session, &page);
}

static int ask(struct rb_session *session, const char *method, const char *job, json_t **ret_reply)
{
    struct rb_why why = {0};
    int err = rb_session_call(session, method, json_pack("{s:s}", "job", job), 0, ret_reply, &why);

    return err ? rb_session_fail(session, err, &why) : 0;
}

int rb_status(struct rb_session *session, const struct rb_arguments *arguments)
{
    json_t *reply = NULL;
    int code = ask(session, "status", arguments->word[0], &reply);

    if (code)
        return code;
    if (session->format == RB_FORMAT_TABLE) {
        print_status(session, reply);
        rb_session_notes(session, reply);
    } else {
        rb_session_print(session, reply);
    }
    json_decref(reply);
    return RB_EXIT_DONE;
}

/* Raw facts have no table: YAML is their readable form. */
int rb_describe(struct rb_session *session, const struct rb_arguments *arguments)
{
    json_t *reply = NULL;
    int code = ask(session, "describe", arguments->word[0], &reply);

    if (code)
        return code;
    rb_session_print(session, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}
