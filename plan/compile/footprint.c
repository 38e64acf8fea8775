/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/footprint.h"

#include "proto/spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

uint32_t rb_footprint_moments(const Rb__Model *model)
{
    if (model->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW)
        return 2;
    return model->optimizer->momentum != 0;
}

/* The arena of a worker that trains with one set of programs. */
static uint64_t largest_arena(const Rb__Model *model, bool recomputes)
{
    uint64_t arena = 0;

    for (size_t i = 0; i < model->n_programs; i++) {
        const Rb__Program *one = model->programs[i];

        if ((!one->train || one->recomputes == recomputes) && one->arena_bytes > arena)
            arena = one->arena_bytes;
    }
    return arena;
}

bool rb_footprint_has_both(const Rb__Model *model)
{
    for (size_t i = 0; i < model->n_programs; i++)
        if (model->programs[i]->recomputes)
            return true;
    return false;
}

struct rb_footprint rb_footprint_of(const Rb__Model *model)
{
    uint64_t array = model->state_elements * sizeof(float);

    return (struct rb_footprint){
        .everywhere = 2 * array + model->fixed_bytes + model->constants.len,
        .held = (rb_footprint_moments(model) + 1) * array, /* one more: the reduced sums */
        .kept = largest_arena(model, false),
        .again = largest_arena(model, rb_footprint_has_both(model)),
    };
}

uint64_t rb_footprint_flights(const struct rb_footprint *footprint)
{
    return 2 * footprint->kept;
}

uint64_t rb_footprint_total(const struct rb_footprint *footprint, bool recomputes, uint32_t copies,
                            uint32_t ranks)
{
    uint64_t held = footprint->held;

    if (copies && ranks > copies)
        held = held / ranks * copies;
    return footprint->everywhere + held + (recomputes ? footprint->again : footprint->kept);
}

uint64_t rb_footprint_staged(const struct rb_footprint *footprint, bool recomputes, uint32_t copies,
                             uint32_t ranks, uint32_t stages, uint64_t flights)
{
    uint64_t total = rb_footprint_total(footprint, recomputes, copies, ranks);
    uint64_t arena = recomputes ? footprint->again : footprint->kept;

    if (stages < 2)
        return total;
    if (!flights)
        return total + (stages + 1) * arena;
    if (recomputes && footprint->kept)
        flights = (uint64_t)((double)flights / (double)footprint->kept * (double)arena);
    return total - arena + flights;
}

uint64_t rb_footprint_bytes(const Rb__Model *model, uint32_t copies, uint32_t ranks)
{
    struct rb_footprint footprint = rb_footprint_of(model);

    return rb_footprint_total(&footprint, false, copies, ranks);
}

bool rb_footprint_on_gpus(const Rb__Spec *spec, const Rb__Model *model)
{
    return strcmp(spec->devices->kind, "cuda") == 0 ||
           rb_spec_class_is(model->numeric_class, "cuda");
}

/* In laps (worker/stages/lap.h) what is held exists twice.  Older or predicted weights of a stage
 * come on top, together no more than all weights once. */
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

/* Bytes in the pinned pipeline, before it is cut. */
static uint64_t job_bytes(const Rb__Spec *spec, const Rb__Model *model, bool recomputes,
                          uint32_t copies, uint32_t ranks)
{
    struct rb_footprint footprint = rb_footprint_of(model);
    uint32_t stages = spec->parallel ? spec->parallel->pipeline : 0;
    uint64_t flights = rb_footprint_on_gpus(spec, model) ? 0 : rb_footprint_flights(&footprint);

    return rb_footprint_staged(&footprint, recomputes, copies, ranks,
                               stages < ranks ? stages : ranks, flights) +
           in_laps(model, copies, ranks);
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

enum rb_footprint_fit rb_footprint_fits(const Rb__Spec *spec, const Rb__Model *model,
                                        bool recomputes, uint64_t limit)
{
    int pin = pinned(spec);
    uint32_t copies = pin < 0 ? 2 : (uint32_t)pin, fits = 0, all = 0;
    uint32_t least = spec->devices->min ? spec->devices->min : 1;

    for (uint32_t ranks = least; ranks <= spec->devices->max; ranks++, all++)
        fits += job_bytes(spec, model, recomputes, copies, ranks) <= limit;
    return fits == all ? RB_FOOTPRINT_FITS : fits ? RB_FOOTPRINT_FITS_SOME : RB_FOOTPRINT_MISFITS;
}

/* NULL: none. */
static const char *limit_of(const Rb__Spec *spec)
{
    const char *text = spec->memory ? spec->memory->limit : NULL;

    return text && strcmp(text, "auto") != 0 ? text : NULL;
}

/* "1.5 MiB", "80 KiB" */
static const char *size_text(uint64_t bytes, char ret[32])
{
    if (bytes < 1 << 20)
        snprintf(ret, 32, "%.0f KiB", ceil((double)bytes / 1024));
    else
        snprintf(ret, 32, "%.1f MiB", (double)bytes / (1 << 20));
    return ret;
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
    char size[32];
    int pin = pinned(spec), err = text ? rb_spec_bytes(text, &limit) : 0;

    if (err)
        return rb_why_set(why, err, "spec.memory.limit: '%.40s' is no size", text);
    if (pin >= 0)
        replicas = (uint32_t)pin;
    else if (limit && job_bytes(spec, model, false, 0, most) > limit)
        replicas = 2;
    least = job_bytes(spec, model, true, replicas, most);
    if (text && least > limit)
        return rb_why_set(
            why, RB_EINVAL,
            "spec.memory.limit: %.40s is too little: with %s of the state each of %" PRIu32
            " devices takes %s",
            text,
            replicas == 0   ? "all"
            : replicas == 1 ? "1 replica"
                            : "2 replicas",
            most, size_text(least, size));
    *ret_replicas = replicas;
    return 0;
}
