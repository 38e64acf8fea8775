/* SPDX-License-Identifier: Apache-2.0 */
/* One decision about one job: what facts say, and what will have changed.
 *
 * facts, share > [turn] > writes
 *
 * The rules (declared below) look at `in` and change copies through these verbs; rb_turn_write
 * makes one guarded transaction of them.  A turn takes one step of the state machine; the driver
 * calls again when facts have it. */
#ifndef RB_DAEMON_DECIDE_TURN_H
#define RB_DAEMON_DECIDE_TURN_H

#include "daemon/decide/allocate.h"
#include "daemon/decide/decide.h"
#include "daemon/facts/members.h"

enum {
    RB_TURN_CHANGES = 8,
    RB_TURN_EVENTS = 16,
    RB_KEEP_CONFIGURATIONS = 64, /* of the past */
    RB_CRASH_TRIES = 3,          /* of a recovery, before a member that cannot prepare it is left */
    RB_PREPARE_MS = 120000,      /* longest preparation */
    RB_ABSENCE_MS = 300000,      /* how long nodes with all of a job's state are waited for */
};

struct rb_turn {
    const struct rb_facts *facts;
    const struct rb_job_facts *in;
    const struct rb_share *share;
    const struct rb_decide_options *options;
    struct rb_arena *arena;
    uint64_t now, wake;

    Rb__JobState state; /* as it will be */
    bool state_changed, forget;
    struct {
        Rb__Configuration value;
        int64_t revision; /* RB_ABSENT: a new one */
    } changes[RB_TURN_CHANGES];
    size_t n_changes;
    struct {
        const char *kind, *text, *node;
    } events[RB_TURN_EVENTS];
    size_t n_events;
};

/* What facts have, or NULL. */
const Rb__Configuration *rb_turn_active(const struct rb_turn *turn);
const Rb__Configuration *rb_turn_next(const struct rb_turn *turn);

/* A copy to change, written with the turn. */
Rb__Configuration *rb_turn_edit(struct rb_turn *turn, const Rb__Configuration *configuration);

/* create.c: a new configuration, PREPARING, as the job's next.  A member whose place has a process
 * of the job's live configurations names that process. */
Rb__Configuration *rb_turn_create(struct rb_turn *turn, const struct rb_place *places, size_t n,
                                  const char *cause, uint64_t asked);

/* Asks the planner about a configuration whose members are known; false: it does not say. */
bool rb_turn_ask(struct rb_turn *turn, const Rb__Configuration *conf, struct rb_decide_plan *ret);

/* Makes a configuration that was foreseen (daemon/facts/contingency.h) the job's next.  The parts
 * of `foreseen` must live as long as the turn. */
Rb__Configuration *rb_turn_take(struct rb_turn *turn, const Rb__Configuration *foreseen,
                                uint64_t asked);

/* Move along the table of phases.  The reason stays as it is if the phase and the text do not
 * change; reason NULL: none. */
void rb_turn_phase(struct rb_turn *turn, Rb__Phase phase, const char *reason);
void rb_turn_reason(struct rb_turn *turn, const char *reason);

/* End a live configuration: ABANDONED before it was active, else RETIRED.  NULL is a no-op. */
void rb_turn_end(struct rb_turn *turn, const Rb__Configuration *configuration, const char *reason);

/* Abandon the next configuration, because its preparation failed or something newer replaces it. */
void rb_turn_abandon(struct rb_turn *turn, const char *reason, bool failed, const char *blamed);

void rb_turn_suspect(struct rb_turn *turn, bool yes);
/* The time `patience` after a member was first missed, or after this coordinator came to look
 * (options->since_ms), whichever is later. */
uint64_t rb_turn_patient_until(const struct rb_turn *turn, uint64_t patience);
/* Is a member missed, does the node not answer, and is that all that can be known of the node? */
bool rb_turn_silent(const struct rb_turn *turn, const char *node);
void rb_turn_wake(struct rb_turn *turn, uint64_t at_ms);

