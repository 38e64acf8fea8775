/* SPDX-License-Identifier: Apache-2.0 */
/* Where the step thread stands, and its ways out; as in worker/train_stand.c. */
#include "sim_train_inside.h"

#include <inttypes.h>
#include <stdio.h>

void sim_train_stand(struct sim_process *process, enum sim_phase phase)
{
    process->stands_active = process->number;
    process->stands_level = process->state.level;
    process->stands_frozen = phase == SIM_FROZEN;
    process->stands_done = phase == SIM_DONE;
    sim_window_enter(process, phase == SIM_TRAINING ? process->number : 0);
}

void sim_train_drop(struct sim_process *process, struct sim_conf **conf)
{
    struct sim_conf *dropped = *conf;

    *conf = NULL;
    sim_conf_free(process, dropped);
}

void sim_train_leave_groups(struct sim_process *process)
{
    sim_mailbox_enter(process, NULL, SIM_USE_TRAINING);
    sim_train_drop(process, &process->active);
    sim_train_drop(process, &process->retired);
}

int sim_train_fail(struct sim_process *process, const char *reason)
{
    struct sim_word word = {0};

    snprintf(word.reason, sizeof word.reason, "%s", reason);
    sim_tell(process, SIM_FAILED_WORD, &word);
    sim_fail(process->sim, "%s gives up: %s", process->name, reason);
    return SIM_FAILED;
}

void sim_train_exit(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)sim;
    (void)stamp;
    (void)what;
    sim_process_kill(who, true, "left");
}

/* Too many have died at once, or a worker whose blocks no other was to have. */
static int lose(struct sim_process *process)
{
    struct sim_word word = {.lost = true};

    snprintf(word.reason, sizeof word.reason, "nobody holds some block any more");
    sim_say(process->sim, process->name, "%s", word.reason);
    sim_tell(process, SIM_FAILED_WORD, &word);
    sim_in(process->sim, sim_between(process->sim, 500, 20000), sim_train_exit, process, 0, NULL);
    return SIM_FAILED;
}

int sim_train_freeze(struct sim_process *process, const char *reason)
{
    struct sim_word word = {.number = process->active->number, .level = process->state.level};

    sim_say(process->sim, process->name, "frozen at level %" PRId64 " in configuration %u: %s",
            word.level, word.number, reason);
    snprintf(word.reason, sizeof word.reason, "%s", reason);
    sim_tell(process, SIM_FROZE, &word);
    sim_train_leave_groups(process);
    return SIM_FROZEN;
}

int sim_train_interrupted(struct sim_process *process, int err)
{
    sim_window_enter(process, 0);
    if (process->leave)
        return SIM_LEAVING;
    if (err == RB_ELOST) {
        sim_train_leave_groups(process);
        return lose(process);
    }
    if (err != RB_EPEER && err != RB_ECANCELED)
        return sim_train_fail(process, "something is broken");
    process->sends_late = process->sim->broken == SIM_NO_FREEZE && process->phase == SIM_TRAINING &&
                          process->stage == SIM_STAGE_VOTES;
    return sim_train_freeze(process, "it lost a peer");
}
