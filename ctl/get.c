/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: one table of columns a kind. */
#include "ctl/get.h"

#include "base/clock.h"
#include "ctl/human.h"
#include "ctl/table.h"
#include "ctl/value.h"
#include "ctl/verbs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum how { TEXT, COUNT, WHOLE, REAL, BYTES, MS, AGE, TIME, STEP };

struct column {
    const char *title, *key, *other; /* other: read this where `key` is not there */
    enum how how;
    const char *in; /* the item's member that has it; NULL: the item itself */
};

struct kind {
    const char *name;
    struct column column[16];
    bool of_nodes; /* and not of a job */
};

static const struct kind kinds[] = {
    {"jobs",
     {{"NAME", "name", NULL, TEXT},
      {"PHASE", "phase", NULL, TEXT},
      {"STEP", "step", "steps", STEP},
      {"LOSS", "loss", NULL, REAL},
      {"DEVICES", "devices", NULL, COUNT},
      {"WANT", "want", NULL, WHOLE},
      {"AGE", "created", NULL, AGE}}},
    {"nodes",
     {{"NAME", "name", NULL, TEXT},
      {"STATE", "state", NULL, TEXT},
      {"LEFT BY", "deadline", NULL, TIME},
      {"DEVICES", "devices", NULL, COUNT},
      {"NETWORK/S", "networkBandwidth", NULL, BYTES},
      {"ADDRESS", "address", NULL, TEXT},
      {"UP", "started", NULL, AGE}},
     true},
    {"devices",
     {{"NODE", "node", NULL, TEXT},
      {"DEVICE", "device", "index", WHOLE},
      {"KIND", "kind", NULL, TEXT},
      {"JOB", "job", NULL, TEXT},
      {"NAME", "name", NULL, TEXT},
      {"HEALTH", "sick", "slow", TEXT}},
     true},
    {"configurations",
     {{"JOB", "job", NULL, TEXT},
      {"NUMBER", "number", NULL, WHOLE},
      {"STATE", "state", NULL, TEXT},
      {"CAUSE", "cause", NULL, TEXT},
      {"FROM", "from", NULL, WHOLE, "receipt"},
      {"DEVICES", "devices", "members", COUNT},
      {"SHARES", "shares", NULL, TEXT},
      {"STEP", "step", NULL, WHOLE, "receipt"},
      {"STALL", "stall_ms", NULL, MS, "receipt"},
      {"READY", "ready_ms", NULL, MS, "receipt"},
      {"MOVED", "bytes_moved", NULL, BYTES, "receipt"},
      {"LOST", "steps_lost", NULL, WHOLE, "receipt"},
      {"REPEATED", "samples_repeated", NULL, WHOLE, "receipt"},
      {"SKIPPED", "samples_skipped", NULL, WHOLE, "receipt"},
      {"AGE", "created", NULL, AGE}}},
    {"checkpoints",
     {{"JOB", "job", NULL, TEXT},
      {"STEP", "step", NULL, WHOLE},
      {"SIZE", "bytes", NULL, BYTES},
      {"AGE", "time", NULL, AGE},
      {"NODE", "node", NULL, TEXT},
      {"PATH", "path", NULL, TEXT}}},
    {"events",
     {{"TIME", "time", NULL, TIME},
      {"JOB", "job", NULL, TEXT},
      {"NODE", "node", NULL, TEXT},
      {"KIND", "kind", NULL, TEXT},
      {"TEXT", "text", NULL, TEXT}}},
};

static const char *whole(const json_t *item, const char *key, char text[RB_HUMAN_SIZE])
{
    if (!json_is_integer(json_object_get(item, key)))
        return "-";
    snprintf(text, RB_HUMAN_SIZE, "%" PRId64, rb_value_integer(item, key, 0));
    return text;
}

