/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job computes activations again, and how many segments it is cut into for that. */
#include "plan/compile/compile_inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "proto/spec.h"
#include "proto/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Measures the training programs that recompute, or those that do not; ret_flops: of the first. */
static void measure_programs(const Rb__Model *model, bool recomputes, uint64_t *ret_arena,
                             double *ret_flops)
{
    const Rb__Program *first = NULL;

    *ret_arena = 0;
    *ret_flops = 0;
    for (size_t i = 0; i < model->n_programs; i++) {
        const Rb__Program *one = model->programs[i];

        if (one->train && one->recomputes != recomputes)
            continue;
        if (one->arena_bytes > *ret_arena)
            *ret_arena = one->arena_bytes;
        first = first || !one->train ? first : one;
    }
    for (size_t i = 0; first && i < first->n_instructions; i++)
        *ret_flops += rb_work_flops(first, i);
}

static int add_again(struct rb_compile_work *work, int64_t batch)
{
    Rb__Model *model = work->model;
    int err = rb_compile_add(work, batch, true);

    if (!err) {
        Rb__Program *program = model->programs[model->n_programs - 1];

        free(program->name);
        program->name = rb_format("train b=%" PRId64 " again", batch);
        program->has_recomputes = program->recomputes = 1;
    }
    return err;
}

/* Makes programs with the current cuts: all of them anew, or further training programs behind those
 * that keep activations. */
static int make_programs(struct rb_compile_work *work, int64_t batch, size_t keep)
{
    Rb__Model *model = work->model;
    int64_t rest = model->global_batch % batch;
    int err;

    while (model->n_programs > keep)
        rb__program__free_unpacked(model->programs[--model->n_programs], NULL);
    if (!work->cuts.n && keep)
        return 0;
    err = keep ? add_again(work, batch) : rb_compile_add(work, batch, true);
    if (err)
        return err;
    return !keep ? rb_compile_add_others(work, batch) : rest ? add_again(work, rest) : 0;
}

/* The fewest segments with which the job fits everywhere; or, where it needs them anywhere, with
 * which it fits at all.  Where no number does, or `always`, the one that takes the least memory. */
static int search_cuts(struct rb_compile_work *work, int64_t batch, uint64_t limit, size_t keep)
{
    struct rb_recompute_cuts best = {0};
    uint64_t least, arena;
    bool some = false;
    double flops;
    int err = 0;

    measure_programs(work->model, false, &least, &flops);
    for (int segments = 2; !err && segments <= RB_RECOMPUTE_SEGMENTS;
         segments += segments / 4 + 1) {
        enum rb_footprint_fit fit = RB_FOOTPRINT_MISFITS;

        rb_recompute_cut(work->graph, segments, &work->cuts);
        err = make_programs(work, batch, keep);
        if (err)
            break;
        measure_programs(work->model, keep, &arena, &flops);
        if (limit)
            fit = rb_footprint_fits(work->spec, work->model, keep, limit);
        if (fit == RB_FOOTPRINT_FITS)
            return 0;
        if (arena < least && !some) {
            least = arena;
            best = work->cuts;
        }
        some |= !keep && fit == RB_FOOTPRINT_FITS_SOME;
    }
    work->cuts = best;
    return err ? err : make_programs(work, batch, keep);
}

static void say(struct rb_compile_work *work, uint64_t before, double flops, bool both)
{
    uint64_t after;
    double more;

    measure_programs(work->model, both, &after, &more);
    snprintf(work->recomputed, sizeof(work->recomputed),
             ", activations in %.1f MiB instead of %.1f for %.0f %% more products%s",
             (double)after / (1 << 20), (double)before / (1 << 20),
             flops > 0 ? 100 * (more / flops - 1) : 0, both ? " where memory asks for it" : "");
}

int rb_compile_recompute(struct rb_compile_work *work, int64_t batch)
{
    const Rb__MemorySpec *memory = work->spec->memory;
    const char *word = memory && memory->recompute ? memory->recompute : "auto";
    bool always = !strcmp(word, "always"), both;
    uint64_t limit = always ? 0 : rb_footprint_limit(work->spec), before;
    enum rb_footprint_fit fit = RB_FOOTPRINT_MISFITS;
    double flops;
    int err;

    if (limit)
        fit = rb_footprint_fits(work->spec, work->model, false, limit);
    if (work->model->asynchronous || work->spec->parallel->hypergraph > 1 ||
        !strcmp(word, "never") || (!always && !limit) || fit == RB_FOOTPRINT_FITS)
        return 0;
    /* GPUs give no memory back when a worker goes over to other programs */
    both = fit == RB_FOOTPRINT_FITS_SOME && !rb_spec_class_is(work->model->numeric_class, "cuda");
    measure_programs(work->model, false, &before, &flops);
    err = search_cuts(work, batch, limit, both ? work->model->n_programs : 0);
    if (!err && work->cuts.n)
        say(work, before, flops, both);
    return err;
}
