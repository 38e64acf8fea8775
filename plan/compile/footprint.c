/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/footprint.h"

#include "proto/spec.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

uint32_t rb_footprint_moments(const Rb__Model *model)
{
    if (model->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW)
        return 2;
    return model->optimizer->momentum != 0;
}

uint64_t rb_footprint_bytes(const Rb__Model *model, uint32_t copies, uint32_t ranks)
{
    uint64_t array = model->state_elements * sizeof(float), arena = 0;
    uint64_t held = (rb_footprint_moments(model) + 1) * array; /* and the reduced sums */

    for (size_t i = 0; i < model->n_programs; i++)
        if (model->programs[i]->arena_bytes > arena)
            arena = model->programs[i]->arena_bytes;
    if (copies && ranks > copies)
        held = held / ranks * copies;
    return 2 * array + held + arena + model->fixed_bytes + model->constants.len;
}

static uint64_t largest_arena(const Rb__Model *model)
{
    uint64_t arena = 0;

    for (size_t i = 0; i < model->n_programs; i++)
        if (model->programs[i]->train && model->programs[i]->arena_bytes > arena)
            arena = model->programs[i]->arena_bytes;
    return arena;
}

uint64_t rb_footprint_flights(const Rb__Spec *spec, const Rb__Model *model, uint32_t stages)
{
    bool gpu =
        strcmp(spec->devices->kind, "cuda") == 0 || rb_spec_class_is(model->numeric_class, "cuda");

    return gpu && stages > 1 ? (stages + 1) * largest_arena(model) : 0;
}

/* Of the pipeline that is pinned.  On cores it is about one arena where stages are alike. */
static uint64_t under_way(const Rb__Spec *spec, const Rb__Model *model)
{
    uint32_t stages = spec->parallel ? spec->parallel->pipeline : 0;
    uint64_t flights;

    if (stages > spec->devices->max)
        stages = spec->devices->max;
    flights = rb_footprint_flights(spec, model, stages);
    return flights || stages < 2 ? flights : largest_arena(model);
}

/* In laps (worker/lap.h) what is held is there twice, and older or predicted weights of a stage
 * beside it, all together no more than all weights once. */
static uint64_t in_laps(const Rb__Model *model, uint32_t copies, uint32_t ranks)
{
    uint64_t array = model->state_elements * sizeof(float), held;

    if (!model->asynchronous)
        return 0;
    held = (rb_footprint_moments(model) + 1) * array;
    if (copies && ranks > copies)
        held = held / ranks * copies;
    return held + array;
}

static uint64_t job_bytes(const Rb__Spec *spec, const Rb__Model *model, uint32_t copies)
{
    return rb_footprint_bytes(model, copies, spec->devices->max) + under_way(spec, model) +
           in_laps(model, copies, spec->devices->max);
}

/* What the job file pins; -1: nothing. */
static int pinned(const Rb__Spec *spec)
{
    const char *replicas = spec->state ? spec->state->replicas : NULL;

    if (!replicas || !strcmp(replicas, "auto"))
        return -1;
    return !strcmp(replicas, "1") ? 1 : !strcmp(replicas, "2") ? 2 : 0;
}

bool rb_footprint_open(const Rb__Spec *spec, uint32_t replicas)
{
    return !replicas && pinned(spec) < 0;
}

uint64_t rb_footprint_least(const Rb__Spec *spec, const Rb__Model *model)
{
    int pin = pinned(spec);

    return job_bytes(spec, model, pin < 0 ? 2 : (uint32_t)pin);
}

/* NULL: none. */
static const char *limit_of(const Rb__Spec *spec)
{
    const char *text = spec->memory ? spec->memory->limit : NULL;

    return text && strcmp(text, "auto") != 0 ? text : NULL;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

uint64_t rb_footprint_limit(const Rb__Spec *spec)
{
    const char *text = limit_of(spec);
    uint64_t limit = 0;

    return text && !rb_spec_bytes(text, &limit) ? limit : 0;
}

int rb_footprint_replicas(const Rb__Spec *spec, const Rb__Model *model, uint64_t machine,
                          uint32_t *ret_replicas, struct rb_why *why)
{
    const char *text = limit_of(spec);
    uint32_t most = spec->devices->max, replicas = 0;
    uint64_t limit = machine, least;
    int pin = pinned(spec), err = text ? rb_spec_bytes(text, &limit) : 0;

    if (err)
        return rb_why_set(why, err, "spec.memory.limit: '%.40s' is no size", text);
    if (pin >= 0)
        replicas = (uint32_t)pin;
    else if (limit && job_bytes(spec, model, 0) > limit)
        replicas = 2;
    least = job_bytes(spec, model, replicas);
    if (text && least > limit)
        return rb_why_set(
            why, RB_EINVAL,
            "spec.memory.limit: %.40s is too little: with %s of the state each of %" PRIu32
            " devices takes %.1f MiB",
            text,
            replicas == 0   ? "all"
            : replicas == 1 ? "1 replica"
                            : "2 replicas",
            most, mib(least));
    *ret_replicas = replicas;
    return 0;
}
