/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a configuration, as in worker/join/opening.c. */
#include "sim_worker.h"

#include "base/hash.h"

#include <string.h>

enum { TESTIFIES, RESTORED, TELLS, COPIES, COMPARES };
enum { MOVES = 2 * SIM_BLOCKS * SIM_RANKS };

struct testimony {
    struct rb_testimony said;
    uint8_t held[SIM_BLOCKS];
};

static void judge(struct sim_process *process, struct rb_recovery *ret_recovery)
{
    struct rb_testimony *testimonies = process->testimonies;

    for (uint32_t r = 1; r < process->active->size && process->sim->broken == SIM_NO_LEVELS; r++)
        if (testimonies[0].level >= 0 && testimonies[r].level >= 0)
            testimonies[r].level = testimonies[0].level;
    rb_recovery_judge(testimonies, process->testified, process->active->size, SIM_BLOCKS,
                      ret_recovery);
}

static int gather(struct sim_process *process, unsigned purpose, const void *mine, void *all,
                  size_t bytes)
{
    const struct sim_conf *conf = process->active;

    return sim_gather(process->sim, conf->group, conf->rank, sim_tag(purpose, conf->number, 0, 0),
                      mine, all, bytes);
}

static int testify(struct sim_process *process, unsigned purpose)
{
    struct testimony mine, all[SIM_RANKS];
    int err;

    memset(&mine, 0, sizeof mine);
    mine.said = sim_testify(process);
    memcpy(mine.held, process->state.held, SIM_BLOCKS);
    err = gather(process, purpose, &mine, all, sizeof mine);
    for (uint32_t r = 0; !err && r < process->active->size; r++) {
        process->testimonies[r] = all[r].said;
        memcpy(process->testified + r * SIM_BLOCKS, all[r].held, SIM_BLOCKS);
    }
    return err;
}

static void restore(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;
    struct sim *sim = process->sim;
    const struct sim_file *file;

    process->moved = true;
    if (!conf->restores)
        return;
    file = sim_file_get(sim, conf->restore, (int)(process->node - sim->nodes));
    if (!conf->restore[0])
        process->state = *sim_reference(sim, process->job, 0);
    else if (file)
        process->state = file->state;
}

/* ---- The entry --------------------------------------------------------------------------------*/

struct told {
    uint32_t skip, number;
};

static void apply(struct sim_process *process, const struct told *told)
{
    sim_update(process, told->skip);
    process->applied_by = told->number;
    process->rows = process->state.level;
    process->row_number[process->rows] = told->number;
    process->row_rank[process->rows] = process->active->rank;
    sim_tell_rows(process);
}

static int tell(struct sim_process *process, const struct rb_recovery *recovery)
{
    const struct sim_conf *conf = process->active;
    uint64_t tag = sim_tag(SIM_TAG_ENTRY, conf->number, 0, 0);
    struct told told = {process->applied_skip, process->applied_by};
    int err = RB_OK;

    if ((int)conf->rank == recovery->teller)
        for (uint32_t r = 0; r < conf->size && process->alive; r++)
            if (recovery->fates[r] == RB_FATE_APPLIES)
                sim_send(process->sim, conf->group, conf->rank, r, tag, &told, sizeof told);
    if (recovery->fates[conf->rank] == RB_FATE_APPLIES && process->alive)
        err = sim_receive(process->sim, conf->group, conf->rank, (uint32_t)recovery->teller, tag,
                          &told, sizeof told);
    if (!err && process->alive && recovery->fates[conf->rank] == RB_FATE_APPLIES)
        apply(process, &told);
    return process->alive ? err : RB_EAGAIN;
}

/* ---- Blocks -----------------------------------------------------------------------------------*/

static void add_block(const struct sim_process *process, const struct rb_recovery *recovery,
                      size_t b, uint32_t rank, struct rb_coll_move *moves, size_t *n)
{
    const struct rb_state *state = &process->model.state;
    bool lacks_weights = recovery->fates[rank] != RB_FATE_LEVEL || process->testimonies[rank].torn;
    int from = recovery->givers[b];

    if (rb_recovery_has(recovery, process->testified, rank, b))
        return;
    if (lacks_weights)
        moves[(*n)++] = (struct rb_coll_move){from, (int)rank, state->w + b, sizeof(float)};
    if (rb_placement_holds(&process->active->as.placement, rank, b))
        moves[(*n)++] = (struct rb_coll_move){from, (int)rank, state->m + b, sizeof(float)};
}

