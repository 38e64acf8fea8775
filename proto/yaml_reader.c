/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/yaml_reader.h"

#include <stdlib.h>
#include <string.h>

/* Put the position in front of the sentence. */
int rb_yaml_reader_at(struct rb_yaml_reader *reader, yaml_mark_t mark, int err)
{
    if (!reader->file)
        return err;
    return rb_why_add(reader->why, err, "%s:%zu:%zu", reader->file, mark.line + 1, mark.column + 1);
}

int rb_yaml_reader_refuse(struct rb_yaml_reader *reader, const char *text)
{
    return rb_yaml_reader_at(reader, reader->event.start_mark,
                             rb_why_set(reader->why, RB_EINVAL, "%s", text));
}

/* Refuses what the file may not contain anywhere: anchors, aliases, tags, deep nesting. */
static int check_event(struct rb_yaml_reader *reader)
{
    const yaml_event_t *event = &reader->event;
    const void *anchor = NULL, *tag = NULL;

    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return rb_yaml_reader_refuse(reader, "aliases are not supported: write the value again");
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        if (memchr(event->data.scalar.value, '\0', event->data.scalar.length))
            return rb_yaml_reader_refuse(reader, "a zero byte in a value");
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        reader->depth++;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        reader->depth++;
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        reader->depth--;
        break;
    default:
        break;
    }
    if (anchor)
        return rb_yaml_reader_refuse(reader, "anchors are not supported");
    if (tag)
        return rb_yaml_reader_refuse(reader, "tags are not supported");
    if (reader->depth > RB_YAML_DEPTH)
        return rb_yaml_reader_refuse(reader, "nested too deeply");
    return 0;
}

static bool begins_character(char byte)
{
    return (byte & 0xc0) != 0x80;
}

/* For bytes that are no text libyaml gives only the offset. */
static yaml_mark_t mark_of(const struct rb_yaml_reader *reader, size_t offset)
{
    yaml_mark_t mark = {0};

    for (size_t i = 0; i < offset && i < reader->size; i++) {
        mark.line += reader->text[i] == '\n';
        mark.column = reader->text[i] == '\n' ? 0 : mark.column + begins_character(reader->text[i]);
    }
    return mark;
}

static bool is_tab(const struct rb_yaml_reader *reader, yaml_mark_t mark)
{
    const char *at = reader->text, *end = at + reader->size;
    size_t line = 0, column = 0;

    for (; at < end && line < mark.line; at++)
        line += *at == '\n';
    for (; at < end && column < mark.column; at++)
        column += at + 1 == end || begins_character(at[1]);
    return at < end && *at == '\t';
}

/* What libyaml says, except for tabs, which it does not mention. */
static int refuse_text(struct rb_yaml_reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    yaml_mark_t mark = parser->error == YAML_READER_ERROR ? mark_of(reader, parser->problem_offset)
                                                          : parser->problem_mark;
    const char *problem = parser->problem ? parser->problem : "unreadable";

    if (parser->error == YAML_SCANNER_ERROR && is_tab(reader, mark))
        problem = "a tab, where only spaces may stand";
    rb_why_set(reader->why, RB_EINVAL, "not YAML: %s", problem);
    return rb_yaml_reader_at(reader, mark, RB_EINVAL);
}

int rb_yaml_reader_next(struct rb_yaml_reader *reader)
{
    yaml_event_delete(&reader->event);
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        memset(&reader->event, 0, sizeof reader->event);
        return refuse_text(reader);
    }
    return check_event(reader);
}

void rb_yaml_reader_start(struct rb_yaml_reader *reader, const char *file, const char *text,
                          size_t size, struct rb_why *why)
{
    *reader = (struct rb_yaml_reader){.file = file, .text = text, .size = size, .why = why};
    if (!yaml_parser_initialize(&reader->parser))
        abort(); /* only for want of memory */
    yaml_parser_set_input_string(&reader->parser, (const unsigned char *)text, size);
}

void rb_yaml_reader_done(struct rb_yaml_reader *reader)
{
    yaml_event_delete(&reader->event);
    yaml_parser_delete(&reader->parser);
}

/* Step to the first event of the document; an empty document reads as null. */
int rb_yaml_reader_open(struct rb_yaml_reader *reader)
{
    int err;

    do {
        err = rb_yaml_reader_next(reader);
        if (!err && reader->event.type == YAML_STREAM_END_EVENT)
            return rb_yaml_reader_refuse(reader, "the file is empty");
    } while (!err && (reader->event.type == YAML_STREAM_START_EVENT ||
                      reader->event.type == YAML_DOCUMENT_START_EVENT));
    return err;
}

int rb_yaml_reader_close(struct rb_yaml_reader *reader)
{
    int err = rb_yaml_reader_next(reader);

    if (!err)
        err = rb_yaml_reader_next(reader);
    if (!err && reader->event.type != YAML_STREAM_END_EVENT)
        return rb_yaml_reader_refuse(reader, "a second document: one a file is read");
    return err;
}

bool rb_yaml_reader_plain(const struct rb_yaml_reader *reader, const char *word)
{
    return reader->event.type == YAML_SCALAR_EVENT && reader->event.data.scalar.plain_implicit &&
           reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)reader->event.data.scalar.value, word) == 0;
}

bool rb_yaml_reader_null(const struct rb_yaml_reader *reader)
{
    return rb_yaml_reader_plain(reader, "") || rb_yaml_reader_plain(reader, "null") ||
           rb_yaml_reader_plain(reader, "~");
}
