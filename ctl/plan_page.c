/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/plan_page.h"

#include "base/arena.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/value.h"

#include <inttypes.h>

static void add_cell(struct rb_table *table, const char *format, double x)
{
    RB_CLEANUP(rb_freep) char *text = rb_format(format, x);

    rb_table_add(table, text);
}

static void add_bytes(struct rb_table *table, const json_t *object, const char *key)
{
    char text[RB_HUMAN_SIZE];

    rb_table_add(table, rb_human_bytes(rb_value_real(object, key, 0), text));
}

static void add_row(struct rb_table *table, int64_t devices, const json_t *one)
{
    const json_t *move = json_object_get(one, "move");

    add_cell(table, "%.0f", (double)devices);
    rb_table_add(table, rb_value_text(one, "name", "?"));
    rb_table_add(table, rb_value_text(one, "verdict", "?"));
    add_cell(table, "%.2f", rb_value_real(one, "stepMs", 0));
    add_cell(table, "%.1f", rb_value_real(one, "samplesPerSecond", 0));
    add_cell(table, "%.0f %%", 100 * rb_value_real(one, "idle", 0));
    add_bytes(table, one, "memoryBytes");
    add_bytes(table, one, "sentBytes");
    if (!json_is_object(move)) {
        rb_table_add(table, "-");
        rb_table_add(table, "-");
        return;
    }
    add_bytes(table, move, "bytes");
    add_cell(table, "%.1f", rb_value_real(move, "stallMs", 0));
}

void rb_plan_page(const struct rb_session *session, const json_t *report)
{
    static const char *const head[] = {"DEVICES", "PLAN",   "VERDICT", "STEP MS", "SAMPLES/S",
                                       "WAITS",   "MEMORY", "SENT",    "MOVED",   "STALL MS"};
    struct rb_table table = {.columns = RB_COUNT(head)}, page = RB_PAGE;
    const json_t *plan, *one, *cluster = json_object_get(report, "cluster");
    int64_t devices = rb_value_integer(cluster, "devices", 0);
    int64_t nodes = rb_value_integer(cluster, "nodes", 0);
    int64_t from = rb_value_integer(report, "from", 0);
    struct rb_buffer text = {0};
    size_t i, c;

    rb_page_add(&page, "model", "%s", rb_value_text(report, "model", "?"));
    rb_page_add(&page, "cluster", "%" PRId64 " device%s on %" PRId64 " node%s%s", devices,
                devices == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
                rb_value_true(report, "timedHere") ? ", a microbatch timed here" : "");
    rb_page_add(&page, "moves from", "%" PRId64 " device%s", from, from == 1 ? "" : "s");
    rb_page_print(session, &page);
    for (i = 0; i < RB_COUNT(head); i++)
        rb_table_add(&table, head[i]);
    json_array_foreach(json_object_get(report, "plans"), i, plan)
    {
        json_array_foreach(json_object_get(plan, "candidates"), c, one)
        {
            add_row(&table, rb_value_integer(plan, "devices", 0), one);
        }
    }
    rb_buffer_text(&text, "\n");
    rb_table_print(&table, "rllrrrrrrr", &text);
    rb_table_done(&table);
    rb_buffer_text(&text, "\n");
    json_array_foreach(json_object_get(report, "plans"), i, plan)
    {
        json_array_foreach(json_object_get(plan, "candidates"), c, one)
        {
            rb_buffer_format(&text, "%s: %s\n", rb_value_text(one, "name", "?"),
                             rb_value_text(one, "reason", "?"));
        }
    }
    rb_session_put(session, &text);
}
