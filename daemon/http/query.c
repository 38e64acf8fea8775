/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/query.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TEXT_MOST = 256, DIGITS_MOST = 15 };

enum takes {
    JOB = 1,   /* a name or an id */
    NEEDS = 2, /* that, in any case */
    KEY = 4,   /* after: the key of an event */
    STEPS = 8, /* after and limit, in steps */
};

static const struct path {
    const char *path, *method, *kind;
    unsigned takes;
} paths[] = {
    {"/api/jobs", "get", "jobs", 0},
    {"/api/nodes", "get", "nodes", 0},
    {"/api/devices", "get", "devices", 0},
    {"/api/configurations", "get", "configurations", JOB | NEEDS},
    {"/api/checkpoints", "get", "checkpoints", JOB | NEEDS},
    {"/api/status", "status", NULL, JOB | NEEDS},
    {"/api/metrics", "metrics", NULL, JOB | NEEDS | STEPS},
    {"/api/events", "events", NULL, JOB | KEY},
};

static const struct path *find_path(const char *path)
{
    for (size_t i = 0; i < RB_COUNT(paths); i++)
        if (!strcmp(path, paths[i].path))
            return &paths[i];
    return NULL;
}

static int add_text(json_t *body, const struct rb_query_argument *argument, struct rb_why *why)
{
    const size_t size = strlen(argument->value);
    json_t *text = size && size <= TEXT_MOST ? json_string(argument->value) : NULL;

    if (!text) /* which it also is where it is no UTF-8 */
        return rb_why_set(why, RB_EINVAL, "%s: expected a text of 1 to %d bytes", argument->name,
                          TEXT_MOST);
    json_object_set_new(body, argument->name, text);
    return RB_OK;
}

static int add_number(json_t *body, const struct rb_query_argument *argument, int64_t most,
                      struct rb_why *why)
{
    const size_t size = strlen(argument->value);
    int64_t number = 0;

    if (!size || size > DIGITS_MOST || strspn(argument->value, "0123456789") != size)
        return rb_why_set(why, RB_EINVAL, "%s: expected a whole number", argument->name);
    for (const char *digit = argument->value; *digit; digit++)
        number = 10 * number + (*digit - '0');
    json_object_set_new(body, argument->name, json_integer(number < most ? number : most));
    return RB_OK;
}

static int add_argument(json_t *body, const struct path *path,
                        const struct rb_query_argument *argument, struct rb_why *why)
{
    const char *name = argument->name;

    if (!argument->value || json_object_get(body, name))
        return rb_why_set(why, RB_EINVAL, "an argument has no value, or comes twice");
    if (!strcmp(name, "job") && path->takes & JOB)
        return add_text(body, argument, why);
    if (!strcmp(name, "after") && path->takes & KEY)
        return add_text(body, argument, why);
    if (!strcmp(name, "after") && path->takes & STEPS)
        return add_number(body, argument, INT64_MAX, why);
    if (!strcmp(name, "limit") && path->takes & STEPS)
        return add_number(body, argument, RB_QUERY_ROWS, why);
    return rb_why_set(why, RB_EINVAL, "%s takes no such argument", path->path);
}

static int check_whole(json_t *body, const struct path *path, struct rb_why *why)
{
    const json_t *limit = json_object_get(body, "limit");

    if (path->takes & NEEDS && !json_object_get(body, "job"))
        return rb_why_set(why, RB_EINVAL, "%s: say which job: ?job=NAME", path->path);
    if (limit && json_integer_value(limit) < 1)
        return rb_why_set(why, RB_EINVAL, "limit: expected at least 1");
    if (path->takes & STEPS && !limit)
        json_object_set_new(body, "limit", json_integer(RB_QUERY_ROWS));
    if (path->kind)
        json_object_set_new(body, "kind", json_string(path->kind));
    return RB_OK;
}

int rb_query_read(const char *text, const struct rb_query_argument *arguments, size_t n,
                  const char **ret_method, json_t **ret_body, struct rb_why *why)
{
    const struct path *path = find_path(text);
    json_t *body = json_object();
    int err = path ? RB_OK : rb_why_set(why, RB_ENOTFOUND, "there is no such path");

    for (size_t i = 0; !err && i < n; i++)
        err = add_argument(body, path, &arguments[i], why);
    err = err ? err : check_whole(body, path, why);
    if (err) {
        json_decref(body);
        return err;
    }
    *ret_method = path->method;
    *ret_body = body;
    return RB_OK;
}

unsigned rb_query_status(int err)
{
    switch (err) {
    case RB_OK:
        return 200;
    case RB_EINVAL:
        return 400;
    case RB_ENOTFOUND:
        return 404;
    case RB_EAGAIN:
    case RB_EUNREACHABLE:
    case RB_ECANCELED: /* the rubatod that was asked stops */
        return 503;
    case RB_ETIMEOUT:
        return 504;
    default:
        return 500;
    }
}
