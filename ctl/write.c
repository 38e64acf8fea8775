/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/write.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void indent(struct rb_buffer *out, int depth)
{
    for (int i = 0; i < depth; i++)
        rb_buffer_text(out, "  ");
}

/* The fewest digits that read back as this number, and no exponent where the digits before the
 * point suffice. */
static void put_real(struct rb_buffer *out, double x)
{
    bool plain = fabs(x) >= 1 && fabs(x) < 1e15;
    char text[40];
    size_t e;

    for (int digits = plain ? (int)log10(fabs(x)) + 1 : 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    if (fabs(x) >= 1 && fabs(x) < 1e15 && strchr(text, 'e')) /* 150.0, not 1.5e+02 */
        snprintf(text, sizeof text, "%.0f", x);
    e = strcspn(text, "e"); /* with a point always: YAML 1.1 takes 1e-08 for a word */
    rb_buffer_format(out, "%.*s%s%s", (int)e, text, strchr(text, '.') ? "" : ".0", text + e);
}

static void put_scalar(struct rb_buffer *out, const json_t *json)
{
    char *text;

    if (json_is_real(json)) {
        put_real(out, json_real_value(json));
        return;
    }
    text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT);
    rb_buffer_text(out, text ? text : "null");
    free(text);
}

static void put_key(struct rb_buffer *out, const char *key)
{
    json_t *text = json_string(key);

    put_scalar(out, text);
    json_decref(text);
}

static bool is_nested(const json_t *json)
{
    return (json_is_object(json) && json_object_size(json)) ||
           (json_is_array(json) && json_array_size(json));
}

/* Short arrays of scalars stay on one line; with depth -1 everything does. */
static bool on_one_line(const json_t *json, int depth)
{
    const json_t *element;
    size_t i;

    if (depth < 0)
        return true;
    if (!json_is_array(json) || json_array_size(json) > 16)
        return false;
    json_array_foreach(json, i, element)
    {
        if (is_nested(element))
            return false;
    }
    return true;
}

static void put_json(struct rb_buffer *out, const json_t *json, int depth)
{
    bool line = on_one_line(json, depth), object = json_is_object(json);
    int inner = depth < 0 ? -1 : depth + 1;
    const char *key = NULL, *comma = "";
    void *at = object ? json_object_iter((json_t *)json) : NULL;

    if (!is_nested(json)) {
        put_scalar(out, json);
        return;
    }
    rb_buffer_text(out, object ? "{" : "[");
    for (size_t i = 0; object ? at != NULL : i < json_array_size(json); i++) {
        rb_buffer_text(out, comma);
        if (line)
            rb_buffer_text(out, *comma ? " " : "");
        else
            rb_buffer_text(out, "\n");
        if (!line)
            indent(out, inner);
        if (object) {
            key = json_object_iter_key(at);
            put_key(out, key);
            rb_buffer_text(out, ": ");
        }
        put_json(out, object ? json_object_iter_value(at) : json_array_get(json, i), inner);
        comma = ",";
        if (object)
            at = json_object_iter_next((json_t *)json, at);
    }
    if (!line) {
        rb_buffer_text(out, "\n");
        indent(out, depth);
    }
    rb_buffer_text(out, object ? "}" : "]");
}

void rb_write_json(const json_t *json, struct rb_buffer *out)
{
    put_json(out, json, 0);
    rb_buffer_text(out, "\n");
}

void rb_write_line(const json_t *json, struct rb_buffer *out)
{
    put_json(out, json, -1);
    rb_buffer_text(out, "\n");
}

/* ---- YAML ---- */

/* Whether a string may stand bare: it begins with a letter, holds nothing that YAML reads as syntax
 * and is none of the words that YAML reads as something else. */
static bool is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on",
                                        "off",  "y",    "n",     "nan", "inf"};
    size_t size = strlen(text);

    if (!size || !strchr(letters, text[0]))
        return false;
    if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+ ()") !=
            size ||
        text[size - 1] == ' ')
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(words[i], text) == 0)
            return false;
    }
    return true;
}

static void put_yaml_scalar(struct rb_buffer *out, const json_t *json)
{
    if (json_is_string(json) && is_plain(json_string_value(json)))
        rb_buffer_text(out, json_string_value(json));
    else
        put_scalar(out, json);
}

/* At the start of a line's content; `depth`: the indentation of further lines. */
static void put_yaml(struct rb_buffer *out, const json_t *json, int depth)
{
    bool object = json_is_object(json), first = true;
    void *at = object ? json_object_iter((json_t *)json) : NULL;

    if (!is_nested(json)) {
        put_yaml_scalar(out, json);
        rb_buffer_text(out, "\n");
        return;
    }
    for (size_t i = 0; object ? at != NULL : i < json_array_size(json); i++, first = false) {
        const json_t *value = object ? json_object_iter_value(at) : json_array_get(json, i);

        if (!first)
            indent(out, depth);
        if (!object) {
            rb_buffer_text(out, "- ");
            put_yaml(out, value, depth + 1);
            continue;
        }
        if (is_plain(json_object_iter_key(at)))
            rb_buffer_text(out, json_object_iter_key(at));
        else
            put_key(out, json_object_iter_key(at));
        rb_buffer_text(out, is_nested(value) ? ":\n" : ": ");
        if (is_nested(value))
            indent(out, depth + 1);
        put_yaml(out, value, depth + 1);
        at = json_object_iter_next((json_t *)json, at);
    }
}

void rb_write_yaml(const json_t *json, struct rb_buffer *out)
{
    put_yaml(out, json, 0);
}
