/* SPDX-License-Identifier: Apache-2.0 */
/* The method `resize`: how many devices, and which. */
#include "daemon/rpc/methods_inside.h"

#include "base/clock.h"
#include "daemon/agent/devices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pins {
    char **names;
    size_t n;
};

static bool pinned(const struct pins *pins, const char *name)
{
    for (size_t i = 0; i < pins->n; i++)
        if (!strcmp(pins->names[i], name))
            return true;
    return false;
}

static void pin(struct rb_arena *arena, struct pins *pins, const char *name)
{
    char **names;

    if (pinned(pins, name))
        return;
    names = RB_ARENA_NEW(arena, char *, pins->n + 1);
    for (size_t i = 0; i < pins->n; i++)
        names[i] = pins->names[i];
    names[pins->n++] = rb_arena_string(arena, name);
    pins->names = names;
}

static int check_device(const struct rb_facts *facts, const struct rb_job_facts *job,
                        const char *name, struct rb_why *why)
{
    const char *colon = strrchr(name, ':');
    const char *kind = job->job.job->spec->devices ? job->job.job->spec->devices->kind : NULL;
    const struct rb_fact *node;
    const char *class;
    char part[256];
    char *end;
    unsigned long index;

    if (!colon || (size_t)(colon - name) >= sizeof(part) || colon[1] < '0' || colon[1] > '9')
        return rb_why_set(why, RB_EINVAL, "a device is written NODE:NUMBER, not '%s'", name);
    memcpy(part, name, (size_t)(colon - name));
    part[colon - name] = 0;
    index = strtoul(colon + 1, &end, 10);
    node = rb_fact_find(&facts->nodes, part);
    if (*end || !node)
        return rb_why_set(why, *end ? RB_EINVAL : RB_ENOTFOUND,
                          *end ? "a device is written NODE:NUMBER, not '%s'"
                               : "device %s: there is no such node",
                          name);
    for (size_t d = 0; d < node->node->n_devices; d++) {
        if (node->node->devices[d]->index != index)
            continue;
        class = rb_facts_class(node->node, node->node->devices[d]);
        if (strcmp(class, job->job.job->numeric_class) != 0)
            return rb_why_set(why, RB_EREFUSED,
                              "device %s is of numeric class %s and the job of %s: it would give "
                              "other bits",
                              name, class, job->job.job->numeric_class);
        if (kind && strcmp(kind, "any") != 0 && strcmp(kind, node->node->devices[d]->kind) != 0)
            return rb_why_set(why, RB_EREFUSED, "device %s is %s and spec.devices.kind is %s", name,
                              node->node->devices[d]->kind, kind);
        return 0;
    }
    return rb_why_set(why, RB_ENOTFOUND, "node %s has no device %lu", part, index);
}

/* The devices that the job may use from now on: those named for `want`, its own and those for
 * `grow`, its own without those for `shrink`; none named: any. */
static int read_pins(struct rb_arena *arena, const struct rb_facts *facts,
                     const struct rb_job_facts *job, const json_t *body, struct pins *ret_pins,
                     size_t *ret_named, struct rb_why *why)
{
    const json_t *devices = json_object_get(body, "devices"), *each;
    bool grow = json_object_get(body, "grow"), shrink = json_object_get(body, "shrink");
    const Rb__Configuration *active = rb_job_active(job);
    struct pins named = {0}, pins = {0};
    size_t i;

    *ret_named = 0;
    if (!devices || json_is_null(devices) || !json_array_size(devices))
        return 0;
    json_array_foreach((json_t *)devices, i, each)
    {
        int err = json_is_string(each)
                      ? check_device(facts, job, json_string_value(each), why)
                      : rb_why_set(why, RB_EINVAL, "devices must be a list of NODE:NUMBER");

        if (err)
            return err;
        pin(arena, &named, json_string_value(each));
    }
    *ret_named = named.n;
    for (size_t m = 0; (grow || shrink) && active && m < active->n_members; m++) {
        const char *own = rb_arena_format(arena, "%s:%" PRIu32, active->members[m]->node,
                                          active->members[m]->device);

        if (!shrink || !pinned(&named, own))
            pin(arena, &pins, own);
    }
    for (i = 0; !shrink && i < named.n; i++)
        pin(arena, &pins, named.names[i]);
    *ret_pins = pins;
    return 0;
}

