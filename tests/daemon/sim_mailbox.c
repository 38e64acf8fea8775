/* SPDX-License-Identifier: Apache-2.0 */
/* Between the threads of a worker, as in worker/control/mailbox.c and mailbox_step.c. */
#include "sim_worker.h"

#include <string.h>

enum { HEARS_OUT_US = 30000000 };

bool sim_mailbox_abandoned(const struct sim_process *process, uint32_t number)
{
    for (unsigned i = 0; i < SIM_ABANDONED; i++)
        if (process->abandoned[i] == number)
            return true;
    return false;
}

bool sim_mailbox_can_open(const struct sim_process *process)
{
    return process->prepared && process->prepared->number == process->go;
}

bool sim_mailbox_can_take(const struct sim_process *process)
{
    return process->prepared && (process->prepared->roster || sim_mailbox_can_open(process));
}

static void cancel(struct sim_conf *conf)
{
    conf->group->seats[conf->rank].cancelled = true;
}

void sim_conf_free(struct sim_process *process, struct sim_conf *conf)
{
    if (!conf)
        return;
    if (conf->feed)
        sim_feed_close(conf->feed);
    conf->feed = NULL;
    sim_seat_close(process->sim, conf->group, conf->rank);
}

bool sim_mailbox_opens(const struct sim_process *process, uint32_t number)
{
    return process->in_group && process->use == SIM_USE_OPENING &&
           process->in_group->number == number;
}

bool sim_mailbox_goes(const struct sim_process *process)
{
    const struct sim_conf *next = process->prepared;

    return next && next->recovers && next->number == process->go && process->in_group &&
           next->number != process->in_group->number;
}

void sim_mailbox_leave_for_recovery(struct sim_process *process)
{
    bool opens = process->use == SIM_USE_OPENING && process->sim->broken != SIM_NO_OTHER;
    bool trains = process->use == SIM_USE_TRAINING && process->go == process->breaks_off &&
                  process->sim->broken != SIM_NO_BREAK;

    if ((opens || trains) && sim_mailbox_goes(process))
        cancel(process->in_group);
}

void sim_mailbox_enter(struct sim_process *process, struct sim_conf *conf, enum sim_use use)
{
    uint32_t number = conf ? conf->number : 0;

    process->in_group = conf;
    process->use = use;
    if (conf && use == SIM_USE_TRAINING && process->wanted && process->wanted->number == number)
        process->wanted = NULL;
    if (conf &&
        (process->leave || (use != SIM_USE_TRAINING && sim_mailbox_abandoned(process, number)) ||
         (use == SIM_USE_FOLLOWING && process->configured > number && number != process->go)))
        cancel(conf);
    sim_mailbox_leave_for_recovery(process);
}

/* ---- Orders -----------------------------------------------------------------------------------*/

static void stop_preparing(struct sim_process *process)
{
    process->unwanted = true;
    if (process->preparing)
        cancel(process->preparing);
}

/* What is left after deaths has a number that was kept for it.  The number is lower than that of a
 * configuration that was prepared beside and is abandoned. */
static bool is_overtaken(const struct sim_process *process, const struct sim_conf *conf)
{
    if (sim_mailbox_abandoned(process, conf->number))
        return true;
    if (conf->number > process->configured)
        return false;
    return !conf->recovers || conf->number <= process->stands_active ||
           !sim_mailbox_abandoned(process, process->configured);
}

static void configure(struct sim_process *process, struct sim_conf *conf)
{
    struct sim_conf *replaced = NULL;

    if (is_overtaken(process, conf))
        return;
    process->configured = conf->number;
    process->wanted = conf;
    stop_preparing(process);
    if (process->prepared && process->prepared->number != process->go) {
        replaced = process->prepared;
        process->prepared = NULL;
    }
    if (process->in_group && process->use == SIM_USE_FOLLOWING &&
        process->in_group->number != process->go)
        cancel(process->in_group);
    sim_conf_free(process, replaced);
}

static void abandon(struct sim_process *process, uint32_t number)
{
    struct sim_conf *dropped = NULL;

    if (number != process->stands_active && !sim_mailbox_abandoned(process, number))
        process->abandoned[process->n_abandoned++ % SIM_ABANDONED] = number;
    if (process->wanted && process->wanted->number == number)
        process->wanted = NULL;
    if (process->preparing && process->preparing->number == number)
        stop_preparing(process);
    if (process->prepared && process->prepared->number == number) {
        dropped = process->prepared;
        process->prepared = NULL;
    }
    if (process->in_group && process->use != SIM_USE_TRAINING &&
        process->in_group->number == number)
        cancel(process->in_group);
    sim_conf_free(process, dropped);
}