static void take_in(struct sim_process *process, struct sim_state *state, bool fresh)
{
    const struct sim_conf *conf = process->active;
    bool undecided = !fresh && process->pending == state->level;

    for (size_t b = 0; b < SIM_BLOCKS; b++)
        state->held[b] =
            rb_recovery_held(fresh ? RB_HELD_NOT : state->held[b],
                             rb_placement_holds(&conf->as.placement, conf->rank, b), undecided);
    state->torn = false;
}

/* What it had before stays whole until all has come. */
static int copy(struct sim_process *process, const struct rb_recovery *recovery)
{
    const struct sim_conf *conf = process->active;
    bool fresh = recovery->fates[conf->rank] == RB_FATE_VOID;
    struct sim_state *into = fresh ? &process->aside : &process->state;
    struct rb_coll_move moves[MOVES];
    size_t n = 0;
    int err;

    for (size_t b = 0; b < SIM_BLOCKS; b++)
        for (uint32_t r = 0; r < conf->size; r++)
            add_block(process, recovery, b, r, moves, &n);
    for (uint32_t r = 0; r < conf->size; r++)
        process->moved |= recovery->fates[r] == RB_FATE_VOID;
    process->moved |= n > 0;
    if (fresh)
        process->applied = process->pending = process->kept = -1;
    err = sim_carry(process, into, sim_tag(SIM_TAG_COPY, conf->number, 0, 0), moves, n);
    if (err)
        return err;
    take_in(process, into, fresh);
    if (fresh) {
        process->state = process->aside;
        process->state.level = recovery->level;
    }
    return RB_OK;
}

static int compare(struct sim_process *process)
{
    const struct rb_placement *placement = &process->active->as.placement;
    uint64_t mine[1 + SIM_BLOCKS], all[SIM_RANKS][1 + SIM_BLOCKS];
    int err;

    mine[0] = rb_hash64(process->state.blocks, sizeof process->state.blocks);
    for (size_t b = 0; b < SIM_BLOCKS; b++)
        mine[1 + b] = process->state.held[b] ? process->state.moments[b] : 0;
    err = gather(process, SIM_TAG_HASHES, mine, all, sizeof mine);
    for (size_t i = 0; !err && i < 1 + SIM_BLOCKS; i++)
        for (uint32_t r = 0, first = i ? placement->primary[i - 1] : 0; r < process->active->size;
             r++)
            if (all[r][i] != all[first][i] && (!i || rb_placement_holds(placement, r, i - 1)))
                return RB_EINTERNAL;
    return err;
}

static int step(struct sim_process *process, struct rb_recovery *recovery)
{
    int err;

    switch (process->stage) {
    case TELLS:
        err = tell(process, recovery);
        process->stage = err ? TELLS : COPIES;
        return err;
    case COPIES:
        err = copy(process, recovery);
        if (!err && process->state.level != recovery->level)
            return RB_EINTERNAL;
        process->stage = err ? COPIES : COMPARES;
        return err;
    default:
        return RB_EINTERNAL;
    }
}

static int call(struct sim_process *process)
{
    bool again = process->stage == RESTORED;
    struct rb_recovery recovery;
    int err = testify(process, again ? SIM_TAG_RESTORED : SIM_TAG_LEVELS);

    if (err)
        return err;
    judge(process, &recovery);
    process->stage = recovery.level < 0 ? RESTORED : TELLS;
    if (recovery.level < 0)
        err = again ? RB_ENOTFOUND : RB_OK;
    else if (recovery.lost >= 0)
        err = RB_ELOST;
    rb_recovery_done(&recovery);
    if (!err && process->stage == RESTORED)
        restore(process);
    return err;
}

static void let_go(struct sim_process *process)
{
    const uint8_t *holds = process->active->as.placement.holds + process->active->rank * SIM_BLOCKS;

    if (rb_recovery_gains(process->state.held, holds, SIM_BLOCKS))
        process->pending = -1;
    sim_hold(&process->state, holds);
}

int sim_opening_run(struct sim_process *process)
{
    struct rb_recovery recovery;
    int err = RB_OK;

    while (!err && process->alive && process->stage < COMPARES) {
        if (process->stage <= RESTORED) {
            err = call(process);
            continue;
        }
        judge(process, &recovery);
        err = step(process, &recovery);
        rb_recovery_done(&recovery);
    }
    if (!err && process->alive && process->moved)
        err = compare(process);
    if (!process->alive || err)
        return err ? err : RB_EAGAIN;
    let_go(process);
    return RB_OK;
}
