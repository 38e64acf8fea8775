/* SPDX-License-Identifier: Apache-2.0 */
/* What agents write to facts, as in daemon/agent/report.c, progress.c and checkpoints.c: one report
 * a worker; progress and checkpoints, while the configuration that made them may publish. */
#include "sim_rubatod.h"

#include "daemon/facts/publish.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRESS_US = 500000, RETRY_US = 500000 };

struct sim_known *sim_known(struct sim_rubatod *rubatod, const char *job)
{
    return &rubatod->known[sim_job(rubatod->sim, job) - rubatod->sim->jobs];
}

/* ---- Reports ----------------------------------------------------------------------------------*/

static Rb__WorkerReport__State state_of(const struct sim_own *own)
{
    if (own->told.gone)
        return own->failed ? RB__WORKER_REPORT__STATE__FAILED : RB__WORKER_REPORT__STATE__DEAD;
    if (own->done)
        return RB__WORKER_REPORT__STATE__DONE;
    if (own->frozen)
        return RB__WORKER_REPORT__STATE__FROZEN;
    if (own->told.active)
        return RB__WORKER_REPORT__STATE__TRAINING;
    return own->has_addresses ? RB__WORKER_REPORT__STATE__IDLE : RB__WORKER_REPORT__STATE__STARTING;
}

static bool is_over(struct sim_rubatod *rubatod, const struct sim_own *own,
                    const struct rb_job_facts *facts)
{
    const struct sim_known *known = sim_known(rubatod, own->told.job);

    return own->told.gone || !own->done || !known->dirty || !facts->state.message ||
           rb_publish_progress(facts, &known->progress) != RB_PUBLISH_LATER;
}

static Rb__WorkerReport report_of(struct sim_own *own, const struct rb_fact *known, bool over,
                                  char **address)
{
    bool same = known && !strcmp(known->worker->worker, own->told.worker);
    Rb__WorkerReport report = RB__WORKER_REPORT__INIT;

    *address = (char *)"unix:/nowhere";
    report.worker = (char *)own->told.worker;
    report.state = state_of(own);
    report.addresses = address;
    report.n_addresses = own->has_addresses;
    report.has_ready = report.has_active = report.has_level = report.has_spawned_for = true;
    report.ready = own->told.ready;
    report.active = own->told.active;
    report.level = own->level;
    report.spawned_for = own->told.spawned_for;
    report.has_unready = own->told.unready != 0;
    report.unready = own->told.unready;
    report.reason = own->reason;
    report.has_lost = report.lost = own->lost;
    report.has_unsaved = report.unsaved = own->unsaved;
    if (own->flipped) {
        report.has_flipped = report.has_first_step = true;
        report.flipped = own->flipped;
        report.first_step = own->first_step;
    }
    report.has_rank = own->has_rank;
    report.rank = own->rank;
    report.microbatch_us = rb_publish_pace(same ? known->worker : NULL, own->microbatch_us);
    report.has_microbatch_us = report.microbatch_us != 0;
    report.saved = over ? own->saved : NULL;
    report.has_ended = own->ended != 0;
    report.ended = own->ended;
    if (own->foreseen && own->foreseen == own->told.active) {
        report.without = own->without;
        report.n_without = own->n_without;
    }
    return report;
}

static bool rows_end(const struct sim_rubatod *rubatod, const struct sim_own *own)
{
    const struct sim_own *other = rubatod->own;

    if (own->done || (own->told.saving && own->saved))
        return true;
    while (other && (strcmp(other->told.job, own->told.job) || other->told.gone))
        other = other->next;
    return own->told.gone && !other;
}

static bool must_wait(struct sim_rubatod *rubatod, const struct sim_own *own,
                      const struct rb_job_facts *facts)
{
    const struct sim_known *known = sim_known(rubatod, own->told.job);

    return rows_end(rubatod, own) && facts->state.message &&
           (known->sent ||
            (known->dirty && rb_publish_progress(facts, &known->progress) == RB_PUBLISH_NOW));
}

