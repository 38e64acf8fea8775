/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/same_rows.h"

#include "base/error.h"
#include "ctl/value.h"

#include <stdio.h>
#include <string.h>

/* Times, devices and configurations may differ, and so may redone: a step that a death breaks off
 * is redone. */
static const char *const columns[] = {"loss",    "grad_norm", "lr",        "first_sample",
                                      "samples", "skipped",   "eval_loss", "eval_accuracy"};

struct page {
    const json_t *columns, *rows;
    size_t at; /* the next row */
};

static struct page page_of(const json_t *reply)
{
    return (struct page){json_object_get(reply, "columns"), json_object_get(reply, "rows"), 0};
}

static int64_t step_at(const struct page *page, size_t i)
{
    return rb_value_cell(page->columns, json_array_get(page->rows, i), "step", 0);
}

static void see_devices(struct rb_devices_seen *seen, const struct page *page)
{
    int64_t n = rb_value_cell(page->columns, json_array_get(page->rows, page->at), "devices", 0);

    if (!seen->most || n < seen->least)
        seen->least = n;
    if (n > seen->most)
        seen->most = n;
}

/* Null for a missing value. */
static json_t *value_of(json_t *row, const char *column)
{
    json_t *value = json_object_get(row, column);

    return value ? json_incref(value) : json_null();
}

static void compare(struct rb_same_rows *same, const struct page *there, const struct page *again)
{
    json_t *a = rb_value_row(there->columns, json_array_get(there->rows, there->at));
    json_t *b = rb_value_row(again->columns, json_array_get(again->rows, again->at));

    for (size_t i = 0; i < RB_COUNT(columns) && !same->step; i++) {
        json_t *one = value_of(a, columns[i]), *other = value_of(b, columns[i]);

        if (json_equal(one, other)) {
            json_decref(one);
            json_decref(other);
            continue;
        }
        same->step = step_at(there, there->at);
        snprintf(same->column, sizeof same->column, "%s", columns[i]);
        same->value_there = one;
        same->value_again = other;
    }
    json_decref(a);
    json_decref(b);
}

static void add_step(struct rb_same_rows *same, const struct page *there, const struct page *again)
{
    same->last = step_at(there, there->at);
    same->first = same->rows++ ? same->first : same->last;
    see_devices(&same->there, there);
    see_devices(&same->again, again);
    compare(same, there, again);
}

/* The step up to which both are known: if `there` has no rows behind `after`, none will come. */
static int64_t end_of(const struct page *there, const struct page *again)
{
    const size_t n = json_array_size(there->rows), m = json_array_size(again->rows);
    const int64_t end_there = n ? step_at(there, n - 1) : INT64_MAX;
    const int64_t end_again = m ? step_at(again, m - 1) : 0;

    return end_there < end_again ? end_there : end_again;
}

void rb_same_rows_add(struct rb_same_rows *same, const json_t *reply_there,
                      const json_t *reply_again, int64_t until)
{
    struct page there = page_of(reply_there), again = page_of(reply_again);
    const int64_t known = end_of(&there, &again), end = known < until ? known : until;

    while (!same->step && there.at < json_array_size(there.rows) &&
           again.at < json_array_size(again.rows)) {
        const int64_t a = step_at(&there, there.at), b = step_at(&again, again.at);

        if (a > end || b > end)
            break;
        if (a == b)
            add_step(same, &there, &again);
        there.at += a <= b;
        again.at += b <= a;
    }
    if (end > same->after)
        same->after = end;
}

void rb_same_rows_done(struct rb_same_rows *same)
{
    json_decref(same->value_there);
    json_decref(same->value_again);
}
