/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/cost.h"

#include "plan/compile/footprint.h"
#include "proto/work.h"

#include <math.h>

static double larger(double a, double b)
{
    return a > b ? a : b;
}

size_t rb_cost_find(const Rb__Model *model, int64_t batch, bool recomputes)
{
    for (size_t p = 0; p < model->n_programs; p++)
        if (model->programs[p]->train && model->programs[p]->batch == batch &&
            model->programs[p]->recomputes == recomputes)
            return p;
    return 0;
}

bool rb_cost_alike(const struct rb_cluster_device *a, const struct rb_cluster_device *b)
{
    return a->speed == b->speed && a->flops == b->flops && a->bandwidth == b->bandwidth;
}

/* A copy that computes again stands behind its original, under the original's id: in a program with
 * copies no instruction is further in front than in the first program. */
static size_t find_original(const Rb__Model *model, const Rb__Program *program, size_t instruction)
{
    const Rb__Program *first = model->programs[0];
    size_t at = instruction < first->n_instructions ? instruction + 1 : first->n_instructions;

    while (at-- > 0)
        if (first->instructions[at]->id == program->instructions[instruction]->id)
            return at;
    return 0;
}

struct rb_cost rb_cost_instruction(const Rb__Model *model, size_t p, size_t instruction,
                                   const struct rb_cluster_device *device,
                                   const struct rb_cost_profile *profile)
{
    const Rb__Program *program = model->programs[p];
    bool by_profile = device->flops <= 0;
    double flops = by_profile ? profile->flops * device->speed : device->flops;
    double bytes = by_profile ? profile->bytes * device->speed : device->bandwidth;
    struct rb_cost cost = {.bytes = rb_work_bytes(program, instruction)};

    if (by_profile && profile->seconds)
        cost.seconds =
            profile->seconds[program->recomputes ? find_original(model, program, instruction)
                                                 : instruction] /
            device->speed;
    else
        cost.seconds = larger(rb_work_flops(program, instruction) / flops, cost.bytes / bytes);
    return cost;
}

/* The program of a whole microbatch that keeps or recomputes activations as p does. */
static size_t first_of(const Rb__Model *model, size_t p)
{
    for (size_t first = 1; model->programs[p]->recomputes && first < p; first++)
        if (model->programs[first]->recomputes)
            return first;
    return model->programs[p]->recomputes ? p : 0;
}

struct rb_cost rb_cost_program(const Rb__Model *model, size_t p,
                               const struct rb_cluster_device *device,
                               const struct rb_cost_profile *profile)
{
    bool scaled = p && device->flops <= 0 && profile->seconds;
    size_t from = scaled ? first_of(model, p) : p;
    double scale = (double)model->programs[p]->batch / model->programs[from]->batch;
    struct rb_cost cost = {0};

    for (size_t i = 0; i < model->programs[from]->n_instructions; i++) {
        struct rb_cost one = rb_cost_instruction(model, from, i, device, profile);

        cost.seconds += one.seconds * scale;
        cost.bytes += one.bytes * scale;
    }
    return cost;
}

struct rb_cost rb_cost_bytes(double bytes, const struct rb_cluster_device *device,
                             const struct rb_cost_profile *profile)
{
    double rate = device->flops > 0 ? device->bandwidth : profile->bytes * device->speed;

    return (struct rb_cost){.seconds = bytes / rate, .bytes = bytes};
}

struct rb_cost rb_cost_sums(double bytes, const struct rb_cluster_device *device,
                            const struct rb_cost_profile *profile)
{
    bool measured = device->flops <= 0 && profile->seconds;

    return measured ? (struct rb_cost){.bytes = bytes} : rb_cost_bytes(bytes, device, profile);
}

double rb_cost_sums_bytes(const Rb__Model *model, size_t p, bool first)
{
    const Rb__Program *program = model->programs[p];
    double elements = 0;

    for (size_t i = 0; i < program->n_contributions; i++)
        elements += (double)model->variables[program->contributions[i]->variable]->elements;
    return elements * (first ? 8 : 12);
}

struct rb_cost rb_cost_update(const Rb__Model *model, double elements,
                              const struct rb_cluster_device *device,
                              const struct rb_cost_profile *profile)
{
    double squares = model->optimizer->clip_norm > 0 ? 4 : 0; /* else taken on the way */
    double bytes = elements * (4 + 8 + 8 * rb_footprint_moments(model) + squares);

    if (device->flops <= 0 && profile->update > 0)
        return (struct rb_cost){.seconds = elements * profile->update / device->speed,
                                .bytes = bytes};
    return rb_cost_bytes(bytes, device, profile);
}

double rb_cost_together(uint32_t microbatches, const struct rb_cluster_device *device,
                        const struct rb_cost_profile *profile)
{
    double lanes = profile->lanes, shared, groups;

    if (lanes < 2 || microbatches < 2 || !profile->seconds || device->flops > 0 ||
        !(profile->together > 0 && profile->together < 1))
        return 1;
    shared = (1 - profile->together) / (1 - 1 / lanes);
    groups = ceil(microbatches / lanes);
    return 1 - shared + shared * groups / microbatches;
}
