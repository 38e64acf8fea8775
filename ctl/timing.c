/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/timing.h"

#include <stdio.h>
#include <string.h>

static int describe(const char *kind, int index, struct rb_timing_place *ret_place,
                    struct rb_why *why)
{
    struct rb_device_about about = {0};
    int err = rb_device_describe(kind, index, &about, why);

    if (err)
        return err;
    *ret_place = (struct rb_timing_place){.bytes = about.bytes, .index = index};
    snprintf(ret_place->kind, sizeof ret_place->kind, "%s", kind);
    memcpy(ret_place->numeric_class, about.numeric_class, sizeof about.numeric_class);
    memcpy(ret_place->name, about.name, sizeof about.name);
    return 0;
}

int rb_timing_first(const char *kind, struct rb_timing_place *ret_place, struct rb_why *why)
{
    int count, err = rb_device_count(kind, &count, why);

    if (!err)
        err = describe(kind, 0, ret_place, why);
    return err ? rb_why_add(why, RB_ENOTFOUND, "nothing can be timed here") : 0;
}

/* A numeric class begins with the kind. */
int rb_timing_find(const char *numeric_class, struct rb_timing_place *ret_place, struct rb_why *why)
{
    struct rb_timing_place place;
    char kind[sizeof place.kind];
    int count = 0, err;

    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(numeric_class, " "), numeric_class);
    err = rb_timing_first(kind, &place, why);
    if (!err)
        err = rb_device_count(kind, &count, why);
    for (int i = 1; !err && strcmp(kind, "cpu") && strcmp(place.numeric_class, numeric_class); i++)
        if (i < count)
            (void)describe(kind, i, &place, NULL); /* one that cannot be described is no match */
        else
            err = rb_why_set(why, RB_ENOTFOUND,
                             "the job computes as '%s' does, and no device here does: ask on a "
                             "node that has one",
                             numeric_class);
    if (!err)
        *ret_place = place;
    return err;
}

int rb_timing_take(const struct rb_timing_place *place, const Rb__Model *model, bool sums,
                   struct rb_timing_taken *ret_taken, struct rb_why *why)
{
    const struct rb_timing thorough = {
        .warm = 2, .runs = 15, .least = 3, .most_ns = UINT64_C(10000000000), .sums = sums};
    struct rb_timing_taken taken = {.step = {.lanes = 1, .together = 1}};
    struct rb_device *device = NULL;
    int err = rb_device_open(place->kind, place->index, &device, why);

    if (!err)
        err = rb_profile_measure(device, model->programs[0], &taken.speed, why);
    if (!err)
        err = rb_timing_ways(device, &taken.ways, why);
    if (!err)
        err = rb_timing_model(device, model, &thorough, &taken.profile, sums ? &taken.step : NULL,
                              why);
    rb_device_close(device);
    if (!err)
        *ret_taken = taken;
    return err;
}
