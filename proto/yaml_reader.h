/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of YAML events that refuses what no file of ours may contain: anchors, aliases, tags,
 * zero bytes, deep nesting, a second document.
 *
 * libyaml > [yaml_reader] > reflect_yaml, reflect_locate */
#ifndef RB_PROTO_YAML_READER_H
#define RB_PROTO_YAML_READER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

enum { RB_YAML_LIMIT = 1 << 20, RB_YAML_DEPTH = 64 };

/* One event at a time; code that reads a value leaves its last event current. */
struct rb_yaml_reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *file; /* NULL: messages carry no position */
    const char *text; /* the caller's */
    size_t size;
    int depth;
    struct rb_why *why;
};

void rb_yaml_reader_start(struct rb_yaml_reader *reader, const char *file, const char *text,
                          size_t size, struct rb_why *why);
void rb_yaml_reader_done(struct rb_yaml_reader *reader);

/* The next event; RB_EINVAL with file, line and column if it is not allowed. */
int rb_yaml_reader_next(struct rb_yaml_reader *reader);

/* open: step to the first event of the document.  close: step behind its last, and check that
 * nothing follows. */
int rb_yaml_reader_open(struct rb_yaml_reader *reader);
int rb_yaml_reader_close(struct rb_yaml_reader *reader);

/* Put a position in front of the sentence and return `err`. */
int rb_yaml_reader_at(struct rb_yaml_reader *reader, yaml_mark_t mark, int err);

/* RB_EINVAL with this sentence, at the current event. */
int rb_yaml_reader_refuse(struct rb_yaml_reader *reader, const char *text);

/* Is the event this word without quotes?  Does it stand for nothing? */
bool rb_yaml_reader_plain(const struct rb_yaml_reader *reader, const char *word);
bool rb_yaml_reader_null(const struct rb_yaml_reader *reader);

#endif
