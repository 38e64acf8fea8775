/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/model_page.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/value.h"

#include <inttypes.h>

static char *type_text(const json_t *report)
{
    const json_t *shape = json_object_get(report, "shape"), *dim;
    struct rb_buffer text = {0};
    size_t i;

    rb_buffer_format(&text, "'%s': %s[", rb_value_text(report, "name", "?"),
                     rb_value_text(report, "type", "?"));
    json_array_foreach(shape, i, dim)
    {
        rb_buffer_text(&text, i ? ", " : "");
        if (json_is_integer(dim))
            rb_buffer_format(&text, "%" PRId64, (int64_t)json_integer_value(dim));
        else
            rb_buffer_text(&text, json_string_value(dim));
    }
    rb_buffer_text(&text, "]");
    return rb_buffer_take(&text);
}

static void add_types(struct rb_table *page, const char *name, const json_t *list)
{
    const json_t *type;
    size_t i;

    json_array_foreach(list, i, type)
    {
        RB_CLEANUP(rb_freep) char *text = type_text(type);

        rb_page_add(page, i ? "" : name, "%s", text);
    }
}

static void add_graph(struct rb_table *page, const json_t *report)
{
    const json_t *operators = json_object_get(report, "operators"), *count, *note;
    const json_t *notes = json_object_get(report, "notes");
    struct rb_buffer text = {0};
    char human[RB_HUMAN_SIZE];
    const char *name;
    size_t i;

    add_types(page, "outputs", json_object_get(report, "outputs"));
    rb_page_add(page, "parameters", "%s (%" PRId64 ") in %" PRId64 " tensors",
                rb_human_count(rb_value_real(report, "parameters", 0), human),
                rb_value_integer(report, "parameters", 0), rb_value_count(report, "trained"));
    json_object_foreach((json_t *)operators, name, count)
    {
        rb_buffer_format(&text, "%s%" PRId64 " %s", text.size ? ", " : "",
                         (int64_t)json_integer_value(count), name);
    }
    rb_page_add(page, "operators", "%s", text.data ? text.data : "none");
    rb_buffer_done(&text);
    add_types(page, "will be trained", json_object_get(report, "trained"));
    add_types(page, "buffers", json_object_get(report, "buffers"));
    json_array_foreach(notes, i, note)
    {
        rb_page_add(page, i ? "" : "notes", "%s", json_string_value(note));
    }
}

static void add_mistakes(struct rb_table *page, const json_t *report)
{
    const json_t *mistakes = json_object_get(report, "mistakes"), *one;
    size_t i;

    json_array_foreach(mistakes, i, one)
    {
        rb_page_add(page, i ? "" : "exported", "%s", rb_value_text(one, "mistake", "?"));
        rb_page_add(page, "", "-> %s", rb_value_text(one, "remedy", "?"));
    }
    if (json_object_get(report, "export"))
        rb_page_add(page, "export it with", "%s", rb_value_text(report, "export", "?"));
}

void rb_model_page(const struct rb_session *session, const json_t *report)
{
    int64_t batch = rb_value_integer(report, "batch", 0);
    struct rb_table page = RB_PAGE;

    rb_page_add(&page, "model", "%s", rb_value_text(report, "file", "?"));
    rb_page_add(&page, "made by", "%s, opset %" PRId64 ", IR %" PRId64,
                rb_value_text(report, "producer", "an unnamed exporter"),
                rb_value_integer(report, "opset", 0), rb_value_integer(report, "irVersion", 0));
    rb_page_add(&page, "holds", "%" PRId64 " nodes, %" PRId64 " initializers",
                rb_value_integer(report, "nodes", 0), rb_value_integer(report, "initializers", 0));
    add_types(&page, rb_value_count(report, "inputs") > 1 ? "inputs" : "input",
              json_object_get(report, "inputs"));
    if (batch)
        rb_page_add(&page, "batch", "%" PRId64 " sample%s, no other", batch, batch == 1 ? "" : "s");
    else
        rb_page_add(&page, "batch", "any");
    if (json_object_get(report, "operators"))
        add_graph(&page, report);
    add_mistakes(&page, report);
    rb_page_add(&page, "trainable", "%s",
                rb_value_true(report, "trainable") ? "yes" : rb_value_text(report, "reason", "no"));
    rb_page_print(session, &page);
}
