/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void rb_text_family(struct rb_buffer *out, const char *name, const char *type, const char *help)
{
    rb_buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_escaped(struct rb_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            rb_buffer_text(out, "\\n");
        else if (*text == '"' || *text == '\\')
            rb_buffer_format(out, "\\%c", *text);
        else
            rb_buffer_add(out, text, 1);
    }
}

/* As short as it can be and read back as the same number. */
static void add_value(struct rb_buffer *out, double value)
{
    char text[32];

    if (isnan(value)) {
        rb_buffer_text(out, " NaN\n");
        return;
    }
    if (isinf(value)) {
        rb_buffer_text(out, value > 0 ? " +Inf\n" : " -Inf\n");
        return;
    }
    snprintf(text, sizeof(text), "%.15g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, sizeof(text), "%.17g", value);
    rb_buffer_format(out, " %s\n", text);
}

void rb_text_sample(struct rb_buffer *out, const char *name, const struct rb_text_label *labels,
                    double value)
{
    const char *before = "{";

    rb_buffer_text(out, name);
    for (; labels && labels->name; labels++) {
        if (!labels->value)
            continue;
        rb_buffer_format(out, "%s%s=\"", before, labels->name);
        add_escaped(out, labels->value);
        rb_buffer_text(out, "\"");
        before = ",";
    }
    if (*before == ',')
        rb_buffer_text(out, "}");
    add_value(out, value);
}
