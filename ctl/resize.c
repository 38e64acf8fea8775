/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <string.h>

/* ---- The receipt ---- */

/* The receipt's fields in the order and spelling that scripts rely on, and their names in facts. */
static const struct {
    const char *name, *fact;
} receipt_fields[] = {
    {"from", "from"},
    {"to", "to"},
    {"configuration", "configuration"},
    {"step", "step"},
    {"stall_ms", "stallMs"},
    {"ready_ms", "readyMs"},
    {"bytes_moved", "bytesMoved"},
    {"steps_lost", "stepsLost"},
    {"samples_repeated", "samplesRepeated"},
    {"samples_skipped", "samplesSkipped"},
};

static json_t *spell_receipt(const json_t *fact)
{
    json_t *receipt = json_object();

    for (size_t i = 0; i < RB_COUNT(receipt_fields); i++) {
        json_t *value = json_object_get(fact, receipt_fields[i].fact);

        if (!value)
            value = json_object_get(fact, receipt_fields[i].name);
        if (value)
            json_object_set(receipt, receipt_fields[i].name, value);
        else
            json_object_set_new(receipt, receipt_fields[i].name, json_integer(0));
    }
    return receipt;
}

/* How the new set runs, and the reason where the planner chose it. */
static void add_plan(json_t *receipt, const json_t *plan)
{
    const char *summary = rb_value_text(plan, "summary", NULL);
    const char *chosen = rb_value_text(plan, "chosen", NULL);

    if (summary)
        json_object_set_new(receipt, "plan", json_string(summary));
    if (chosen)
        json_object_set_new(receipt, "chosen", json_string(chosen));
}

static void print_receipt(const struct rb_session *session, const json_t *receipt)
{
    struct rb_table page = RB_PAGE;
    char text[RB_HUMAN_SIZE];

    if (session->format != RB_FORMAT_TABLE) {
        rb_session_print(session, receipt);
        return;
    }
    rb_page_add(&page, "devices", "%" PRId64 " -> %" PRId64, rb_value_integer(receipt, "from", 0),
                rb_value_integer(receipt, "to", 0));
    rb_page_add(&page, "configuration", "%" PRId64, rb_value_integer(receipt, "configuration", 0));
    if (rb_value_text(receipt, "plan", NULL))
        rb_page_add(&page, "plan", "%s", rb_value_text(receipt, "plan", ""));
    if (rb_value_text(receipt, "chosen", NULL))
        rb_page_add(&page, "planner", "%s", rb_value_text(receipt, "chosen", ""));
    rb_page_add(&page, "first step", "%" PRId64, rb_value_integer(receipt, "step", 0));
    rb_page_add(&page, "stall", "%.0f ms", rb_value_real(receipt, "stall_ms", 0));
    rb_page_add(&page, "ready after", "%.0f ms", rb_value_real(receipt, "ready_ms", 0));
    rb_page_add(&page, "moved", "%s",
                rb_human_bytes(rb_value_real(receipt, "bytes_moved", 0), text));
    rb_page_add(&page, "steps lost", "%" PRId64, rb_value_integer(receipt, "steps_lost", 0));
    rb_page_add(&page, "samples", "%" PRId64 " repeated, %" PRId64 " skipped",
                rb_value_integer(receipt, "samples_repeated", 0),
                rb_value_integer(receipt, "samples_skipped", 0));
    rb_page_print(session, &page);
}

/* Nothing changed, so nothing was paid: for scripts the receipt is all zeros. */
static int print_unchanged(const struct rb_session *session, const char *job, const json_t *reply)
{
    int64_t devices = rb_value_integer(reply, "want", 0);
    json_t *status = NULL, *fact, *receipt;
    struct rb_why why = {0};
    int err = rb_session_call(session, "status", json_pack("{s:s}", "job", job), 0, &status, &why);

    if (err)
        return rb_session_fail(session, err, &why);
    fact = json_object();
    json_object_set_new(fact, "from", json_integer(devices));
    json_object_set_new(fact, "to", json_integer(devices));
    json_object_set(fact, "configuration", json_object_get(status, "configuration"));
    json_object_set(fact, "step", json_object_get(status, "step"));
    receipt = spell_receipt(fact);
    fprintf(session->err, "rubatoctl: %s has %" PRId64 " device%s already\n", job, devices,
            devices == 1 ? "" : "s");
    print_receipt(session, receipt);
    json_decref(receipt);
    json_decref(fact);
    json_decref(status);
    return RB_EXIT_DONE;
}

static json_t *receipt_body(const char *job, const json_t *reply)
{
    json_t *body = json_pack("{s:s}", "job", job);

    json_object_set(body, "asked", json_object_get(reply, "asked"));
    return body;
}

/* A job that has ended flips no more; its last receipt may take a moment. */
enum { POLL_MS = 100, POLLS_AFTER_END = 50 };

