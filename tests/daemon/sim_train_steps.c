/* SPDX-License-Identifier: Apache-2.0 */
/* Step after step in a configuration; as in worker/train_steps.c. */
#include "sim_train_inside.h"

#include <inttypes.h>
#include <stdio.h>

struct saving {
    struct sim_state state;
    uint32_t number;
};

static void on_saved(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;
    const struct saving *saving = what;
    struct sim_word word = {.number = saving->number, .level = saving->state.level, .saved = true};

    if (!process->alive || process->stopped || stamp != process->saving)
        return;
    process->saving = 0;
    snprintf(word.path, sizeof word.path, "/shared/%s/step-%" PRId64, process->job->id,
             saving->state.level);
    sim_file_put(sim, word.path, -1, &saving->state);
    sim_tell(process, SIM_SAVED, &word);
}

static void save_periodically(struct sim_process *process, const struct sim_state *state)
{
    struct sim *sim = process->sim;
    struct saving *saving;

    if (process->active->rank || !process->job->checkpoint_every || process->saving ||
        process->state.level % process->job->checkpoint_every || !sim_whole(state))
        return;
    saving = sim_new(sim, sizeof *saving);
    saving->state = *state;
    saving->number = process->number;
    process->saving = ++sim->sequence;
    sim_in(sim, sim_between(sim, SAVE_LOW_US, SAVE_HIGH_US), on_saved, process, process->saving,
           saving);
}

static void tell_row(struct sim_process *process)
{
    sim_train_tell_entered(process);
    process->rows = process->state.level;
    process->row_number[process->rows] = process->active->number;
    process->row_rank[process->rows] = process->active->rank;
    sim_tell_rows(process);
}

/* A state in parts is collected from all ranks at the rank that saves it. */
static int save(struct sim_process *process)
{
    int collector = process->decision.collector, err;

    if (collector < 0) {
        save_periodically(process, &process->state);
        return RB_OK;
    }
    err = sim_collect(process, (uint32_t)collector);
    if (!err && process->active->rank == (uint32_t)collector)
        save_periodically(process, &process->whole);
    return err;
}

static int after_step(struct sim_process *process)
{
    int err;

    if (process->stage != SIM_STAGE_COLLECTS) {
        process->stage = SIM_STAGE_COLLECTS;
        sim_train_drop(process, &process->retired);
        tell_row(process);
        sim_train_stand(process, SIM_TRAINING);
    }
    err = save(process);
    if (err == RB_EAGAIN)
        return STAY;
    if (err)
        return sim_train_interrupted(process, err);
    if (process->state.level >= process->job->steps)
        return SIM_DONE;
    if (!process->decision.flip)
        return SIM_TRAINING;
    if (!process->next || process->next->number != process->decision.number)
        return SIM_LEFT;
    if (!process->next->roster)
        return SIM_OPENING;
    err = sim_shift(process, process->next);
    sim_train_advance(process);
    return err ? sim_train_interrupted(process, err) : sim_train_enter(process);
}

int sim_train_training(struct sim_process *process)
{
    int err;

    if (!process->entered)
        sim_step_start(process);
    if (process->stage == SIM_STAGE_COLLECTS && process->committed)
        return after_step(process);
    err = sim_step_run(process);
    if (err == RB_EAGAIN)
        return STAY;
    if (err && process->committed)
        tell_row(process);
    return err ? sim_train_interrupted(process, err) : after_step(process);
}
