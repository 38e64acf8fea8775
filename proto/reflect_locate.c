/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect.h"

#include "proto/yaml_reader.h"

#include <string.h>

static int skip_value(struct rb_yaml_reader *reader)
{
    int depth = 0, err = 0;

    for (;;) {
        if (reader->event.type == YAML_MAPPING_START_EVENT ||
            reader->event.type == YAML_SEQUENCE_START_EVENT)
            depth++;
        if (reader->event.type == YAML_MAPPING_END_EVENT ||
            reader->event.type == YAML_SEQUENCE_END_EVENT)
            depth--;
        if (depth <= 0)
            return 0;
        err = rb_yaml_reader_next(reader);
        if (err)
            return err;
    }
}

/* Step to the value of `key` in the present mapping; false if it has no such key. */
static bool enter(struct rb_yaml_reader *reader, const char *key, size_t size, yaml_mark_t *mark)
{
    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return false;
    for (;;) {
        bool found;

        if (rb_yaml_reader_next(reader) || reader->event.type != YAML_SCALAR_EVENT)
            return false;
        found = reader->event.data.scalar.length == size &&
                memcmp(reader->event.data.scalar.value, key, size) == 0;
        if (found)
            *mark = reader->event.start_mark;
        if (rb_yaml_reader_next(reader))
            return false;
        if (found)
            return true;
        if (skip_value(reader))
            return false;
    }
}

bool rb_reflect_locate(const char *text, size_t size, const char *path, size_t *ret_line,
                       size_t *ret_column)
{
    struct rb_why why = {0};
    yaml_mark_t mark = {0};
    struct rb_yaml_reader reader;
    bool found = false;

    rb_yaml_reader_start(&reader, NULL, text, size, &why);
    if (!rb_yaml_reader_open(&reader)) {
        while (*path) {
            size_t part = strcspn(path, ".");

            if (!enter(&reader, path, part, &mark))
                break;
            found = true;
            path += part + (path[part] == '.');
        }
    }
    rb_yaml_reader_done(&reader);
    if (!found)
        return false;
    *ret_line = mark.line + 1;
    *ret_column = mark.column + 1;
    return true;
}