static int await_receipt(const struct rb_session *session, const char *job, const json_t *reply,
                         uint64_t deadline)
{
    struct rb_why why = {0};
    int after_end = 0;

    for (;;) {
        json_t *answer = NULL;
        const json_t *fact;
        bool done;
        int err = rb_session_ask_again(session, "receipt", receipt_body(job, reply), deadline,
                                       &answer, &why);

        if (err)
            return rb_session_fail(session, err, &why);
        fact = json_object_get(answer, "receipt");
        done = rb_value_true(answer, "done");
        if (done && rb_value_true(answer, "unchanged")) {
            json_decref(answer);
            return print_unchanged(session, job, reply);
        }
        if (done && json_is_object(fact)) {
            json_t *receipt = spell_receipt(fact);

            add_plan(receipt, json_object_get(answer, "plan"));
            print_receipt(session, receipt);
            json_decref(receipt);
            json_decref(answer);
            return RB_EXIT_DONE;
        }
        if (done || (rb_value_over(answer) && ++after_end > POLLS_AFTER_END)) {
            fprintf(session->err, "rubatoctl: the resize of %s did not happen: %s\n", job,
                    rb_value_text(answer, "reason", rb_value_text(answer, "phase", "given up")));
            json_decref(answer);
            return RB_EXIT_FAILED;
        }
        json_decref(answer);
        err = rb_session_sleep(session, POLL_MS, deadline, &why);
        if (err == RB_ETIMEOUT)
            rb_why_set(&why, err, "timed out; the resize of %s goes on", job);
        if (err)
            return rb_session_fail(session, err, &why);
    }
}

/* ---- The request ---- */

/* "a:0,a:1" into the list; RB_EINVAL unless all are NODE:INDEX. */
static int add_devices(json_t *list, const char *text, struct rb_why *why)
{
    while (*text) {
        size_t size = strcspn(text, ",");
        RB_CLEANUP(rb_freep) char *device = rb_format("%.*s", (int)size, text);
        const char *colon = strrchr(device, ':');

        if (!colon || colon == device || !colon[1] ||
            strspn(colon + 1, "0123456789") != strlen(colon + 1))
            return rb_why_set(why, RB_EINVAL, "'%.60s' is no device: expected NODE:INDEX", device);
        json_array_append_new(list, json_string(device));
        text += size + (text[size] == ',');
    }
    return 0;
}

static int pinned(const struct rb_arguments *arguments, json_t *body, struct rb_why *why)
{
    const char *texts[RB_ARGUMENTS_MAX];
    int n = rb_arguments_values(arguments, "devices", texts), err = 0;
    json_t *list = json_array();

    for (int i = 0; i < n && !err; i++)
        err = add_devices(list, texts[i], why);
    if (!err && json_array_size(list))
        json_object_set(body, "devices", list);
    json_decref(list);
    return err;
}

static int print_asked(const struct rb_session *session, const char *job, const json_t *reply)
{
    int64_t from = rb_value_integer(reply, "from", 0), want = rb_value_integer(reply, "want", 0);
    int64_t wanted = rb_value_integer(reply, "wanted", from);
    const char *s = want == 1 ? "" : "s";

    if (session->format != RB_FORMAT_TABLE)
        return rb_session_print(session, reply);
    if (rb_value_true(reply, "unchanged"))
        fprintf(session->out, "%s: %" PRId64 " device%s already\n", job, want, s);
    else if (wanted == want && wanted != from)
        fprintf(session->out, "%s: still wants %" PRId64 " device%s, has %" PRId64 "\n", job, want,
                s, from);
    else if (wanted != from)
        fprintf(session->out,
                "%s: wants %" PRId64 " device%s instead of %" PRId64 ", has %" PRId64 "\n", job,
                want, s, wanted, from);
    else
        fprintf(session->out, "%s: %" PRId64 " -> %" PRId64 " device%s\n", job, from, want, s);
    return RB_EXIT_DONE;
}

static int request(struct rb_session *session, const struct rb_arguments *arguments, json_t *body)
{
    const char *job = arguments->word[0];
    bool wait = rb_arguments_has(arguments, "wait");
    json_t *reply = NULL;
    struct rb_why why = {0};
    uint64_t deadline;
    int err, code;

    if (rb_session_deadline(rb_arguments_value(arguments, "timeout"), wait, &deadline, &why)) {
        json_decref(body);
        return rb_session_usage(session, "%s", why.text);
    }
    json_object_set_new(body, "job", json_string(job));
    err = rb_session_call(session, "resize", body, deadline, &reply, &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (!wait)
        code = print_asked(session, job, reply);
    else if (rb_value_true(reply, "unchanged"))
        code = print_unchanged(session, job, reply);
    else
        code = await_receipt(session, job, reply, deadline);
    json_decref(reply);
    return code;
}

static int change(struct rb_session *session, const struct rb_arguments *arguments, const char *key)
{
    json_t *body = json_object();
    struct rb_why why = {0};
    int64_t n;

    if (rb_arguments_count(arguments->word[1], 1, 1 << 20, &n, &why) ||
        pinned(arguments, body, &why)) {
        json_decref(body);
        return rb_session_usage(session, "%s", why.text);
    }
    json_object_set_new(body, key, json_integer(n));
    return request(session, arguments, body);
}

int rb_grow(struct rb_session *session, const struct rb_arguments *arguments)
{
    return change(session, arguments, "grow");
}

int rb_shrink(struct rb_session *session, const struct rb_arguments *arguments)
{
    return change(session, arguments, "shrink");
}

/* Named devices are also counted. */
int rb_resize(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *want = rb_arguments_value(arguments, "want");
    json_t *body = json_object();
    struct rb_why why = {0};
    int64_t n = 0;
    int err = pinned(arguments, body, &why);

    if (!err && want)
        err = rb_arguments_count(want, 1, 1 << 20, &n, &why);
    if (!err && !want && !json_object_get(body, "devices"))
        err = rb_why_set(&why, RB_EINVAL, "--want says how many devices");
    if (err) {
        json_decref(body);
        return rb_session_usage(session, "%s", why.text);
    }
    json_object_set_new(body, "want", json_integer(want ? n : rb_value_count(body, "devices")));
    return request(session, arguments, body);
}
