/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's phases, as in worker/train*.c. */
#include "sim_worker.h"

#include <inttypes.h>
#include <stdio.h>

enum { STAY = -1, COLLECTS = -1 /* a stage of the end */ };
enum { SAVE_LOW_US = 5000, SAVE_HIGH_US = 60000, TRY_AGAIN_US = 1000000 };

/* ---- Ways out ---------------------------------------------------------------------------------*/

static void stand(struct sim_process *process, enum sim_phase phase)
{
    process->stands_active = process->number;
    process->stands_level = process->state.level;
    process->stands_frozen = phase == SIM_FROZEN;
    process->stands_done = phase == SIM_DONE;
    sim_window_enter(process, phase == SIM_TRAINING ? process->number : 0);
}

static void drop(struct sim_process *process, struct sim_conf **conf)
{
    struct sim_conf *dropped = *conf;

    *conf = NULL;
    sim_conf_free(process, dropped);
}

static void leave_groups(struct sim_process *process)
{
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    drop(process, &process->active);
    drop(process, &process->retired);
}

static int fail(struct sim_process *process, const char *reason)
{
    struct sim_word word = {0};

    snprintf(word.reason, sizeof word.reason, "%s", reason);
    sim_tell(process, SIM_FAILED_WORD, &word);
    sim_fail(process->sim, "%s gives up: %s", process->name, reason);
    return SIM_FAILED;
}

static void on_exit(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)sim;
    (void)stamp;
    (void)what;
    sim_process_kill(who, true, "left");
}

/* Too many have died at once, or one whose blocks nobody else was to have. */
static int lose(struct sim_process *process)
{
    struct sim_word word = {.lost = true};

    snprintf(word.reason, sizeof word.reason, "nobody holds some block any more");
    sim_say(process->sim, process->name, "%s", word.reason);
    sim_tell(process, SIM_FAILED_WORD, &word);
    sim_in(process->sim, sim_between(process->sim, 500, 20000), on_exit, process, 0, NULL);
    return SIM_FAILED;
}

static int freeze(struct sim_process *process, const char *reason)
{
    struct sim_word word = {.number = process->active->number, .level = process->state.level};

    sim_say(process->sim, process->name, "frozen at level %" PRId64 " in configuration %u: %s",
            word.level, word.number, reason);
    snprintf(word.reason, sizeof word.reason, "%s", reason);
    sim_tell(process, SIM_FROZE, &word);
    leave_groups(process);
    return SIM_FROZEN;
}

static int interrupted(struct sim_process *process, int err)
{
    sim_window_enter(process, 0);
    if (process->leave)
        return SIM_LEAVING;
    if (err == RB_ELOST) {
        leave_groups(process);
        return lose(process);
    }
    if (err != RB_EPEER && err != RB_ECANCELED)
        return fail(process, "something is broken");
    process->sends_late = process->sim->broken == SIM_NO_FREEZE && process->phase == SIM_TRAINING &&
                          process->stage == SIM_STAGE_VOTES;
    return freeze(process, "it lost a peer");
}

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
    drop(process, &process->next);
    return STAY;
}

/* A broken worker hears the end of a vote behind its freeze, and commits what it has reduced. */
static void finish_late(struct sim_process *process)
{
    process->sends_late = false;
    sim_update(process, false);
}

static int wait_for_orders(struct sim_process *process)
{
    if (!process->entered)
        stand(process, process->phase);
    for (;;) {
        int begun = process->next ? begin_next(process) : STAY;

        if (begun != STAY)
            return begun;
        if (process->leave)
            return SIM_LEAVING;
        if (!sim_mailbox_can_take(process))
            return STAY;
        process->next = process->prepared;
        process->prepared = NULL;
    }
}

/* ---- Opening, following -----------------------------------------------------------------------*/

static void advance_configuration(struct sim_process *process)
{
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    drop(process, &process->retired);
    process->retired = process->active;
    process->active = process->next;
    process->next = NULL;
    process->committed = false;
}

static void tell_entered(struct sim_process *process)
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

