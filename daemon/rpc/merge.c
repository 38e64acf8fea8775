/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of metrics, as several nodes tell them, become one list. */
#include "daemon/rpc/methods_inside.h"

#include <stdlib.h>
#include <string.h>

struct row {
    json_int_t step, configuration, time;
    json_t *cells;
};

struct where {
    int step, configuration, time;
};

int rb_column(const json_t *columns, const char *name)
{
    const json_t *each;
    size_t i;

    json_array_foreach((json_t *)columns, i,
                       each) if (json_is_string(each) &&
                                 !strcmp(json_string_value(each), name)) return (int)i;
    return -1;
}

static json_int_t cell(const json_t *row, int column)
{
    return column < 0 ? 0 : (json_int_t)json_number_value(json_array_get(row, (size_t)column));
}

/* Step; the newest configuration first; the earliest telling first. */
static int by_step(const void *left, const void *right)
{
    const struct row *a = left, *b = right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->configuration != b->configuration)
        return a->configuration > b->configuration ? -1 : 1;
    return (a->time > b->time) - (a->time < b->time);
}

/* How many steps an answer tells of: its rows are by step. */
static size_t count_steps(const json_t *told, int column)
{
    size_t i, steps = 0;
    const json_t *cells;
    json_int_t last = 0;

    json_array_foreach((json_t *)told, i, cells)
    {
        steps += !i || cell(cells, column) != last;
        last = cell(cells, column);
    }
    return steps;
}

static size_t collect(const json_t *answers, size_t limit, const struct where *where,
                      struct row *rows, json_int_t *ret_known)
{
    const json_t *answer, *cells;
    size_t i, j, n = 0;

    *ret_known = INT64_MAX;
    json_array_foreach((json_t *)answers, i, answer)
    {
        const json_t *told = json_object_get(json_object_get(answer, "body"), "rows");
        size_t count = json_array_size(told);

        json_array_foreach((json_t *)told, j, cells) rows[n++] =
            (struct row){cell(cells, where->step), cell(cells, where->configuration),
                         cell(cells, where->time), (json_t *)cells};
        /* This node had more to tell: beyond its last row other nodes do not know everything. */
        if (count && count_steps(told, where->step) >= limit &&
            cell(json_array_get(told, count - 1), where->step) < *ret_known)
            *ret_known = cell(json_array_get(told, count - 1), where->step);
    }
    return n;
}

/* Done, and not done again since. */
static bool is_lost(const struct rb_merge *merge, const struct row *row)
{
    return row->configuration < (json_int_t)merge->configuration && row->step > merge->step;
}

json_t *rb_merge_rows(const json_t *answers, const struct rb_merge *merge, json_t **ret_columns)
{
    const json_t *columns = NULL, *answer;
    json_t *merged = json_array();
    size_t i, n, room = 0, steps = 0;
    json_int_t known;
    struct where where;
    struct row *rows;

    json_array_foreach((json_t *)answers, i, answer)
    {
        const json_t *body = json_object_get(answer, "body");

        room += json_array_size(json_object_get(body, "rows"));
        if (!columns || (!json_array_size(columns) && json_object_get(body, "columns")))
            columns = json_object_get(body, "columns");
    }
    *ret_columns = columns ? json_deep_copy(columns) : json_array();
    where = (struct where){rb_column(columns, "step"), rb_column(columns, "configuration"),
                           rb_column(columns, "time")};
    rows = rb_alloc((room + 1) * sizeof(*rows));
    n = collect(answers, merge->limit, &where, rows, &known);
    qsort(rows, n, sizeof(*rows), by_step);
    for (i = 0; i < n && rows[i].step <= known; i++) {
        bool first = !i || rows[i].step != rows[i - 1].step;

        if (!merge->lost && is_lost(merge, &rows[i]))
            continue;
        if (first && steps++ == merge->limit)
            break;
        if (first || (merge->lost && rows[i].configuration != rows[i - 1].configuration))
            json_array_append(merged, rows[i].cells);
    }
    free(rows);
    return merged;
}
