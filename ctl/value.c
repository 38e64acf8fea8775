/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/value.h"

#include <math.h>
#include <string.h>

const char *rb_value_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text && text[0] ? text : otherwise;
}

int64_t rb_value_integer(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

double rb_value_real(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);

    if (json_is_number(value))
        return json_number_value(value);
    if (text && strcmp(text, "nan") == 0)
        return NAN;
    if (text && (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0))
        return text[0] == '-' ? -INFINITY : INFINITY;
    return otherwise;
}

bool rb_value_there(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return value && !json_is_null(value);
}

bool rb_value_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

int64_t rb_value_count(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_array(value) ? (int64_t)json_array_size(value)
                                : rb_value_integer(object, key, 0);
}

bool rb_value_over(const json_t *object)
{
    const char *phase = rb_value_text(object, "phase", "");

    return strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0 ||
           strcmp(phase, "Cancelled") == 0;
}

json_t *rb_value_row(const json_t *columns, const json_t *row)
{
    json_t *cells = json_object();
    const json_t *name;
    size_t i;

    json_array_foreach(columns, i, name)
    {
        if (json_is_string(name) && json_array_get(row, i))
            json_object_set(cells, json_string_value(name), json_array_get(row, i));
    }
    return cells;
}

int64_t rb_value_cell(const json_t *columns, const json_t *row, const char *column,
                      int64_t otherwise)
{
    const json_t *name;
    size_t i;

    json_array_foreach(columns, i, name)
    {
        if (json_is_string(name) && strcmp(json_string_value(name), column) == 0 &&
            json_is_integer(json_array_get(row, i)))
            return json_integer_value(json_array_get(row, i));
    }
    return otherwise;
}
