/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a configuration, as in worker/opening.c. */
#include "sim_worker.h"

#include "base/hash.h"

#include <string.h>

enum { LEVELS, RESTORED, ALIGNS, RECEIVES, COMPARES };

/* worker/opening.c: rb_opening_source. */
static int source_of(const struct sim_process *process)
{
    const int64_t *levels = process->levels;
    int source = 0;

    for (uint32_t r = 1; r < process->active->size; r++)
        if (levels[r] > levels[source] && process->sim->broken != SIM_NO_LEVELS)
            source = (int)r;
    return levels[source] < 0 ? -1 : source;
}

static int gather(struct sim_process *process, unsigned purpose, const void *mine, void *all,
                  size_t bytes)
{
    const struct sim_conf *conf = process->active;

    return sim_gather(process->sim, conf->group, conf->rank, sim_tag(purpose, conf->number, 0, 0),
                      mine, all, bytes);
}

static void restore(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;
    struct sim *sim = process->sim;
    const struct sim_file *file;

    if (!conf->restores)
        return;
    file = sim_file_get(sim, conf->restore, (int)(process->node - sim->nodes));
    if (!conf->restore[0])
        process->state = *sim_reference(sim, process->job, 0);
    else if (file)
        process->state = file->state;
}

static bool keeps(const struct sim_process *process, uint32_t rank)
{
    return process->levels[rank] >= process->levels[process->source];
}

/* The source sends block by block to whoever is below it. */
static void give(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;

    for (uint32_t r = 0; r < conf->size; r++)
        for (unsigned b = 0; b < SIM_BLOCKS && !keeps(process, r); b++)
            sim_send(process->sim, conf->group, conf->rank, r,
                     sim_tag(SIM_TAG_COPY, (uint64_t)process->state.level, b, 0),
                     &process->state.blocks[b], sizeof(uint64_t));
}

/* Into a state of its own: what it had before stays whole until all has come. */
static int receive(struct sim_process *process)
{
    const struct sim_conf *conf = process->active;
    int64_t level = process->levels[process->source];

    while (process->fresh.level < SIM_BLOCKS) {
        unsigned b = (unsigned)process->fresh.level;
        int err = sim_receive(process->sim, conf->group, conf->rank, (uint32_t)process->source,
                              sim_tag(SIM_TAG_COPY, (uint64_t)level, b, 0),
                              &process->fresh.blocks[b], sizeof(uint64_t));

        if (err)
            return err;
        process->fresh.level++;
    }
    process->state = process->fresh;
    process->state.level = level;
    process->kept = -1;
    return RB_OK;
}

static int compare(struct sim_process *process)
{
    uint64_t hashes[SIM_RANKS], mine = rb_hash64(&process->state, sizeof process->state);
    int err = gather(process, SIM_TAG_HASHES, &mine, hashes, sizeof mine);

    for (uint32_t r = 1; !err && r < process->active->size; r++)
        if (hashes[r] != hashes[0])
            return RB_EINTERNAL;
    return err;
}

/* Who was at this level already has what the last vote left, as in any step. */
static bool all_are_level(const struct sim_process *process)
{
    for (uint32_t r = 0; r < process->active->size; r++)
        if (process->levels[r] < 0 || process->levels[r] != process->levels[0])
            return false;
    return true;
}

static int align(struct sim_process *process)
{
    uint32_t rank = process->active->rank;

    if (rank == (uint32_t)process->source)
        give(process);
    process->stage = COMPARES;
    if (!keeps(process, rank)) {
        process->fresh.level = 0; /* counts blocks */
        process->stage = RECEIVES;
    }
    return process->alive ? RB_OK : RB_EAGAIN;
}

int sim_opening_run(struct sim_process *process)
{
    int err = RB_OK;

    while (!err && process->alive)
        switch (process->stage) {
        case LEVELS:
            err = gather(process, SIM_TAG_LEVELS, &process->state.level, process->levels,
                         sizeof(int64_t));
            if (err)
                break;
            process->source = source_of(process);
            process->stage = process->source < 0 ? RESTORED : ALIGNS;
            if (process->source < 0)
                restore(process);
            break;
        case RESTORED:
            err = gather(process, SIM_TAG_RESTORED, &process->state.level, process->levels,
                         sizeof(int64_t));
            if (err)
                break;
            process->source = source_of(process);
            process->stage = ALIGNS;
            if (process->source < 0)
                err = RB_ENOTFOUND;
            break;
        case ALIGNS:
            err = align(process);
            break;
        case RECEIVES:
            err = receive(process);
            if (!err)
                process->stage = COMPARES;
            break;
        default:
            err = all_are_level(process) ? RB_OK : compare(process);
            return err;
        }
    return err ? err : RB_EAGAIN;
}
