/* SPDX-License-Identifier: Apache-2.0 */
/* The preparing thread, as in worker/control/prepare.c: load, meet, introduce, feed. */
#include "sim_worker.h"

#include <string.h>

enum { LOADS, LOADING, MEETS, WAITS_FRESH, INTRODUCES };
enum { MEET_US = 60000000 };

static void on_timer(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)sim;
    (void)what;
    if (stamp != process->prepare_stamp)
        return;
    process->timer_prepare = true;
    sim_pump(process);
}

static void wait_for(struct sim_process *process, uint64_t us)
{
    process->timer_prepare = false;
    sim_in(process->sim, us, on_timer, process, ++process->prepare_stamp, NULL);
}

static void end(struct sim_process *process)
{
    process->prepare_stamp++;
    process->preparing = NULL;
}

static bool give_up(struct sim_process *process, int err, const char *reason)
{
    struct sim_conf *conf = process->preparing;

    end(process);
    if (err != RB_ECANCELED)
        sim_tell_unready(process, conf->number, reason);
    sim_conf_free(process, conf);
    return true;
}

static bool begin(struct sim_process *process)
{
    struct sim_conf *conf = process->wanted;

    if (!conf || process->leave || sim_mailbox_opens(process, conf->number))
        return false;
    conf->group =
        sim_group(process->sim, process->job, conf->number, conf->size, conf->digest, conf->rank);
    conf->group->seats[conf->rank].cancelled = false;
    process->wanted = NULL;
    process->preparing = conf;
    process->unwanted = false;
    process->preparing_stage = LOADS;
    for (uint32_t r = 0; r < conf->size; r++)
        conf->group->seats[r].process = conf->members[r];
    return true;
}

/* Waits also for the end of a following that was cancelled. */
static bool is_fresh(struct sim_process *process, bool *ret_waits)
{
    *ret_waits = process->in_group && process->use == SIM_USE_FOLLOWING &&
                 process->in_group->number < process->preparing->number;
    return !process->in_group && process->stands_level < 0;
}

static struct rb_roster *make_roster(struct sim *sim, const struct sim_conf *conf,
                                     const struct sim_introduction *said)
{
    struct rb_roster made, *roster;
    struct rb_role roles[SIM_RANKS];
    uint8_t held[SIM_RANKS * SIM_BLOCKS];
    uint32_t size = conf->size;

    for (uint32_t r = 0; r < size; r++) {
        roles[r] = said[r].role;
        memcpy(held + r * SIM_BLOCKS, said[r].held, SIM_BLOCKS);
    }
    if (!rb_roster_make(roles, size, held, conf->as.placement.holds, SIM_BLOCKS, &made))
        return NULL;
    roster = sim_new(sim, sizeof *roster);
    *roster = made;
    roster->sources = rb_arena_copy(&sim->arena, made.sources, size * sizeof *made.sources);
    roster->newcomers = rb_arena_copy(&sim->arena, made.newcomers, size * sizeof *made.newcomers);
    roster->heirs = rb_arena_copy(&sim->arena, made.heirs, SIM_BLOCKS * sizeof *made.heirs);
    roster->givers = rb_arena_copy(&sim->arena, made.givers,
                                   made.n_newcomers * SIM_BLOCKS * sizeof *made.givers);
    roster->cores = NULL;
    rb_roster_done(&made);
    return roster;
}

static bool finish(struct sim_process *process, const struct sim_introduction *said)
{
    struct sim_conf *conf = process->preparing, *replaced;
    struct sim_word word = {.number = conf->number};

    conf->roster = said ? make_roster(process->sim, conf, said) : NULL;
    sim_list_wants(conf);
    sim_tell(process, SIM_READY, &word);
    if (conf->roster && conf->roster->n_newcomers && process->introduction.role.term) {
        conf->feed = sim_feed_open(process, conf, process->introduction.role.term);
        if (!conf->feed)
            return give_up(process, RB_EAGAIN, "training has changed its configuration meanwhile");
    }
    if (process->unwanted)
        return give_up(process, RB_ECANCELED, NULL);
    replaced = process->prepared;
    process->prepared = conf;
    process->ready = conf->number;
    sim_mailbox_leave_for_recovery(process);
    end(process);
    sim_conf_free(process, replaced);
    return true;
}

static bool introduce(struct sim_process *process)
{
    struct sim_conf *conf = process->preparing;
    struct sim_introduction said[SIM_RANKS];
    int err = sim_gather(process->sim, conf->group, conf->rank,
                         sim_tag(SIM_TAG_ROLES, conf->number, 0, 0), &process->introduction, said,
                         sizeof *said);

    if (err == RB_EAGAIN)
        return false;
    return err ? give_up(process, err, "someone left again") : finish(process, said);
}

static bool meet(struct sim_process *process)
{
    struct sim_conf *conf = process->preparing;
    uint64_t digests[SIM_RANKS];
    int err;

    if (process->timer_prepare)
        return give_up(process, RB_ETIMEOUT, "someone did not come");
    err =
        sim_gather(process->sim, conf->group, conf->rank, sim_tag(SIM_TAG_MEET, conf->number, 0, 0),
                   &conf->digest, digests, sizeof *digests);
    if (err == RB_EAGAIN)
        return false;
    if (err)
        return give_up(process, err, "someone left again");
    for (uint32_t r = 0; r < conf->size; r++)
        if (digests[r] != conf->digest)
            return give_up(process, RB_EREFUSED, "another member list over there");
    process->preparing_stage = WAITS_FRESH;
    return true;
}

bool sim_pump_prepare(struct sim_process *process)
{
    bool waits;

    if (!process->preparing)
        return begin(process);
    if (process->unwanted || process->leave)
        return give_up(process, RB_ECANCELED, NULL);
    switch (process->preparing_stage) {
    case LOADS:
        process->preparing_stage = LOADING;
        wait_for(process, process->loaded ? 200 : sim_between(process->sim, 5000, 300000));
        return true;
    case LOADING:
        if (!process->timer_prepare)
            return false;
        process->loaded = true;
        process->preparing_stage = MEETS;
        process->preparing->group->seats[process->preparing->rank].open = true;
        wait_for(process, MEET_US);
        return true;
    case MEETS:
        return meet(process);
    case WAITS_FRESH:
        if (process->preparing->recovers) { /* in a recovery nobody is fed */
            process->introduction.role = (struct rb_role){0};
            return finish(process, NULL);
        }
        process->introduction.role = (struct rb_role){
            .term = process->term,
            .fresh = is_fresh(process, &waits),
        };
        for (size_t b = 0; b < SIM_BLOCKS; b++)
            process->introduction.held[b] = process->term && process->state.held[b] == RB_HELD;
        if (process->introduction.role.term)
            process->introduction.role.fresh = false;
        else if (waits)
            return false;
        process->preparing_stage = INTRODUCES;
        return true;
    default:
        return introduce(process);
    }
}