void rb_turn_event(struct rb_turn *turn, const char *node, const char *kind, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));
const char *rb_turn_text(struct rb_turn *turn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* spec.devices.min, at least 1; and whether the share has as many. */
uint32_t rb_turn_min(const struct rb_turn *turn);
bool rb_turn_enough(const struct rb_turn *turn);

/* "a:0" */
const char *rb_turn_place(struct rb_turn *turn, const char *node, uint32_t device);

/* How many preparations (crash: of recoveries; else of all other configurations) failed since a
 * configuration was last active.  Preparations beside a training that is parked now do not count:
 * they say nothing about a start.  Nor do configurations that nobody asked for (own.c). */
unsigned rb_turn_failures(const struct rb_turn *turn, bool crash,
                          const Rb__Configuration **ret_last);

/* Until when nothing new is tried after such failures; 0: something may be tried now. */
uint64_t rb_turn_hold_off(const struct rb_turn *turn, bool crash, uint64_t first_ms);

/* One transaction of what has changed, if anything has. */
void rb_turn_write(struct rb_turn *turn, struct rb_writes *writes, unsigned *sequence);

/* ---- The rules ------------------------------------------------------------------------------- */

/* Every process that may hold the job's state, each once: members of the active configuration, and
 * of the next one if that may have taken over already or is a recovery, made of survivors. */
struct rb_roll {
    struct rb_roll_entry {
        const Rb__Member *member;
        const Rb__WorkerReport *report;
        enum rb_life life;
    } * at;
    size_t n;
    size_t gone, away, frozen, holders; /* holders: here, with state */
    size_t silent;                      /* of those away: their nodes do not answer */
    bool whole;                         /* holders together have all of it, as far as is known */
    bool ends;     /* others are done with the last step; rank 0, which saves it, is away */
    size_t unsaid; /* here, and have not said yet whether they took over: may have the state */
};
void rb_turn_roll(struct rb_turn *turn, struct rb_roll *ret_roll);
bool rb_roll_holder(const struct rb_roll_entry *entry);
/* Do the members of `conf` that are here hold all of the state, by its placement?  The answer
 * counts as long as `conf` is the active one: until all members are in the next
 * (worker/train_enter.c), each keeps what it had.  frozen: a member that has said that it froze
 * counts as here even where its node does not answer. */
bool rb_turn_whole(struct rb_turn *turn, const Rb__Configuration *conf, bool frozen);

void rb_decide_job(struct rb_turn *turn); /* job.c */
/* Is the state of the active configuration in shards, so that no member has all of it? */
bool rb_turn_sharded(const struct rb_turn *turn);

void rb_decide_start(struct rb_turn *turn); /* start.c */
/* prepare.c: writes GO once all are ready, abandons `next` where one cannot be; true: it did. */
bool rb_decide_tend(struct rb_turn *turn, const Rb__Configuration *next);
/* Would rb_decide_tend abandon `next` because something has gone wrong with a member? */
bool rb_decide_is_spoiled(struct rb_turn *turn, const Rb__Configuration *next);
bool rb_decide_flipped(const struct rb_turn *turn, const Rb__Configuration *next);
void rb_decide_activate(struct rb_turn *turn, const Rb__Configuration *next);
void rb_decide_note_bytes(struct rb_turn *turn, const Rb__Configuration *active);
void rb_decide_tell(struct rb_turn *turn, const Rb__Configuration *next); /* that it took over */
/* Has a configuration that was given up been flipped to?  Makes it the next one again. */
bool rb_decide_revive(struct rb_turn *turn);                          /* revive.c */
void rb_decide_resize(struct rb_turn *turn);                          /* resize.c */
void rb_decide_speeds(struct rb_turn *turn, Rb__Configuration *conf); /* balance.c */
/* A copy with the speeds that are measured now. */
Rb__Configuration rb_decide_measured(struct rb_turn *turn, const Rb__Configuration *from);
bool rb_decide_steals(const struct rb_turn *turn);
void rb_decide_balance(struct rb_turn *turn, const Rb__Configuration *active);
/* How long a microbatch takes a member by its own measure, us; 0: not known, or not believed. */
uint32_t rb_decide_pace(const struct rb_turn *turn, const Rb__Member *member);
const char *rb_decide_kind(const struct rb_turn *turn, const Rb__Member *member); /* "cpu" */
void rb_decide_stragglers(struct rb_turn *turn);                                  /* straggler.c */
/* Returns true where a configuration follows. */
bool rb_decide_replan(struct rb_turn *turn, const Rb__Configuration *active); /* replan.c */
bool rb_decide_is_own(const Rb__Configuration *conf);                         /* own.c */
/* Does the active configuration have several members that all train, and has no configuration made
 * from it for this cause failed? */
bool rb_decide_may_follow(const struct rb_turn *turn, const Rb__Configuration *active,
                          const char *cause);
/* Is the active configuration younger than `ms`?  Then the turn wakes when it is that old. */
bool rb_decide_is_young(struct rb_turn *turn, const Rb__Configuration *active, uint64_t ms);
/* Creates a configuration of the same members. */
void rb_decide_follow(struct rb_turn *turn, const Rb__Configuration *active, const char *cause);
/* Suspects a loss where no member is proven dead, and yet members are frozen (a link broke) or all
 * out of reach. */
void rb_decide_suspect(struct rb_turn *turn, const struct rb_roll *roll); /* job.c */
bool rb_decide_crash(struct rb_turn *turn, const struct rb_roll *roll);   /* crash.c */
/* crash_tell.c: was the recovery made without the place, or given up because of it? */
bool rb_decide_blames(const Rb__Configuration *conf, const char *place);
bool rb_decide_is_on(const Rb__Configuration *conf, const Rb__Member *member);
/* Names in conf->blamed the lost members, which `conf` is without, and tells of them. */
void rb_decide_blame_lost(struct rb_turn *turn, const struct rb_roll *roll,
                          Rb__Configuration *conf);
/* Why the job does not train: a recovery is under way; or it waits for a node that has what the
 * others lack. */
const char *rb_decide_recovery_reason(const Rb__Configuration *conf);
const char *rb_decide_missed_reason(struct rb_turn *turn, const struct rb_roll *roll,
                                    const char *node);
void rb_decide_tell_missed(struct rb_turn *turn, const struct rb_roll *roll, const char *node);
void rb_decide_tell_wait(struct rb_turn *turn, const struct rb_roll *roll); /* if it waits */
void rb_decide_restart(struct rb_turn *turn, const struct rb_roll *roll);   /* restart.c */
void rb_decide_fail(struct rb_turn *turn, const char *reason);
void rb_decide_cancel(struct rb_turn *turn); /* job.c */
void rb_decide_park(struct rb_turn *turn, const struct rb_roll *roll, const char *why);
void rb_decide_parking(struct rb_turn *turn, const struct rb_roll *roll); /* park.c */
void rb_decide_parked(struct rb_turn *turn, Rb__Checkpoint *saved);
/* Is it a configuration in which its member gathers the state? */
bool rb_decide_gathers(const Rb__Configuration *conf);
/* A configuration that gathers has been flipped to: its member saves.  False: there is nothing to
 * do for that now. */
bool rb_decide_gathered(struct rb_turn *turn, const Rb__Configuration *next);
/* stay.c: could the job run, where it is or where it can go from there? */
bool rb_decide_may_stay(const struct rb_turn *turn);
/* No worker is to save any more, and the one that was to stays with the state. */
void rb_decide_stay(struct rb_turn *turn);
/* Has a worker saved all the same, and is gone?  Its save counts where the others lack a part. */
bool rb_decide_saved_meanwhile(struct rb_turn *turn, const struct rb_roll *roll);

#endif
