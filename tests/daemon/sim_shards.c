/* SPDX-License-Identifier: Apache-2.0 */
/* A state in shards: what is moved behind a step, as in worker/step/step.c, taking.c and collect.c.
 * The product's rules decide which rank has what, which rank is asked and what is moved; a block's
 * weights and moments are a number each here. */
#include "sim_worker.h"

#include "base/hash.h"
#include "worker/join/recovery.h"
#include "worker/join/taking.h"

#include <stdlib.h>
#include <string.h>

/* Moves name memory: where these would be. */
static float weights_at[SIM_BLOCKS], moments_at[SIM_BLOCKS];

Rb__Model *sim_model(void)
{
    Rb__Model *model = rb_alloc(sizeof *model);

    rb__model__init(model);
    model->n_blocks = SIM_BLOCKS;
    model->blocks = rb_alloc(SIM_BLOCKS * sizeof *model->blocks);
    for (size_t b = 0; b < SIM_BLOCKS; b++) {
        model->blocks[b] = rb_alloc(sizeof(Rb__Block));
        rb__block__init(model->blocks[b]);
        model->blocks[b]->first = b;
        model->blocks[b]->count = 1;
    }
    return model;
}

void sim_conf_place(struct sim *sim, struct sim_job *job, struct sim_conf *conf,
                    const struct rb_replicas *how)
{
    Rb__Plan *plan = rb_alloc(sizeof *plan);
    struct rb_why why = {{0}};

    rb__plan__init(plan);
    plan->summary = rb_string("");
    plan->n_ranks = conf->size;
    plan->ranks = rb_alloc(conf->size * sizeof *plan->ranks);
    for (uint32_t r = 0; r < conf->size; r++) {
        plan->ranks[r] = rb_alloc(sizeof(Rb__RankPlan));
        rb__rank_plan__init(plan->ranks[r]);
    }
    rb_replicas_place(how, job->model, plan);
    conf->as.plan = plan;
    conf->as.number = conf->number;
    conf->as.rank = conf->rank;
    conf->as.size = conf->size;
    if (rb_placement_make(plan, job->model, &conf->as.placement, &why))
        sim_fail(sim, "configuration %u of %s: %s", conf->number, job->id, why.text);
    conf->later = sim->confs;
    sim->confs = conf;
}

void sim_confs_done(struct sim *sim)
{
    for (struct sim_conf *conf = sim->confs; conf; conf = conf->later) {
        rb_placement_done(&conf->as.placement);
        rb__plan__free_unpacked(conf->as.plan, NULL);
        free(conf->as.wants);
    }
    sim->confs = NULL;
}

/* ---- What is held -----------------------------------------------------------------------------*/

void sim_shards_begin(struct sim_process *process)
{
    process->model.message = process->job->model;
    process->model.state = (struct rb_state){
        .w = weights_at,
        .m = moments_at,
        .blocks = SIM_BLOCKS,
        .elements = SIM_BLOCKS,
        .held = process->state.held,
    };
}

void sim_hold(struct sim_state *state, const uint8_t *holds)
{
    for (size_t b = 0; b < SIM_BLOCKS; b++) {
        if (!holds[b])
            state->moments[b] = 0;
        state->held[b] = holds[b];
    }
}

/* worker/model.c: rb_model_settle. */
void sim_settle(struct sim_state *state)
{
    uint8_t stay[SIM_BLOCKS];

    for (size_t b = 0; b < SIM_BLOCKS; b++)
        stay[b] = rb_held_follows(state->held[b]) ? state->held[b] : RB_HELD_NOT;
    sim_hold(state, stay);
}

/* worker/model.c: rb_model_shift. */
int sim_shift(struct sim_process *process, const struct sim_conf *next)
{
    uint8_t *held = process->state.held;

    for (size_t b = 0; b < SIM_BLOCKS; b++) {
        bool holds = rb_placement_holds(&next->as.placement, next->rank, b);

        if (holds && !rb_held_follows(held[b]))
            return RB_EINTERNAL; /* it shows at once */
        if (holds)
            held[b] = RB_HELD;
        else if (held[b])
            held[b] = process->sim->broken == SIM_NO_LINGER ? RB_HELD_NOT : RB_HELD_LINGERS;
    }
    return RB_OK;
}

bool sim_whole(const struct sim_state *state)
{
    for (size_t b = 0; b < SIM_BLOCKS; b++)
        if (!rb_held_follows(state->held[b]))
            return false;
    return true;
}

