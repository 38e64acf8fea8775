/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained: a block is a chain of hashes over what each step did to it.  A gradient follows
 * from the whole state, the step and the microbatch; sums are modulo 2^64.  So one microbatch too
 * many, or an older block somewhere, shows in everything that follows. */
#include "sim.h"

#include "base/hash.h"
#include "worker/state/state.h"

#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t a, uint64_t b)
{
    return rb_hash_mix(a * UINT64_C(0x9e3779b97f4a7c15) + b);
}

uint64_t sim_gradient(const struct sim_state *state, uint32_t microbatch, unsigned block)
{
    uint64_t all = (uint64_t)state->level;

    for (unsigned b = 0; b < SIM_BLOCKS; b++)
        all = mix(all, state->blocks[b]);
    return mix(mix(all, microbatch), block);
}

void sim_apply(struct sim_state *state, unsigned block, int64_t level, uint64_t sum, bool skip)
{
    uint64_t *moment = &state->moments[block];

    *moment = mix(mix(mix(*moment, block), (uint64_t)level), skip ? 7 : sum);
    state->blocks[block] = mix(state->blocks[block], *moment);
}

bool sim_redoes(const struct sim_job *job, int64_t level)
{
    return level == 0 || mix((uint64_t)job->steps, (uint64_t)level) % 13 == 0;
}

bool sim_skips(const struct sim_job *job, int64_t level)
{
    return level > 0 && mix((uint64_t)job->steps + 1, (uint64_t)level) % 29 == 0;
}

static void undisturbed_step(const struct sim_job *job, const struct sim_state *from,
                             struct sim_state *to)
{
    *to = *from;
    to->level = from->level + 1;
    for (unsigned b = 0; b < SIM_BLOCKS; b++) {
        uint64_t sum = 0;

        for (uint32_t m = 0; m < job->microbatches; m++)
            sum += sim_gradient(from, m, b);
        sim_apply(to, b, from->level, sum, sim_skips(job, from->level));
    }
}

const struct sim_state *sim_reference(struct sim *sim, struct sim_job *job, int64_t level)
{
    static const struct sim_state none = {.level = -1};

    (void)sim;
    if (level < 0 || level > job->steps)
        return &none;
    for (; job->known <= level; job->known++) {
        struct sim_state *at = &job->reference[job->known];

        if (job->known)
            undisturbed_step(job, at - 1, at);
        else
            for (unsigned b = 0; b < SIM_BLOCKS; b++) {
                at->blocks[b] = mix((uint64_t)job->steps, b + 1);
                at->moments[b] = b + 1;
                at->held[b] = RB_HELD;
            }
    }
    return &job->reference[level];
}

bool sim_same(const struct sim_state *a, const struct sim_state *b)
{
    return a->level == b->level && !memcmp(a->blocks, b->blocks, sizeof a->blocks) &&
           !memcmp(a->moments, b->moments, sizeof a->moments);
}

bool sim_agrees(const struct sim_state *part, const struct sim_state *whole)
{
    if (part->level != whole->level)
        return false;
    for (unsigned b = 0; b < SIM_BLOCKS; b++) {
        uint8_t held = part->held[b];

        if ((held && part->moments[b] != whole->moments[b]) ||
            ((!part->torn || held) && part->blocks[b] != whole->blocks[b]))
            return false;
    }
    return true;
}

struct sim_job *sim_job(struct sim *sim, const char *id)
{
    for (size_t i = 0; i < sim->n_jobs; i++)
        if (!strcmp(sim->jobs[i].id, id))
            return &sim->jobs[i];
    return NULL;
}

struct sim_node *sim_node(struct sim *sim, const char *name)
{
    for (size_t i = 0; i < sim->n_nodes; i++)
        if (!strcmp(sim->nodes[i].name, name))
            return &sim->nodes[i];
    return NULL;
}

/* ---- Files: what a checkpoint or a parked state is --------------------------------------------*/

void sim_file_put(struct sim *sim, const char *path, int node, const struct sim_state *state)
{
    struct sim_file *file = (struct sim_file *)sim_file_get(sim, path, node);

    if (!file && sim->n_files == SIM_FILES) {
        sim_fail(sim, "too many files");
        return;
    }
    if (!file)
        file = &sim->files[sim->n_files++];
    snprintf(file->path, sizeof file->path, "%s", path);
    file->node = node;
    file->state = *state;
}

const struct sim_file *sim_file_get(struct sim *sim, const char *path, int node)
{
    for (size_t i = 0; i < sim->n_files; i++)
        if (!strcmp(sim->files[i].path, path) &&
            (sim->files[i].node < 0 || sim->files[i].node == node))
            return &sim->files[i];
    return NULL;
}
