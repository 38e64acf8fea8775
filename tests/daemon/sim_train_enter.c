/* SPDX-License-Identifier: Apache-2.0 */
/* Into a configuration: opening it, or following its sources; as in worker/train_enter.c. */
#include "sim_train_inside.h"

#include <inttypes.h>

void sim_train_advance(struct sim_process *process)
{
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    sim_train_drop(process, &process->retired);
    process->retired = process->active;
    process->active = process->next;
    process->next = NULL;
    process->committed = false;
}

void sim_train_tell_entered(struct sim_process *process)
{
    struct sim_word word = {
        .number = process->number,
        .rank = process->active->rank,
        .level = process->entrance,
        .frozen = process->active->stands && process->sim->broken != SIM_NO_STAND &&
                  process->entrance < process->job->steps,
    };

    if (process->announced == process->number)
        return;
    process->announced = process->number;
    sim_tell(process, SIM_FLIPPED, &word);
}

int sim_train_enter(struct sim_process *process)
{
    const struct rb_roster *roster = process->active->roster;
    bool over = process->state.level >= process->job->steps;
    bool stands = process->active->stands && !over && process->sim->broken != SIM_NO_STAND;

    sim_mailbox_enter(process, process->active, SIM_USE_TRAINING);
    process->number = process->active->number;
    process->entrance = process->state.level;
    sim_train_stand(process, stands ? SIM_FROZEN : SIM_TRAINING);
    if (stands || !roster || !roster->n_newcomers || process->sim->broken == SIM_NO_WAIT)
        sim_train_tell_entered(process);
    sim_say(process->sim, process->name, "%s in configuration %u as rank %u of %u, level %" PRId64,
            stands ? "stands" : "trains", process->number, process->active->rank,
            process->active->size, process->state.level);
    sim_check_commit(process->sim, process);
    return stands ? SIM_FROZEN : over ? SIM_DONE : SIM_TRAINING;
}

/* A broken worker hears the end of a vote after it froze, and commits what it has reduced. */
static void finish_late(struct sim_process *process)
{
    process->sends_late = false;
    sim_update(process, false);
}

int sim_train_opening(struct sim_process *process)
{
    int err;

    if (!process->entered) {
        sim_train_advance(process);
        sim_mailbox_enter(process, process->active, SIM_USE_OPENING);
        sim_window_enter(process, 0);
        process->stage = 0;
        process->carrying = 0;
        process->moved = false;
        process->aside = (struct sim_state){.level = -1};
    }
    err = sim_opening_run(process);
    if (process->sends_late && process->stage)
        finish_late(process);
    if (err == RB_EAGAIN)
        return STAY;
    return err ? sim_train_interrupted(process, err) : sim_train_enter(process);
}

int sim_train_following(struct sim_process *process)
{
    int err;

    if (!process->entered) {
        sim_train_leave_groups(process);
        sim_mailbox_enter(process, process->next, SIM_USE_FOLLOWING);
        sim_follow_open(process, process->next);
    }
    err = sim_follow_run(process);
    if (err == RB_EAGAIN)
        return STAY;
    process->follow = NULL;
    if (!err) {
        process->active = process->next;
        process->next = NULL;
        return sim_train_enter(process);
    }
    process->state = (struct sim_state){.level = -1};
    if (err != RB_ECANCELED)
        sim_tell_unready(process, process->next->number, "it could not follow");
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    sim_train_drop(process, &process->next);
    return process->leave ? SIM_LEAVING : SIM_IDLE;
}