static void on_reported(struct sim *sim, int err, void *who, void *what)
{
    struct sim_rubatod *rubatod = who;
    struct sim_own *own = what;

    (void)sim;
    own->reports = false;
    if (err)
        sim_agent_poke_in(rubatod, RETRY_US);
    else
        sim_agent_poke(rubatod);
}

static void report(struct sim_rubatod *rubatod, struct sim_own *own)
{
    const struct rb_job_facts *job = rb_facts_job(sim_client_facts(rubatod->client), own->told.job);
    const struct rb_fact *known;
    struct rb_writes writes = {0};
    Rb__WorkerReport value;
    char *address;

    if (own->reports || !job || !job->job.message || must_wait(rubatod, own, job) ||
        (own->unheard && !own->told.gone))
        return;
    known = rb_facts_report(job, rubatod->node->name, own->told.device);
    value = report_of(own, known, is_over(rubatod, own, job), &address);
    rb_writes_guard(&writes, job->job.revision, "%s", job->job.key);
    rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "jobs/%s/workers/%s:%u", own->told.job,
                  rubatod->node->name, own->told.device);
    if (known && !strcmp(known->text, writes.at[1].value)) {
        rb_writes_done(&writes);
        return;
    }
    own->reports = true;
    sim_say(rubatod->sim, rubatod->node->name, "reports %s", writes.at[1].value);
    sim_client_commit(rubatod->client, &writes, NULL, on_reported, own);
}

/* ---- Progress ---------------------------------------------------------------------------------*/

void sim_take_row(struct sim_rubatod *rubatod, struct sim_own *own, const struct sim_word *row)
{
    struct sim_known *known = sim_known(rubatod, own->told.job);
    Rb__Progress *progress = &known->progress;

    if (row->level == known->rows + 1)
        known->rows++;
    own->microbatch_us = row->microbatch_us;
    if (row->rank || row->number < progress->configuration ||
        (row->number == progress->configuration && row->level <= progress->step))
        return;
    progress->configuration = row->number;
    progress->step = row->level;
    progress->time = sim_ms(rubatod->sim);
    known->dirty = true;
    sim_agent_poke_in(rubatod, PROGRESS_US);
}

static void on_progressed(struct sim *sim, int err, void *who, void *what)
{
    struct sim_rubatod *rubatod = who;
    struct sim_known *known = what;

    (void)sim;
    known->sent = false;
    known->dirty |= err != 0;
    sim_agent_poke_in(rubatod, known->dirty ? PROGRESS_US : 0);
}

static bool is_urgent(const struct sim_rubatod *rubatod, const struct rb_job_facts *facts)
{
    for (const struct sim_own *own = rubatod->own; own; own = own->next)
        if (!strcmp(own->told.job, facts->id) && rows_end(rubatod, own))
            return true;
    return !facts->state.state->active || facts->state.state->saver;
}

static void guard(struct sim_rubatod *rubatod, struct rb_writes *writes,
                  const struct rb_job_facts *facts)
{
    if (rubatod->sim->broken != SIM_NO_FENCE)
        rb_writes_guard(writes, facts->state.revision, "%s", facts->state.key);
}

static void publish_progress(struct sim_rubatod *rubatod, struct sim_known *known,
                             const struct rb_job_facts *facts)
{
    uint64_t now = rubatod->sim->now;
    struct rb_writes writes = {0};
    enum rb_publish may;

    if (!known->dirty || known->sent)
        return;
    may = rb_publish_progress(facts, &known->progress);
    if (may != RB_PUBLISH_NOW) {
        known->dirty = may == RB_PUBLISH_LATER;
        if (known->dirty)
            sim_agent_poke_in(rubatod, PROGRESS_US);
        return;
    }
    if (now < known->due && !is_urgent(rubatod, facts)) {
        sim_agent_poke_in(rubatod, known->due - now);
        return;
    }
    guard(rubatod, &writes, facts);
    rb_writes_put(&writes,
                  rubatod->sim->broken == SIM_NO_FENCE ? RB_ANY_REVISION : facts->progress.revision,
                  &known->progress.base, "jobs/%s/progress", facts->id);
    known->dirty = false;
    known->sent = true;
    known->due = now + PROGRESS_US;
    sim_client_commit(rubatod->client, &writes, NULL, on_progressed, known);
}

