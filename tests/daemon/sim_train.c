/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's phases, how it waits and how it ends; as in worker/train.c. */
#include "sim_train_inside.h"

#include <inttypes.h>
#include <stdio.h>

enum { COLLECTS = -1 /* a stage of the end */, TRY_AGAIN_US = 1000000 };

/* ---- Waiting ----------------------------------------------------------------------------------*/

static int begin_next(struct sim_process *process)
{
    struct sim_conf *next = process->next;
    bool stays = process->state.level >= 0 && !sim_whole(&process->state) && !next->recovers;

    if (!next->roster && !stays)
        return SIM_OPENING;
    if (next->roster && rb_roster_newcomer(next->roster, next->rank) >= 0 &&
        process->state.level < 0)
        return SIM_FOLLOWING;
    sim_tell_unready(process, next->number, "this worker does not train any more");
    sim_train_drop(process, &process->next);
    return STAY;
}

static int wait_for_orders(struct sim_process *process)
{
    if (!process->entered)
        sim_train_stand(process, process->phase);
    for (;;) {
        int begun = process->next ? begin_next(process) : STAY;

        if (begun != STAY)
            return begun;
        if (process->leave)
            return SIM_LEAVING;
        if (process->freezes && process->freezes == process->stands_level + 1) {
            process->freezes = 0;
            if (process->phase == SIM_LEFT)
                return sim_train_freeze(process, "it has left, and the others do not answer");
        }
        if (!sim_mailbox_can_take(process))
            return STAY;
        process->next = process->prepared;
        process->prepared = NULL;
    }
}

/* ---- Ends -------------------------------------------------------------------------------------*/

static int done(struct sim_process *process)
{
    struct sim_word word = {.number = process->number, .level = process->state.level};

    if (!process->entered) {
        sim_train_drop(process, &process->next);
        process->carrying = 0;
        process->stage = COLLECTS;
    }
    if (process->stage == COLLECTS) {
        int err = sim_collect(process, 0);

        if (err)
            return err == RB_EAGAIN ? STAY : sim_train_interrupted(process, err);
        process->stage = process->active->rank == 0 ? 0 : 2;
    }
    if (process->stage == 0) {
        process->stage = 1;
        sim_wait(process, sim_between(process->sim, SAVE_LOW_US, SAVE_HIGH_US));
    }
    if (process->stage == 1 && !process->timer_over)
        return STAY;
    if (process->stage == 1) {
        word.saved = true;
        snprintf(word.path, sizeof word.path, "/final/%s", process->job->id);
        sim_file_put(process->sim, word.path, (int)(process->node - process->sim->nodes),
                     &process->whole);
        process->stage = 2;
    }
    if (process->stage == 2) {
        process->stage = 3;
        sim_train_stand(process, SIM_DONE);
        sim_tell(process, SIM_IS_DONE, &word);
    }
    return wait_for_orders(process);
}

static int failed(struct sim_process *process)
{
    return process->leave ? SIM_LEAVING : STAY;
}

/* The process goes on here with what it has. */
static int stay(struct sim_process *process)
{
    process->leave = process->leave_saves = process->told_stay = false;
    return process->active ? sim_train_freeze(process, "it is to stay") : SIM_FROZEN;
}

static void could_not_save(struct sim_process *process)
{
    struct sim_word word = {.number = process->number, .level = -1, .unsaved = true};

    snprintf(word.reason, sizeof word.reason, "there is no room for it");
    sim_say(process->sim, process->name, "could not save its state");
    sim_tell(process, SIM_SAVED, &word);
}

static void save_and_end(struct sim_process *process)
{
    struct sim *sim = process->sim;
    struct sim_word word = {.number = process->number, .level = process->state.level};

    word.saved = true;
    snprintf(word.path, sizeof word.path, "/park/%s/step-%" PRId64, process->job->id, word.level);
    sim_file_put(sim, word.path, (int)(process->node - sim->nodes), &process->state);
    sim_tell(process, SIM_SAVED, &word);
}

/* A state that cannot be saved is tried again, a second later. */
static int leaving(struct sim_process *process)
{
    enum { SAVES, ENDS, ENDED, FAILS };
    struct sim *sim = process->sim;
    bool saves = process->leave_saves && process->state.level >= 0 && sim_whole(&process->state);

    if (!process->entered) {
        process->stage = saves ? SAVES : ENDS;
        if (saves && process->told_stay)
            return stay(process);
        if (saves)
            sim_wait(process, sim_between(sim, SAVE_LOW_US, SAVE_HIGH_US));
    }
    if (process->stage == FAILS && process->timer_over) {
        if (process->told_stay)
            return stay(process);
        process->stage = SAVES;
        sim_wait(process, sim_between(sim, SAVE_LOW_US, SAVE_HIGH_US));
    }
    if (process->stage == SAVES && process->timer_over) {
        if (process->node->full) {
            if (!process->unsaved)
                could_not_save(process);
            process->unsaved = true;
            process->stage = FAILS;
            sim_wait(process, TRY_AGAIN_US);
            return STAY;
        }
        save_and_end(process);
        process->stage = ENDS;
    }
    if (process->stage == ENDS) {
        process->stage = ENDED;
        sim_in(sim, sim_between(sim, 500, 20000), sim_train_exit, process, 0, NULL);
    }
    return STAY;
}

/* ---- One after the other ----------------------------------------------------------------------*/

bool sim_pump_step(struct sim_process *process)
{
    static int (*const run[])(struct sim_process *) = {
        [SIM_IDLE] = wait_for_orders,
        [SIM_OPENING] = sim_train_opening,
        [SIM_FOLLOWING] = sim_train_following,
        [SIM_TRAINING] = sim_train_training,
        [SIM_FROZEN] = wait_for_orders,
        [SIM_LEFT] = wait_for_orders,
        [SIM_DONE] = done,
        [SIM_FAILED] = failed,
        [SIM_LEAVING] = leaving,
    };
    int next = run[process->phase](process);

    process->entered = true;
    if (next == STAY)
        return false;
    process->phase = (enum sim_phase)next;
    process->entered = false;
    return true;
}