/* ---- Moving -----------------------------------------------------------------------------------*/

static uint64_t *place_of(struct sim_state *state, const struct rb_coll_move *move, size_t *ret_n)
{
    const float *at = move->bytes;

    *ret_n = move->size / sizeof *at;
    return at >= weights_at && at < weights_at + SIM_BLOCKS ? state->blocks + (at - weights_at)
                                                            : state->moments + (at - moments_at);
}

int sim_carry(struct sim_process *process, struct sim_state *into, uint64_t tag,
              const struct rb_coll_move *moves, size_t n)
{
    const struct sim_conf *conf = process->active;
    int rank = (int)conf->rank;
    size_t count;

    if (process->carrying != tag) {
        process->carrying = tag;
        process->carried = 0;
        for (size_t i = 0; i < n && process->alive; i++)
            if (moves[i].from == rank) {
                const uint64_t *from = place_of(&process->state, &moves[i], &count);

                sim_send(process->sim, conf->group, conf->rank, (uint32_t)moves[i].to,
                         sim_tag(SIM_TAG_CARRY, tag, i, 0), from, count * sizeof *from);
            }
    }
    for (; process->alive && process->carried < n; process->carried++) {
        const struct rb_coll_move *move = &moves[process->carried];
        uint64_t *to = place_of(into, move, &count);
        int err = move->to != rank
                      ? RB_OK
                      : sim_receive(process->sim, conf->group, conf->rank, (uint32_t)move->from,
                                    sim_tag(SIM_TAG_CARRY, tag, process->carried, 0), to,
                                    count * sizeof *to);

        if (err)
            return err;
    }
    if (!process->alive)
        return RB_EAGAIN;
    process->carrying = 0;
    return RB_OK;
}

static uint64_t tag_of(const struct sim_process *process, unsigned what)
{
    return sim_tag(SIM_TAG_CARRY, (uint64_t)process->state.level, what, process->active->number);
}

int sim_gather_weights(struct sim_process *process)
{
    const struct rb_placement *placement = &process->active->as.placement;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc((rb_placement_gifts(placement) + 1) * sizeof *moves);
    size_t n = rb_placement_spread(placement, weights_at, moves);
    int err = sim_carry(process, &process->state, tag_of(process, 0), moves, n);

    if (!err)
        process->state.torn = false;
    return err;
}

/* ---- Taking, handing over ---------------------------------------------------------------------*/

static void note(struct sim_process *process, uint32_t rank, const struct rb_vote_ready *said)
{
    struct sim_conf *active = process->active;
    bool mine = rank == active->rank;

    if (said->gives_up) {
        rb_placement_give_up(&active->as.placement, rank);
        if (mine)
            sim_hold(&process->state, active->as.placement.holds + rank * SIM_BLOCKS);
    } else if (said->takes) {
        rb_placement_take(&active->as.placement, process->job->model, rank, said->takes_first,
                          said->takes);
        if (mine)
            memset(process->state.held + said->takes_first, RB_HELD_TAKEN, said->takes);
    }
}

int sim_take_blocks(struct sim_process *process)
{
    const struct sim_conf *active = process->active;
    struct rb_coll_move moves[SIM_RANKS * RB_STATE_PARTS];
    size_t n = 0;
    int err;

    for (uint32_t r = 0; r < active->size; r++) {
        const struct rb_vote_ready *said = &process->takes[r];
        const struct rb_shard *shard;

        if (!said->takes)
            continue;
        shard = rb_placement_takable(&active->as.placement, r, said->takes_first, said->takes);
        if (!shard)
            return RB_EINTERNAL;
        n += rb_placement_move(&process->model.state, said->takes_first, said->takes,
                               shard->ranks[r % shard->n_ranks], r, moves + n);
    }
    err = sim_carry(process, &process->state, tag_of(process, 3), moves, n);
    for (uint32_t r = 0; !err && r < active->size; r++)
        note(process, r, &process->takes[r]);
    if (!err)
        sim_check_doubled(process->sim, process->job, SIM_CHANGES);
    return err;
}