static bool read_want(struct rb_request *request, const struct rb_job_facts *job, size_t named,
                      int64_t *ret_want)
{
    int64_t want, grow, shrink, before = job->wish.wish->want;
    bool any;

    if (!rb_methods_number(request, "want", -1, &want) ||
        !rb_methods_number(request, "grow", -1, &grow) ||
        !rb_methods_number(request, "shrink", -1, &shrink))
        return false;
    any = want >= 0 || grow >= 0 || shrink >= 0;
    if ((want >= 0) + (grow >= 0) + (shrink >= 0) > 1 || (!any && !named)) {
        rb_request_failf(request, RB_EINVAL, "say one of want, grow and shrink");
        return false;
    }
    if (shrink > before) {
        rb_request_failf(request, RB_EREFUSED,
                         "job %s wants %" PRId64 " device%s and cannot give %" PRId64,
                         job->job.job->name, before, before == 1 ? "" : "s", shrink);
        return false;
    }
    if (grow > UINT32_MAX || want > UINT32_MAX) {
        rb_request_failf(request, RB_EINVAL, "that are too many devices");
        return false;
    }
    *ret_want = want >= 0     ? want
                : grow >= 0   ? before + grow
                : shrink >= 0 ? before - shrink
                              : (int64_t)named;
    return true;
}

static bool check_want(struct rb_request *request, const struct rb_job_facts *job, int64_t want,
                       const struct pins *pins)
{
    const Rb__DevicesSpec *devices = job->job.job->spec->devices;
    uint32_t min = devices ? devices->min : 1, max = devices ? devices->max : UINT32_MAX;
    const char *name = job->job.job->name;

    if (want < min || want < 1)
        rb_request_failf(request, RB_EREFUSED,
                         "job %s needs at least %" PRIu32 " device%s (spec.devices.min): %" PRId64
                         " is too few",
                         name, min, min == 1 ? "" : "s", want);
    else if (want > max)
        rb_request_failf(request, RB_EREFUSED,
                         "job %s takes at most %" PRIu32 " device%s (spec.devices.max): %" PRId64
                         " is too many",
                         name, max, max == 1 ? "" : "s", want);
    else if (pins->n && (int64_t)pins->n < want)
        rb_request_failf(request, RB_EREFUSED,
                         "%" PRId64 " devices are wanted in all, and those that it may have then "
                         "are %zu: name more",
                         want, pins->n);
    else
        return true;
    return false;
}

static bool same_wish(const Rb__Wish *wish, int64_t want, const struct pins *pins)
{
    if (wish->want != want || wish->n_devices != pins->n)
        return false;
    for (size_t i = 0; i < pins->n; i++)
        if (!pinned(pins, wish->devices[i]))
            return false;
    return true;
}

static void resize(struct rb_request *request, void *context);

static void resize_with(struct rb_request *request, struct rb_methods *methods,
                        const struct rb_job_facts *job, struct rb_arena *arena)
{
    const Rb__Configuration *active = rb_job_active(job);
    struct rb_writes writes = {0};
    struct rb_why why = {{0}};
    struct pins pins = {0};
    Rb__Wish wish = *job->wish.wish;
    uint64_t now = rb_clock_unix_ms();
    size_t named;
    int64_t want, before = wish.want, from = active ? (int64_t)active->n_members : 0;
    int err = read_pins(arena, rb_methods_facts(methods), job, rb_request_body(request), &pins,
                        &named, &why);
    json_t *reply;

    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    if (!read_want(request, job, named, &want) || !check_want(request, job, want, &pins))
        return;
    if (same_wish(&wish, want, &pins)) {
        rb_request_reply(request, json_pack("{s:s,s:I,s:I,s:I,s:I,s:b}", "job", job->job.job->name,
                                            "from", from, "wanted", before, "want", want, "asked",
                                            (json_int_t)wish.asked, "unchanged", from == want));
        return;
    }
    wish.want = (uint32_t)want;
    wish.devices = pins.names;
    wish.n_devices = pins.n;
    wish.has_asked = 1;
    wish.asked = now > wish.asked ? now : wish.asked + 1;
    rb_writes_put(&writes, job->wish.revision, &wish.base, "jobs/%s/wish", job->id);
    reply =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:b}", "job", job->job.job->name, "from", from, "wanted",
                  before, "want", want, "asked", (json_int_t)wish.asked, "unchanged", 0);
    rb_methods_commit(methods, request, &writes, NULL, reply, resize);
}

static void resize(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    struct rb_arena arena = {0};

    if (!job || rb_methods_refuse_ending(request, job))
        return;
    resize_with(request, context, job, &arena);
    rb_arena_done(&arena);
}

const struct rb_server_method rb_methods_resize[] = {
    {"resize", true, resize},
    {NULL, false, NULL},
};