bool sim_mailbox_hears_out(const struct sim_process *process)
{
    return process->voting && process->leave_saves && !process->ends;
}

void sim_mailbox_voted(struct sim_process *process)
{
    process->voting = false;
    if (process->in_group && process->leave)
        cancel(process->in_group);
}

static void on_heard_out(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)sim;
    if (!process->alive || !process->leave || process->in_group != what ||
        (uint64_t)process->state.level != stamp)
        return;
    cancel(process->in_group);
    sim_pump(process);
}

static void leave(struct sim_process *process, bool saves)
{
    process->ends |= !saves;
    process->told_stay = process->unsaved = false;
    if (process->leave)
        return;
    process->leave = true;
    process->leave_saves = saves;
    sim_check_doubled(process->sim, process->job, SIM_CHANGES);
    stop_preparing(process);
    if (process->in_group && sim_mailbox_hears_out(process))
        sim_in(process->sim, HEARS_OUT_US, on_heard_out, process, (uint64_t)process->state.level,
               process->in_group);
    else if (process->in_group)
        cancel(process->in_group);
}

void sim_obey(struct sim_process *process, struct sim_order *order)
{
    switch (order->kind) {
    case SIM_CONFIGURE:
        configure(process, order->conf);
        break;
    case SIM_GO:
        if (order->number > process->go && !sim_mailbox_abandoned(process, order->number))
            process->go = order->number;
        if (order->number == process->go && !order->foreseen)
            process->breaks_off = order->number;
        sim_mailbox_leave_for_recovery(process);
        break;
    case SIM_ABANDON:
        abandon(process, order->number);
        break;
    case SIM_LEAVE:
    case SIM_LEAVE_SAVING:
        leave(process, order->kind == SIM_LEAVE_SAVING);
        break;
    case SIM_STAY:
        process->told_stay = process->leave && process->leave_saves && !process->ends;
        break;
    case SIM_FREEZE:
        if (process->in_group && process->use != SIM_USE_FOLLOWING &&
            process->stands_level == order->level)
            cancel(process->in_group);
        process->freezes = order->level + 1;
        break;
    }
}

/* ---- What to say in a vote --------------------------------------------------------------------*/

static bool lost_member(const struct sim_conf *conf)
{
    for (uint32_t r = 0; r < conf->size; r++)
        if (r != conf->rank && conf->group->seats[conf->rank].lost[r])
            return true;
    return false;
}

static bool is_vouched_for(const struct sim_process *process)
{
    const struct sim_conf *next = process->next;

    if (next->roster && rb_roster_newcomer(next->roster, next->rank) >= 0)
        return false;
    if (!sim_has_taken(process) && process->sim->broken != SIM_NO_TAKING)
        return false;
    if (process->sim->broken == SIM_NO_VOUCH)
        return true;
    return !next->feed || sim_feed_level(next->feed, process->state.level);
}

void sim_mailbox_ready(struct sim_process *process, struct rb_vote_ready *ret_ready)
{
    struct sim_conf *dropped = NULL;
    struct rb_vote_ready ready = {0};

    if (process->next && (process->next->number != process->go ||
                          sim_mailbox_abandoned(process, process->next->number))) {
        dropped = process->next;
        process->next = NULL;
    }
    if (!process->next && sim_mailbox_can_open(process)) {
        process->next = process->prepared;
        process->prepared = NULL;
    }
    if (process->next)
        ready = (struct rb_vote_ready){process->next->number, true, process->next->digest};
    else if (process->go > process->stands_active && process->go > process->configured &&
             !sim_mailbox_abandoned(process, process->go))
        ready = (struct rb_vote_ready){.number = process->go};
    sim_conf_free(process, dropped);
    if (process->next && lost_member(process->next)) {
        sim_tell_unready(process, process->next->number, "a link ended");
        sim_conf_free(process, process->next);
        process->next = NULL;
        ready = (struct rb_vote_ready){0};
    }
    if (process->next && !is_vouched_for(process))
        ready = (struct rb_vote_ready){0};
    process->voting = true;
    *ret_ready = ready;
}