int sim_hand_over(struct sim_process *process)
{
    const struct sim_conf *active = process->active;
    const struct rb_placement *placement = &active->as.placement;
    struct rb_coll_move moves[SIM_BLOCKS * RB_STATE_PARTS];
    size_t n = 0;
    int err;

    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];
        int heir = rb_placement_heir(placement, process->stays, i);

        if (heir >= 0)
            n += rb_placement_move(&process->model.state, shard->first, shard->count,
                                   shard->ranks[0], (uint32_t)heir, moves + n);
    }
    err = sim_carry(process, &process->state, tag_of(process, 1), moves, n);
    for (size_t i = 0; !err && i < placement->n_shards; i++)
        if (rb_placement_heir(placement, process->stays, i) == (int)active->rank)
            memset(process->state.held + placement->shards[i].first_block, RB_HELD_TAKEN,
                   placement->shards[i].n_blocks);
    return err;
}

/* Into process->whole, at `to`. */
int sim_collect(struct sim_process *process, uint32_t to)
{
    const struct rb_placement *placement = &process->active->as.placement;
    struct rb_coll_move moves[SIM_BLOCKS * RB_STATE_PARTS];
    size_t n = 0;
    int err;

    if (process->active->rank == to && process->carrying != tag_of(process, 2))
        process->whole = process->state;
    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];

        if (!rb_placement_holds(placement, to, shard->first_block))
            n += rb_placement_move(&process->model.state, shard->first, shard->count,
                                   shard->ranks[0], to, moves + n);
    }
    err = sim_carry(process, &process->whole, tag_of(process, 2), moves, n);
    if (!err && process->active->rank == to)
        memset(process->whole.held, RB_HELD, sizeof process->whole.held);
    return err;
}

/* ---- What to say of it ------------------------------------------------------------------------*/

static const struct rb_configuration *next_of(const struct sim_process *process)
{
    return process->next ? &process->next->as : NULL;
}

bool sim_has_taken(const struct sim_process *process)
{
    return rb_taking_complete(&process->model.state, next_of(process));
}

void sim_say_shards(struct sim_process *process, struct rb_vote_ready *ready)
{
    const struct sim_conf *active = process->active;
    const struct sim_job *job = process->job;
    size_t bytes = (1 + (size_t)sim_chance(process->sim, SIM_BLOCKS)) * sizeof(float);

    rb_taking_say(&process->model, &active->as, next_of(process), bytes, ready);
    process->taken_for = rb_taking_stays_for(&process->model.state, next_of(process));
    ready->collects = active->as.placement.sharded && !active->rank && job->checkpoint_every &&
                      !process->saving && !sim_whole(&process->state) &&
                      (process->state.level + 1) % job->checkpoint_every == 0;
}

/* worker/configuration.c: list_wants. */
void sim_list_wants(struct sim_conf *conf)
{
    int source = conf->roster ? rb_roster_source(conf->roster, conf->rank) : -1;

    if (source < 0 || conf->as.wants)
        return;
    conf->as.wants = rb_alloc(SIM_BLOCKS);
    for (size_t b = 0; b < SIM_BLOCKS; b++)
        conf->as.wants[b] = rb_placement_holds(&conf->as.placement, conf->rank, b) ||
                            conf->roster->heirs[b] == source;
}

/* ---- What the living have ---------------------------------------------------------------------*/

struct rb_testimony sim_testify(const struct sim_process *process)
{
    struct rb_testimony mine = {.level = process->state.level, .torn = process->state.torn};

    if (mine.level >= 0 && process->pending == mine.level)
        mine.reduced = 1 + process->pending_attempt;
    if (mine.level >= 0 && process->applied == mine.level)
        mine.entry = 1 + process->applied_attempt;
    return mine;
}

bool sim_have_all(struct sim_process *const *processes, size_t n, const struct sim_process *without,
                  int64_t *ret_level)
{
    struct rb_testimony testimonies[SIM_PROCESSES_LIVE];
    uint8_t held[SIM_PROCESSES_LIVE * SIM_BLOCKS];
    struct rb_recovery recovery;
    uint32_t ranks = 0;
    bool all;

    for (size_t i = 0; i < n; i++) {
        if (processes[i] == without)
            continue;
        testimonies[ranks] = sim_testify(processes[i]);
        memcpy(held + ranks++ * SIM_BLOCKS, processes[i]->state.held, SIM_BLOCKS);
    }
    rb_recovery_judge(testimonies, held, ranks, SIM_BLOCKS, &recovery);
    all = recovery.level >= 0 && recovery.lost < 0;
    *ret_level = recovery.level;
    rb_recovery_done(&recovery);
    return all;
}
