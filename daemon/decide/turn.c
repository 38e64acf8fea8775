/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/decide/turn.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Phases, and where each may go:
 *
 *     Pending ----> Preparing ----> Running ----> Succeeded
 *       ^  ^            |            |  |
 *       |  +------------+------------+  |    (also: Failed from these three,
 *       |               v               |     Cancelled from these and from Paused)
 *       +----------- Paused <-----------+ */
#define BIT(phase) (1u << RB__PHASE__##phase)
static const unsigned may_become[] = {
    [RB__PHASE__Pending] = BIT(Preparing) | BIT(Paused) | BIT(Failed) | BIT(Cancelled),
    [RB__PHASE__Preparing] =
        BIT(Pending) | BIT(Running) | BIT(Paused) | BIT(Failed) | BIT(Cancelled),
    [RB__PHASE__Running] =
        BIT(Pending) | BIT(Paused) | BIT(Succeeded) | BIT(Failed) | BIT(Cancelled),
    [RB__PHASE__Paused] = BIT(Pending) | BIT(Cancelled),
    [RB__PHASE__Succeeded] = 0,
    [RB__PHASE__Failed] = 0,
    [RB__PHASE__Cancelled] = 0,
};
#undef BIT

const Rb__Configuration *rb_turn_active(const struct rb_turn *turn)
{
    const struct rb_fact *fact = rb_facts_configuration(turn->in, turn->in->state.state->active);

    return fact ? fact->configuration : NULL;
}

const Rb__Configuration *rb_turn_next(const struct rb_turn *turn)
{
    const struct rb_fact *fact = rb_facts_configuration(turn->in, turn->in->state.state->next);

    return fact ? fact->configuration : NULL;
}

Rb__Configuration *rb_turn_edit(struct rb_turn *turn, const Rb__Configuration *configuration)
{
    for (size_t i = 0; i < turn->n_changes; i++)
        if (turn->changes[i].value.number == configuration->number)
            return &turn->changes[i].value;
    if (turn->n_changes == RB_TURN_CHANGES)
        abort(); /* a turn ends at most two configurations and begins one */
    const struct rb_fact *fact = rb_facts_configuration(turn->in, configuration->number);
    size_t i = turn->n_changes++;

    turn->changes[i].value = *configuration;
    turn->changes[i].revision = fact ? fact->revision : RB_ABSENT;
    return &turn->changes[i].value;
}

void rb_turn_reason(struct rb_turn *turn, const char *reason)
{
    const char *old = turn->state.reason;

    if ((!reason && !old) || (reason && old && !strcmp(reason, old)))
        return;
    turn->state.reason = reason ? rb_arena_string(turn->arena, reason) : NULL;
    turn->state_changed = true;
}

void rb_turn_phase(struct rb_turn *turn, Rb__Phase phase, const char *reason)
{
    if (turn->state.phase != phase) {
        if (!(may_become[turn->state.phase] & (1u << phase)))
            abort(); /* a rule that leaves the table is a bug of ours */
        turn->state.phase = phase;
        turn->state_changed = true;
        if (rb_phase_final(phase)) {
            turn->state.has_finished = 1;
            turn->state.finished = turn->now;
            turn->state.n_stragglers = 0;
        }
    }
    rb_turn_reason(turn, reason);
}

void rb_turn_end(struct rb_turn *turn, const Rb__Configuration *configuration, const char *reason)
{
    Rb__Configuration *conf;

    if (!configuration || !rb_configuration_live(configuration))
        return;
    conf = rb_turn_edit(turn, configuration);
    conf->state = conf->state == RB__CONFIGURATION__STATE__ACTIVE
                      ? RB__CONFIGURATION__STATE__RETIRED
                      : RB__CONFIGURATION__STATE__ABANDONED;
    if (conf->state == RB__CONFIGURATION__STATE__ABANDONED && reason)
        conf->reason = rb_arena_string(turn->arena, reason);
    if (turn->state.active == conf->number)
        turn->state.active = 0;
    if (turn->state.next == conf->number)
        turn->state.next = 0;
    turn->state_changed = true;
}

void rb_turn_abandon(struct rb_turn *turn, const char *reason, bool failed, const char *blamed)
{
    const Rb__Configuration *next = rb_turn_next(turn);
    Rb__Configuration *conf;

    if (!next)
        return;
    rb_turn_end(turn, next, reason);
    conf = rb_turn_edit(turn, next);
    if (failed) {
        conf->has_failed = 1;
        conf->failed = turn->now;
    }
    if (blamed) {
        char **list = RB_ARENA_NEW(turn->arena, char *, conf->n_blamed + 1);

        for (size_t i = 0; i < conf->n_blamed; i++)
            list[i] = conf->blamed[i];
        list[conf->n_blamed++] = rb_arena_string(turn->arena, blamed);
        conf->blamed = list;
    }
}

void rb_turn_suspect(struct rb_turn *turn, bool yes)
{
    if (yes == (turn->state.has_suspected && turn->state.suspected))
        return;
    turn->state.has_suspected = yes;
    turn->state.suspected = yes ? turn->now : 0;
    turn->state_changed = true;
}

uint64_t rb_turn_patient_until(const struct rb_turn *turn, uint64_t patience)
{
    uint64_t since = turn->state.suspected;

    if (!since)
        since = turn->now;
    if (turn->options->since_ms > since)
        since = turn->options->since_ms;
    return since + patience;
}

/* A node that keeps its lease for longer than a lease lasts lives, and only the way to it is
 * broken: what it says in facts is heard. */