/* ---- Checkpoints ------------------------------------------------------------------------------*/

static void describe(struct sim_rubatod *rubatod, const struct sim_own *own,
                     const struct sim_word *word, Rb__Checkpoint *ret)
{
    rb__checkpoint__init(ret);
    ret->step = word->level;
    ret->path = rb_arena_string(&rubatod->sim->arena, word->path);
    ret->node = rubatod->node->name;
    ret->time = sim_ms(rubatod->sim);
    ret->has_configuration = true;
    ret->configuration = own->told.active;
}

void sim_take_saved(struct sim_rubatod *rubatod, struct sim_own *own, const struct sim_word *word)
{
    struct sim_known *known = sim_known(rubatod, own->told.job);
    struct sim_pending *pending;

    if (word->unsaved) {
        if (!own->told.saving)
            return;
        own->unsaved = true;
        own->reason = rb_arena_string(&rubatod->sim->arena, word->reason);
        return;
    }
    if (!strncmp(word->path, "/park/", 6) || word->kind == SIM_IS_DONE) {
        own->saved = sim_new(rubatod->sim, sizeof *own->saved);
        describe(rubatod, own, word, own->saved);
        return;
    }
    pending = sim_new(rubatod->sim, sizeof *pending);
    describe(rubatod, own, word, &pending->value);
    pending->next = known->checkpoints;
    known->checkpoints = pending;
}

static void drop_pending(struct sim_known *known, const struct sim_pending *pending)
{
    struct sim_pending **at = &known->checkpoints;

    while (*at && *at != pending)
        at = &(*at)->next;
    if (*at)
        *at = pending->next;
}

struct about {
    struct sim_known *known;
    struct sim_pending *pending;
};

static void on_registered(struct sim *sim, int err, void *who, void *what)
{
    struct about *about = what;

    (void)sim;
    about->pending->sent = false;
    if (!err)
        drop_pending(about->known, about->pending);
    sim_agent_poke_in(who, err ? RETRY_US : 0);
}

static void register_checkpoint(struct sim_rubatod *rubatod, struct sim_known *known,
                                struct sim_pending *pending, const struct rb_job_facts *facts)
{
    struct rb_writes writes = {0};
    struct about *about = sim_new(rubatod->sim, sizeof *about);

    *about = (struct about){known, pending};
    guard(rubatod, &writes, facts);
    rb_writes_put(&writes, RB_ANY_REVISION, &pending->value.base, "jobs/%s/checkpoints/%012" PRId64,
                  facts->id, pending->value.step);
    pending->sent = true;
    sim_client_commit(rubatod->client, &writes, NULL, on_registered, about);
}

static void publish_checkpoints(struct sim_rubatod *rubatod, struct sim_known *known,
                                const struct rb_job_facts *facts)
{
    for (struct sim_pending *pending = known->checkpoints, *next; pending; pending = next) {
        next = pending->next;
        enum rb_publish may = rb_publish_checkpoint(facts, &pending->value);

        if (pending->sent)
            continue;
        if (may == RB_PUBLISH_NOW)
            register_checkpoint(rubatod, known, pending, facts);
        else if (may == RB_PUBLISH_NEVER)
            drop_pending(known, pending);
    }
}

void sim_report_all(struct sim_rubatod *rubatod)
{
    struct sim *sim = rubatod->sim;

    for (size_t j = 0; j < sim->n_jobs; j++) {
        const struct rb_job_facts *found =
            rb_facts_job(sim_client_facts(rubatod->client), sim->jobs[j].id);

        if (found && found->job.message && found->state.message) {
            publish_progress(rubatod, &rubatod->known[j], found);
            publish_checkpoints(rubatod, &rubatod->known[j], found);
        } else {
            rubatod->known[j].dirty = false;
        }
    }
    for (struct sim_own *own = rubatod->own; own; own = own->next)
        report(rubatod, own);
}