static void add_cell(struct rb_table *table, const struct column *column, const json_t *item)
{
    const char *key = column->key;
    char text[RB_HUMAN_SIZE], step[2 * RB_HUMAN_SIZE], last[RB_HUMAN_SIZE];
    double x;

    if (column->in)
        item = json_object_get(item, column->in);
    if (column->other && column->how != STEP && !json_object_get(item, key))
        key = column->other;
    x = rb_value_real(item, key, NAN);
    if (column->how == TEXT) {
        rb_table_add(table, rb_value_text(item, key, "-"));
        return;
    }
    if (column->how == WHOLE) {
        rb_table_add(table, whole(item, key, text));
        return;
    }
    if (column->how == COUNT && rb_value_there(item, key)) {
        snprintf(text, sizeof text, "%" PRId64, rb_value_count(item, key));
        rb_table_add(table, text);
        return;
    }
    if (column->how == STEP) {
        snprintf(step, sizeof step, "%s/%s", whole(item, key, text),
                 whole(item, column->other, last));
        rb_table_add(table, step);
        return;
    }
    if (!rb_value_there(item, key))
        rb_table_add(table, "-");
    else if (column->how == MS) {
        snprintf(text, sizeof text, "%.1f ms", x);
        rb_table_add(table, text);
    } else if (column->how == BYTES)
        rb_table_add(table, rb_human_bytes(x, text));
    else if (column->how == AGE)
        rb_table_add(table, rb_human_span(((double)rb_clock_unix_ms() - x) / 1e3, text));
    else if (column->how == TIME)
        rb_table_add(table, rb_human_time((uint64_t)x, text));
    else
        rb_table_add(table, rb_human_real(x, text));
}

static void put_items(const struct kind *kind, const json_t *items, struct rb_buffer *out)
{
    struct rb_table table = {0};
    char align[RB_COUNT(kinds[0].column) + 1] = "";
    const json_t *item;
    size_t i;

    while (kind->column[table.columns].title) {
        enum how how = kind->column[table.columns].how;

        align[table.columns] = how == TEXT || how == TIME ? 'l' : 'r';
        rb_table_add(&table, kind->column[table.columns++].title);
    }
    json_array_foreach(items, i, item)
    {
        for (int c = 0; c < table.columns; c++)
            add_cell(&table, &kind->column[c], item);
    }
    rb_table_print(&table, align, out);
    rb_table_done(&table);
}

void rb_get_jobs(const json_t *items, struct rb_buffer *out)
{
    put_items(&kinds[0], items, out);
}

static int list(struct rb_session *session, const struct kind *kind, const char *job)
{
    json_t *body = json_object(), *reply = NULL;
    struct rb_buffer text = {0};
    struct rb_why why = {0};
    int err;

    if (strcmp(kind->name, "events") != 0)
        json_object_set_new(body, "kind", json_string(kind->name));
    if (job)
        json_object_set_new(body, "job", json_string(job));
    err = rb_session_call(session, strcmp(kind->name, "events") == 0 ? "events" : "get", body, 0,
                          &reply, &why);
    if (err)
        return rb_session_fail(session, err, &why);
    if (session->format != RB_FORMAT_TABLE)
        rb_session_print(session, reply);
    else if (rb_value_count(reply, "items") == 0)
        fprintf(session->err, "no %s\n", kind->name);
    else {
        put_items(kind, json_object_get(reply, "items"), &text);
        rb_session_put(session, &text);
    }
    if (session->format == RB_FORMAT_TABLE)
        rb_session_notes(session, reply);
    json_decref(reply);
    return RB_EXIT_DONE;
}

int rb_get(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *name = arguments->word[0];
    const char *job = arguments->n_words > 1 ? arguments->word[1] : NULL;

    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        if (job && kinds[i].of_nodes)
            return rb_session_usage(session, "get %s takes no job", name);
        return list(session, &kinds[i], job);
    }
    return rb_session_usage(session,
                            "there are no '%.40s': jobs, nodes, devices, configurations, "
                            "checkpoints or events",
                            name);
}

int rb_events(struct rb_session *session, const struct rb_arguments *arguments)
{
    return list(session, &kinds[RB_COUNT(kinds) - 1],
                arguments->n_words ? arguments->word[0] : NULL);
}