bool rb_turn_silent(const struct rb_turn *turn, const char *node)
{
    if (!turn->state.has_suspected || !turn->state.suspected)
        return false;
    if (rb_fact_find(&turn->facts->nodes, node) &&
        turn->now >= rb_turn_patient_until(turn, turn->options->patience_ms))
        return false;
    for (size_t i = 0; i < turn->options->n_silent; i++)
        if (!strcmp(turn->options->silent[i], node))
            return true;
    return false;
}

void rb_turn_wake(struct rb_turn *turn, uint64_t at_ms)
{
    if (at_ms < turn->wake)
        turn->wake = at_ms;
}

const char *rb_turn_text(struct rb_turn *turn, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return rb_arena_string(turn->arena, text);
}

void rb_turn_event(struct rb_turn *turn, const char *node, const char *kind, const char *format,
                   ...)
{
    char text[1024];
    va_list args;

    if (turn->n_events == RB_TURN_EVENTS)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    turn->events[turn->n_events].kind = kind;
    turn->events[turn->n_events].node = node;
    turn->events[turn->n_events++].text = rb_arena_string(turn->arena, text);
}

uint32_t rb_turn_min(const struct rb_turn *turn)
{
    const Rb__DevicesSpec *devices = turn->in->job.job->spec->devices;

    return devices && devices->min ? devices->min : 1;
}

bool rb_turn_enough(const struct rb_turn *turn)
{
    return turn->share->n >= rb_turn_min(turn);
}

const char *rb_turn_place(struct rb_turn *turn, const char *node, uint32_t device)
{
    return rb_arena_format(turn->arena, "%s:%" PRIu32, node, device);
}

unsigned rb_turn_failures(const struct rb_turn *turn, bool crash,
                          const Rb__Configuration **ret_last)
{
    unsigned failures = 0;

    *ret_last = NULL;
    for (size_t i = turn->in->configurations.n; i-- > 0;) {
        const Rb__Configuration *conf = turn->in->configurations.at[i].configuration;

        if (rb_configuration_took_over(conf))
            break;
        if (!conf->has_failed || crash != !strcmp(conf->cause, "crash") ||
            (!crash && (conf->from != turn->state.active || rb_decide_is_own(conf))))
            continue;
        if (!failures++)
            *ret_last = conf;
    }
    return failures;
}

uint64_t rb_turn_hold_off(const struct rb_turn *turn, bool crash, uint64_t first_ms)
{
    const Rb__Configuration *last;
    unsigned failures = rb_turn_failures(turn, crash, &last);
    uint64_t until;

    if (!failures)
        return 0;
    until = last->failed + (first_ms << (failures < 7 ? failures - 1 : 6));
    return until > turn->now ? until : 0;
}

static void write_event(struct rb_turn *turn, size_t i, struct rb_writes *writes,
                        unsigned *sequence)
{
    Rb__Event event = RB__EVENT__INIT;

    event.time = turn->now;
    event.job = turn->in->job.job->name;
    event.job_id = turn->in->job.job->id;
    event.node = (char *)turn->events[i].node;
    event.kind = (char *)turn->events[i].kind;
    event.text = (char *)turn->events[i].text;
    rb_writes_event(writes, RB_ABSENT, &event, "%03u%08x", (*sequence)++ % 1000,
                    (unsigned)turn->options->random);
}

/* For nodes that are away. */
static void write_deletion(struct rb_turn *turn, struct rb_writes *writes)
{
    const Rb__Job *job = turn->in->job.job;
    char *blobs[] = {job->model, job->weights, job->profile};
    Rb__Deletion deletion = RB__DELETION__INIT;

    deletion.job = job->id;
    deletion.blobs = blobs;
    deletion.n_blobs = job->profile ? 3 : 2;
    rb_writes_put(writes, RB_ANY_REVISION, &deletion.base, "deletions/%013" PRIu64 "-%s", turn->now,
                  job->id);
}

/* Configurations of the past beyond what is kept go, oldest first, a few at a time.  The one that
 * the active one is left of stays: deaths are counted from there. */
static void prune(struct rb_turn *turn, struct rb_writes *writes)
{
    const struct rb_fact_list *confs = &turn->in->configurations;
    const struct rb_fact *fact = rb_facts_configuration(turn->in, turn->state.active);
    uint32_t base = fact ? fact->configuration->left_of : 0;

    for (size_t i = 0, left = 4; i + RB_KEEP_CONFIGURATIONS < confs->n && left; i++) {
        const Rb__Configuration *conf = confs->at[i].configuration;

        if (rb_configuration_live(conf) || conf->number == turn->state.active ||
            conf->number == base)
            continue;
        rb_writes_delete(writes, confs->at[i].revision, "%s", confs->at[i].key);
        left--;
    }
}

void rb_turn_write(struct rb_turn *turn, struct rb_writes *writes, unsigned *sequence)
{
    const char *id = turn->in->id;

    rb_writes_next(writes);
    if (turn->forget) {
        rb_writes_guard(writes, turn->in->state.revision, "jobs/%s/state", id);
        rb_writes_delete_all(writes, "jobs/%s/", id);
        write_deletion(turn, writes);
    } else if (turn->state_changed || turn->n_changes) {
        if (turn->state_changed)
            rb_writes_put(writes, turn->in->state.revision, &turn->state.base, "jobs/%s/state", id);
        else
            rb_writes_guard(writes, turn->in->state.revision, "jobs/%s/state", id);
        rb_writes_guard(writes, turn->in->wish.revision, "jobs/%s/wish", id);
        for (size_t i = 0; i < turn->n_changes; i++)
            rb_writes_put(writes, turn->changes[i].revision, &turn->changes[i].value.base,
                          "jobs/%s/configurations/%08" PRIu32, id, turn->changes[i].value.number);
        prune(turn, writes);
    } else {
        return;
    }
    for (size_t i = 0; i < turn->n_events; i++)
        write_event(turn, i, writes, sequence);
    rb_writes_next(writes);
}
