/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/verified.h"

#include "base/arena.h"

#include <inttypes.h>
#include <string.h>

bool rb_verified_same(const struct rb_verified *verified)
{
    return !verified->rows.step && !strcmp(verified->there, verified->again);
}

static void add_devices(struct rb_buffer *out, const struct rb_devices_seen *seen)
{
    rb_buffer_format(out, "%" PRId64, seen->least);
    if (seen->most > seen->least)
        rb_buffer_format(out, " to %" PRId64, seen->most);
    rb_buffer_format(out, " device%s", seen->most == 1 ? "" : "s");
}

static void add_value(struct rb_buffer *out, const json_t *value)
{
    RB_CLEANUP(rb_freep) char *text = json_dumps(value, JSON_ENCODE_ANY);

    rb_buffer_text(out, text ? text : "?");
}

/* "gpt: step 7 differs: loss was 2.5 and is 2.25 on 3 devices" */
static void add_difference(const struct rb_same_rows *rows, struct rb_buffer *out)
{
    rb_buffer_format(out, "step %" PRId64 " differs: %s was ", rows->step, rows->column);
    add_value(out, rows->value_there);
    rb_buffer_text(out, " and is ");
    add_value(out, rows->value_again);
    rb_buffer_text(out, " on ");
    add_devices(out, &rows->again);
}

/* "gpt: steps 1 to 300 are the same on 3 devices as on 1 to 4 devices" */
static void add_sameness(const struct rb_same_rows *rows, struct rb_buffer *out)
{
    const int64_t steps = rows->last - rows->first + 1;

    if (steps == 1)
        rb_buffer_format(out, "step %" PRId64 " is the same on ", rows->first);
    else
        rb_buffer_format(out, "steps %" PRId64 " to %" PRId64 " are the same on ", rows->first,
                         rows->last);
    add_devices(out, &rows->again);
    rb_buffer_text(out, " as on ");
    add_devices(out, &rows->there);
    if (rows->rows < steps)
        rb_buffer_format(out, "; %" PRId64 " of them %s no row", steps - rows->rows,
                         steps - rows->rows == 1 ? "has" : "have");
}

void rb_verified_text(const struct rb_verified *verified, struct rb_buffer *out)
{
    rb_buffer_format(out, "%s: ", verified->job);
    if (verified->rows.step)
        add_difference(&verified->rows, out);
    else
        add_sameness(&verified->rows, out);
    rb_buffer_text(out, "\n");
    if (!verified->there[0])
        return;
    if (!strcmp(verified->there, verified->again))
        rb_buffer_format(out, "%s: and so are the weights: sha256 %s\n", verified->job,
                         verified->there);
    else
        rb_buffer_format(out, "%s: the weights differ: sha256 was %s and is %s\n", verified->job,
                         verified->there, verified->again);
}

static json_t *devices_json(const struct rb_devices_seen *seen)
{
    return json_pack("{s:I,s:I}", "least", (json_int_t)seen->least, "most", (json_int_t)seen->most);
}

static json_t *difference_json(const struct rb_same_rows *rows)
{
    return rows->step
               ? json_pack("{s:I,s:s,s:O,s:O}", "step", (json_int_t)rows->step, "column",
                           rows->column, "job", rows->value_there, "again", rows->value_again)
               : json_null();
}

json_t *rb_verified_json(const struct rb_verified *verified)
{
    const struct rb_same_rows *rows = &verified->rows;
    json_t *sha256 = verified->there[0]
                         ? json_pack("{s:s,s:s}", "job", verified->there, "again", verified->again)
                         : json_null();

    return json_pack("{s:s,s:b,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "job", verified->job, "same",
                     (int)rb_verified_same(verified), "first", (json_int_t)rows->first, "last",
                     (json_int_t)rows->last, "rows", (json_int_t)rows->rows, "devices",
                     devices_json(&rows->there), "again", devices_json(&rows->again), "difference",
                     difference_json(rows), "sha256", sha256);
}
