/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/opening_inside.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/checkpoint/restore.h"
#include "worker/stages/lap.h"

#include <stdlib.h>
#include <string.h>

/* ---- Who has what ---------------------------------------------------------------------------*/

static struct rb_testimony testify(const struct rb_model *model)
{
    const struct rb_state *state = &model->state;
    struct rb_testimony mine = {
        .level = state->level, .torn = state->torn, .opened = model->opened};

    if (state->level >= 0 && model->pending.level == state->level) {
        mine.lap = model->pending.lap;
        mine.ran = mine.lap ? model->lap->configuration : 0;
        mine.reduced = mine.lap ? 0 : 1 + model->pending.attempt;
    }
    if (state->level >= 0 && model->applied.level == state->level)
        mine.entry = 1 + model->applied.attempt;
    return mine;
}

static int gather_testimonies(struct opening *opening, enum part part, struct rb_why *why)
{
    const struct rb_configuration *configuration = opening->configuration;
    size_t size = sizeof(struct rb_testimony) + opening->blocks;
    RB_CLEANUP(rb_freep) uint8_t *mine = rb_alloc(size);
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(size * configuration->size);
    struct rb_testimony testimony = testify(opening->model);
    int err;

    memcpy(mine, &testimony, sizeof testimony);
    memcpy(mine + sizeof testimony, opening->model->state.held, opening->blocks);
    err = rb_coll_gather(configuration->coll, opening_tag(opening, part), mine, all, size, why);
    for (uint32_t r = 0; !err && r < configuration->size; r++) {
        memcpy(&opening->testimonies[r], all + r * size, sizeof testimony);
        memcpy(opening->held + r * opening->blocks, all + r * size + sizeof testimony,
               opening->blocks);
    }
    if (err)
        return err;
    rb_recovery_done(&opening->recovery);
    rb_recovery_judge(opening->testimonies, opening->held, configuration->size, opening->blocks,
                      &opening->recovery);
    return 0;
}

/* Load what the job starts from.  A failure is told to the others as "no state". */
static int restore(struct opening *opening, struct rb_why *why)
{
    struct rb_model *model = opening->model;
    struct rb_why reason = {0};
    int err = 0, failed = 0;

    opening->moved = true; /* from files, each its own */
    if (opening->configuration->restore)
        failed =
            rb_restore(opening->configuration->restore, model->message, &model->state, &reason);
    err = gather_testimonies(opening, PART_RESTORED, why);
    if (err || opening->recovery.level >= 0)
        return err;
    if (failed)
        return rb_why_set(why, failed == RB_ENOMEM ? failed : RB_EUNREADABLE, "%s", reason.text);
    return rb_why_set(why, RB_EUNREADABLE, "no member has the state or could load it");
}

static int call(struct opening *opening, struct rb_why *why)
{
    int err = gather_testimonies(opening, PART_TESTIMONIES, why);

    if (!err && opening->recovery.level < 0)
        err = restore(opening, why);
    if (!err && opening->recovery.lost >= 0)
        err = rb_why_set(why, RB_ELOST, "no member holds block %lld of level %lld",
                         (long long)opening->recovery.lost, (long long)opening->recovery.level);
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------*/

/* Do all ranks hold the same bits?  Cheap beside the copy, and the promise of the whole. */
static int compare(struct opening *opening, struct rb_why *why)
{
    const struct rb_configuration *configuration = opening->configuration;
    size_t n = 1 + opening->blocks;
    RB_CLEANUP(rb_freep) uint64_t *mine = rb_alloc(n * sizeof *mine);
    RB_CLEANUP(rb_freep) uint64_t *all = rb_alloc(configuration->size * n * sizeof *all);
    int err;

    rb_state_hashes(&opening->model->state, opening->model->message, mine);
    err = rb_device_check(opening->model->device, why);
    if (err)
        return err;
    err = rb_coll_gather(configuration->coll, opening_tag(opening, PART_HASHES), mine, all,
                         n * sizeof *mine, why);
    for (size_t i = 0; !err && i < n; i++) {
        uint32_t first = i ? configuration->placement.primary[i - 1] : 0;

        for (uint32_t r = 0; r < configuration->size; r++)
            if (all[r * n + i] != all[first * n + i] &&
                (!i || rb_placement_holds(&configuration->placement, r, i - 1)))
                return rb_why_set(why, RB_EINTERNAL,
                                  "ranks %u and %u hold different bits of level %lld", first, r,
                                  (long long)opening->model->state.level);
    }
    return err;
}

/* From now on this rank holds what it shall hold: sums that lack some of that are of no more
 * use. */
static void let_go(struct opening *opening)
{
    struct rb_model *model = opening->model;
    const uint8_t *holds =
        opening->configuration->placement.holds + opening->self * opening->blocks;

    if (rb_recovery_gains(model->state.held, holds, opening->blocks))
        model->pending.level = -1;
    rb_model_hold(model, holds);
}

static int open_all(struct opening *opening, struct rb_why *why)
{
    int err = call(opening, why);

    if (!err)
        err = rb_opening_tell(opening, why);
    if (!err)
        err = rb_opening_align(opening, why);
    if (!err && opening->model->state.level != opening->recovery.level)
        err =
            rb_why_set(why, RB_EINTERNAL, "state of level %lld came as level %lld",
                       (long long)opening->recovery.level, (long long)opening->model->state.level);
    if (!err && opening->moved) /* else all have what the last vote left, as in any step */
        err = compare(opening, why);
    return err;
}

int rb_opening_run(struct rb_model *model, const struct rb_configuration *configuration,
                   uint64_t *ret_bytes, struct rb_why *why)
{
    size_t blocks = model->message->n_blocks;
    struct opening opening = {
        .model = model,
        .configuration = configuration,
        .self = configuration->rank,
        .blocks = blocks,
        .testimonies = rb_alloc(configuration->size * sizeof *opening.testimonies),
        .held = rb_alloc(configuration->size * blocks + 1),
        .recovery = {.level = -1, .lost = -1},
    };
    int err;

    rb_fault("worker.opening");
    err = open_all(&opening, why);
    rb_fault("worker.opening.hashed");
    if (!err) {
        let_go(&opening);
        model->opened = configuration->number;
    }
    *ret_bytes = opening.bytes;
    rb_recovery_done(&opening.recovery);
    free(opening.testimonies);
    free(opening.held);
    return err ? rb_why_add(why, err, "opening configuration %u", configuration->number) : 0;
}
