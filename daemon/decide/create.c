/* SPDX-License-Identifier: Apache-2.0 */
/* New configurations of a turn: on given places, run as the job file or the planner says, or as it
 * was foreseen. */
#include "daemon/decide/turn.h"

#include "daemon/facts/fit.h"
#include "daemon/facts/shares.h"
#include "plan/schedule_pipeline.h"
#include "proto/spec.h"

#include <stdlib.h>
#include <string.h>

/* The name of the live process of this job that a place has now, or NULL. */
static char *process_at(struct rb_turn *turn, const struct rb_place *place)
{
    const Rb__Configuration *confs[] = {rb_turn_active(turn), rb_turn_next(turn)};

    for (size_t c = 0; c < RB_COUNT(confs); c++)
        for (size_t m = 0; confs[c] && rb_configuration_live(confs[c]) && m < confs[c]->n_members;
             m++) {
            const Rb__Member *member = confs[c]->members[m];
            const Rb__WorkerReport *report;

            if (rb_place_is(place, member->node, member->device) &&
                rb_member_life(turn->facts, turn->in, confs[c], m, &report) != RB_LIFE_GONE &&
                report)
                return report->worker;
        }
    return NULL;
}

static char *plan_summary(struct rb_turn *turn, const Rb__Configuration *conf)
{
    const Rb__Job *job = turn->in->job.job;
    int32_t *owners;

    if (!conf->n_members || rb_shares_of(conf, job->microbatches, turn->arena, &owners, NULL))
        return NULL;
    return rb_shares_summary(conf, owners, job->microbatches, job->blocks, turn->arena);
}

/* Room for a configuration that facts do not have. */
static Rb__Configuration *add(struct rb_turn *turn)
{
    if (turn->n_changes == RB_TURN_CHANGES)
        abort();
    turn->changes[turn->n_changes].revision = RB_ABSENT;
    return &turn->changes[turn->n_changes++].value;
}

static void make_next(struct rb_turn *turn, const Rb__Configuration *conf)
{
    turn->state.has_next = 1;
    turn->state.next = conf->number;
    turn->state_changed = true;
}

Rb__Configuration *rb_turn_take(struct rb_turn *turn, const Rb__Configuration *foreseen,
                                uint64_t asked)
{
    Rb__Configuration *conf = add(turn);

    *conf = *foreseen;
    conf->asked = asked;
    conf->created = turn->now;
    conf->has_went = 1;
    conf->went = turn->now;
    make_next(turn, conf);
    return conf;
}

/* The configuration that trains on several devices; NULL: none does. */
static const Rb__Configuration *running(const struct rb_turn *turn)
{
    const Rb__Configuration *active = rb_turn_active(turn);

    return active && active->n_members > 1 ? active : NULL;
}

bool rb_turn_ask(struct rb_turn *turn, const Rb__Configuration *conf, struct rb_decide_plan *ret)
{
    const struct rb_decide_planner *planner = &turn->options->planner;
    Rb__Configuration now;

    if (!turn->in->job.job->profile || !planner->choose || conf->n_members < 2)
        return false;
    now = rb_decide_measured(turn, conf);
    return planner->choose(planner->context, turn->facts, turn->in, &now, running(turn),
                           turn->arena, ret);
}

static void set_pinned(const struct rb_turn *turn, Rb__Configuration *conf)
{
    const Rb__Spec *spec = turn->in->job.job->spec;
    const Rb__ParallelSpec *parallel = spec->parallel;

    conf->pipeline = parallel->pipeline;
    if (rb_spec_asynchronous(spec))
        conf->schedule = rb_arena_string(turn->arena, parallel->schedule);
    conf->hypergraph = parallel->hypergraph;
    conf->has_hypergraph = conf->hypergraph != 0;
}

/* Data parallel or a pipeline, and how much of the state everywhere: as the job file pins it, else
 * as the planner says; where the planner cannot say, as the configuration that trains has it, or as
 * the submit has decided. */
static void choose_kind(struct rb_turn *turn, Rb__Configuration *conf)
{
    const Rb__Job *job = turn->in->job.job;
    struct rb_decide_plan plan = {0};
    bool asked = false;

    conf->replicas = job->replicas;
    if (rb_pipeline_pinned(job->spec)) {
        set_pinned(turn, conf);
    } else if ((asked = rb_turn_ask(turn, conf, &plan))) {
        conf->pipeline = plan.stages;
        conf->replicas = plan.replicas;
        conf->recomputes = plan.recomputes;
        conf->chosen = (char *)plan.why;
        conf->has_expected_ms = 1;
        conf->expected_ms = 1e3 * plan.seconds;
    } else if (running(turn)) {
        conf->pipeline = running(turn)->pipeline;
        conf->replicas = running(turn)->replicas;
    }
    conf->has_pipeline = conf->pipeline != 0;
    conf->has_replicas = conf->replicas != 0;
    if (!asked)
        conf->recomputes = rb_fit_recomputes(job, conf);
    conf->has_recomputes = conf->recomputes;
}

Rb__Configuration *rb_turn_create(struct rb_turn *turn, const struct rb_place *places, size_t n,
                                  const char *cause, uint64_t asked)
{
    Rb__Configuration *conf = add(turn);

    rb__configuration__init(conf);
    conf->number = turn->state.newest + 1;
    conf->has_spare = 1;
    conf->spare = n ? (uint32_t)n - 1 : 0;
    turn->state.has_newest = 1;
    turn->state.newest = conf->number + conf->spare;
    conf->state = RB__CONFIGURATION__STATE__PREPARING;
    conf->cause = rb_arena_string(turn->arena, cause);
    conf->has_from = turn->state.active != 0;
    conf->from = turn->state.active;
    conf->asked = asked;
    conf->created = turn->now;
    conf->members = RB_ARENA_NEW(turn->arena, Rb__Member *, n);
    for (size_t i = 0; i < n; i++) {
        Rb__Member *member = RB_ARENA_NEW(turn->arena, Rb__Member, 1);

        rb__member__init(member);
        member->node = rb_arena_string(turn->arena, places[i].node);
        member->device = places[i].device;
        member->worker = process_at(turn, &places[i]);
        conf->members[conf->n_members++] = member;
    }
    choose_kind(turn, conf);
    conf->has_steals = conf->steals = rb_decide_steals(turn) && n > 1 && rb_shares_has(conf);
    if (strcmp(cause, "crash") != 0) { /* there each member keeps what it had */
        rb_decide_speeds(turn, conf);
        rb_shares_cut(conf, turn->in->job.job->microbatches, turn->arena);
    }
    conf->plan = plan_summary(turn, conf);
    make_next(turn, conf);
    return conf;
}