static int enter(struct sim_process *process)
{
    const struct rb_roster *roster = process->active->roster;
    bool over = process->state.level >= process->job->steps;
    bool stands = process->active->stands && !over && process->sim->broken != SIM_NO_STAND;

    sim_mailbox_enter(process, process->active, SIM_USE_TRAINING);
    process->number = process->active->number;
    process->entrance = process->state.level;
    stand(process, stands ? SIM_FROZEN : SIM_TRAINING);
    if (stands || !roster || !roster->n_newcomers || process->sim->broken == SIM_NO_WAIT)
        tell_entered(process);
    sim_say(process->sim, process->name, "%s in configuration %u as rank %u of %u, level %" PRId64,
            stands ? "stands" : "trains", process->number, process->active->rank,
            process->active->size, process->state.level);
    sim_check_commit(process->sim, process);
    return stands ? SIM_FROZEN : over ? SIM_DONE : SIM_TRAINING;
}

static int opening(struct sim_process *process)
{
    int err;

    if (!process->entered) {
        advance_configuration(process);
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
    return err ? interrupted(process, err) : enter(process);
}

static int following(struct sim_process *process)
{
    int err;

    if (!process->entered) {
        leave_groups(process);
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
        return enter(process);
    }
    process->state = (struct sim_state){.level = -1};
    if (err != RB_ECANCELED)
        sim_tell_unready(process, process->next->number, "it could not follow");
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    drop(process, &process->next);
    return process->leave ? SIM_LEAVING : SIM_IDLE;
}

/* ---- Training ---------------------------------------------------------------------------------*/

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
    tell_entered(process);
    process->rows = process->state.level;
    process->row_number[process->rows] = process->active->number;
    process->row_rank[process->rows] = process->active->rank;
    sim_tell_rows(process);
}

/* A part of it is collected from all where it is to be saved. */
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
        drop(process, &process->retired);
        tell_row(process);
        stand(process, SIM_TRAINING);
    }
    err = save(process);
    if (err == RB_EAGAIN)
        return STAY;
    if (err)
        return interrupted(process, err);
    if (process->state.level >= process->job->steps)
        return SIM_DONE;
    if (!process->decision.flip)
        return SIM_TRAINING;
    if (!process->next || process->next->number != process->decision.number)
        return SIM_LEFT;
    if (!process->next->roster)
        return SIM_OPENING;
    err = sim_shift(process, process->next);
    advance_configuration(process);
    return err ? interrupted(process, err) : enter(process);
}

static int training(struct sim_process *process)
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
    return err ? interrupted(process, err) : after_step(process);
}

/* ---- Ends -------------------------------------------------------------------------------------*/

static int done(struct sim_process *process)
{
    struct sim_word word = {.number = process->number, .level = process->state.level};

    if (!process->entered) {
        drop(process, &process->next);
        process->carrying = 0;
        process->stage = COLLECTS;
    }
    if (process->stage == COLLECTS) {
        int err = sim_collect(process, 0);

        if (err)
            return err == RB_EAGAIN ? STAY : interrupted(process, err);
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
        stand(process, SIM_DONE);
        sim_tell(process, SIM_IS_DONE, &word);
    }
    return wait_for_orders(process);
}

static int failed(struct sim_process *process)
{
    return process->leave ? SIM_LEAVING : STAY;
}

/* What it has is to go on here. */
static int stay(struct sim_process *process)
{
    process->leave = process->leave_saves = process->told_stay = false;
    return process->active ? freeze(process, "it is to stay") : SIM_FROZEN;
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

/* What it cannot save it tries again, a second later. */
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
        sim_in(sim, sim_between(sim, 500, 20000), on_exit, process, 0, NULL);
    }
    return STAY;
}

/* ---- One after the other ----------------------------------------------------------------------*/

bool sim_pump_step(struct sim_process *process)
{
    static int (*const run[])(struct sim_process *) = {
        [SIM_IDLE] = wait_for_orders,
        [SIM_OPENING] = opening,
        [SIM_FOLLOWING] = following,
        [SIM_TRAINING] = training,
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
