/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job computes activations again, and how many segments it is cut into for that. */
#include "plan/compile/compile_inside.h"

#include "plan/compile/footprint.h"
#include "proto/work.h"

#include <stdio.h>
#include <string.h>

static void measure_programs(const Rb__Model *model, uint64_t *ret_arena, double *ret_flops)
{
    *ret_arena = 0;
    *ret_flops = 0;
    for (size_t i = 0; i < model->n_programs; i++)
        if (model->programs[i]->arena_bytes > *ret_arena)
            *ret_arena = model->programs[i]->arena_bytes;
    for (size_t i = 0; i < model->programs[0]->n_instructions; i++)
        *ret_flops += rb_work_flops(model->programs[0], i);
}

/* All of them anew, with the cuts as they are now. */
static int make_programs(struct rb_compile_work *work, int64_t batch)
{
    Rb__Model *model = work->model;
    int err;

    while (model->n_programs)
        rb__program__free_unpacked(model->programs[--model->n_programs], NULL);
    err = rb_compile_add(work, batch, true);
    return err ? err : rb_compile_add_others(work, batch);
}

/* The fewest segments that make the job fit; where none does, or `always`, those that take the
 * least memory. */
static int search_cuts(struct rb_compile_work *work, int64_t batch, uint64_t limit)
{
    struct rb_recompute_cuts best = {0};
    uint64_t least, arena;
    double flops;
    int err = 0;

    measure_programs(work->model, &least, &flops);
    for (int segments = 2; !err && segments <= RB_RECOMPUTE_SEGMENTS;
         segments += segments / 4 + 1) {
        rb_recompute_cut(work->graph, segments, &work->cuts);
        err = make_programs(work, batch);
        if (err)
            break;
        measure_programs(work->model, &arena, &flops);
        if (arena < least) {
            least = arena;
            best = work->cuts;
        }
        if (limit && rb_footprint_least(work->spec, work->model) <= limit)
            return 0;
    }
    work->cuts = best;
    return err ? err : make_programs(work, batch);
}

int rb_compile_recompute(struct rb_compile_work *work, int64_t batch)
{
    const Rb__MemorySpec *memory = work->spec->memory;
    const char *word = memory && memory->recompute ? memory->recompute : "auto";
    bool always = !strcmp(word, "always");
    uint64_t limit = always ? 0 : rb_footprint_limit(work->spec), before, after;
    double flops, more;
    int err;

    if (work->model->asynchronous || work->spec->parallel->hypergraph > 1 ||
        !strcmp(word, "never") || (!always && !limit) ||
        (limit && rb_footprint_least(work->spec, work->model) <= limit))
        return 0;
    measure_programs(work->model, &before, &flops);
    err = search_cuts(work, batch, limit);
    if (err || !work->cuts.n)
        return err;
    measure_programs(work->model, &after, &more);
    snprintf(work->recomputed, sizeof(work->recomputed),
             ", activations in %.1f MiB instead of %.1f for %.0f %% more products",
             (double)after / (1 << 20), (double)before / (1 << 20),
             flops > 0 ? 100 * (more / flops - 1) : 0);
    return 0;
}
