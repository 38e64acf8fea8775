/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus' text format 0.0.4, line by line.
 *
 * metrics > [text] > HTTP
 *
 * Pure.  What belongs to a family stands together: its head, then its samples. */
#ifndef RB_DAEMON_HTTP_TEXT_H
#define RB_DAEMON_HTTP_TEXT_H

#include "base/buffer.h"

#define RB_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A list of labels ends with a NULL name; one without a value is left out. */
struct rb_text_label {
    const char *name, *value;
};

/* type: "gauge" or "counter".  help: one line. */
void rb_text_family(struct rb_buffer *out, const char *name, const char *type, const char *help);

/* labels: may be NULL. */
void rb_text_sample(struct rb_buffer *out, const char *name, const struct rb_text_label *labels,
                    double value);

#endif
