/* SPDX-License-Identifier: Apache-2.0 */
/* What must never happen, checked whenever etcd or a worker's state changes. */
#include "sim_store.h"
#include "sim_worker.h"

#include "daemon/facts/holding.h"
#include "daemon/facts/members.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAME_BACK_US = 20000000 }; /* for the orders to a trainer that was replaced */

const char *const sim_kinds[SIM_KINDS] = {
    "started",   "grown",          "shrunk",    "moved",     "recovered",   "restarted",
    "parked",    "paused",         "resumed",   "abandoned", "worker-died", "node-lost",
    "failed",    "saver-lost",     "succeeded", "cancelled", "balanced",    "replanned",
    "straggler", "straggler-over", "revived",   "gathered",
};

static const struct rb_facts *truth(struct sim *sim)
{
    return rb_mirror_facts(sim->observer);
}

static void *parse(struct sim *sim, const struct rb_write *write,
                   const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = NULL;
    struct rb_why why = {{0}};

    if (rb_reflect_from_text(write->value, strlen(write->value), descriptor, &message, &why))
        sim_fail(sim, "%s: %s", write->key, why.text);
    return message;
}

static void done(void *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- What is published ------------------------------------------------------------------------*/

static const Rb__Configuration *last_to_train(const struct rb_job_facts *facts)
{
    const Rb__Configuration *last = NULL;

    for (size_t i = 0; i < facts->configurations.n; i++) {
        const Rb__Configuration *conf = facts->configurations.at[i].configuration;

        if (conf->state == RB__CONFIGURATION__STATE__ACTIVE ||
            conf->state == RB__CONFIGURATION__STATE__RETIRED)
            last = conf;
    }
    return last;
}

/* Only the configuration that trains publishes, or the last one that did; what a configuration made
 * before deaths that facts heard of late counts too.  A save counts from every configuration that
 * led to the current one since the job fell back, also when the job has fallen back again and
 * nothing has begun anew yet, and from a configuration that made it on its way to where the job is
 * parked. */
static void check_publisher(struct sim *sim, const struct sim_job *job,
                            const struct rb_job_facts *facts, const char *key, uint32_t number,
                            bool saves)
{
    const Rb__Configuration *last = last_to_train(facts);
    const uint32_t fall =
        last && last->number <= job->last_fall ? job->fall_before : job->last_fall;
    bool gathers = false;

    for (size_t i = 0; i < facts->configurations.n; i++) {
        const Rb__Configuration *conf = facts->configurations.at[i].configuration;

        gathers |= saves && conf->number == number && !strcmp(conf->cause, "park");
    }
    if (!last || !(last->number == number || (gathers && number > last->number) ||
                   (saves && number < last->number && number > fall) ||
                   (number < last->number && number >= last->left_of && last->left_of)))
        sim_fail(sim, "configuration %u publishes %s, and the last one to train is %u", number, key,
                 last ? last->number : 0);
}

static void check_progress(struct sim *sim, struct sim_job *job, const struct rb_job_facts *facts,
                           const struct rb_write *write)
{
    Rb__Progress *progress = parse(sim, write, &rb__progress__descriptor);

    if (!progress)
        return;
    check_publisher(sim, job, facts, write->key, progress->configuration, false);
    if (job->fell_back && progress->configuration > job->fell_back)
        job->fell_back = job->published = 0; /* from here on published steps count again */
    if (progress->step < job->published && !job->fell_back)
        sim_fail(sim, "%s: step %" PRId64 " is published behind step %" PRId64, job->id,
                 progress->step, job->published);
    if (progress->step > job->committed)
        sim_fail(sim, "%s: step %" PRId64 " is published and nobody has committed it", job->id,
                 progress->step);
    job->published = progress->step;
    done(progress);
}

static void check_file(struct sim *sim, struct sim_job *job, const Rb__Checkpoint *checkpoint)
{
    const struct sim_node *node = sim_node(sim, checkpoint->node);
    const struct sim_file *file =
        node ? sim_file_get(sim, checkpoint->path, (int)(node - sim->nodes)) : NULL;

    if (!file)
        sim_fail(sim, "%s: %s is published and not there", job->id, checkpoint->path);
    else if (file->state.level != checkpoint->step ||
             !sim_same(&file->state, sim_reference(sim, job, file->state.level)))
        sim_fail(sim, "%s: %s is not the state of step %" PRId64, job->id, checkpoint->path,
                 checkpoint->step);
}

static void check_checkpoint(struct sim *sim, struct sim_job *job, const struct rb_job_facts *facts,
                             const struct rb_write *write)
{
    Rb__Checkpoint *checkpoint = parse(sim, write, &rb__checkpoint__descriptor);

    if (!checkpoint)
        return;
    check_publisher(sim, job, facts, write->key, checkpoint->configuration, true);
    check_file(sim, job, checkpoint);
    done(checkpoint);
}

/* ---- What is said of processes ----------------------------------------------------------------*/

/* A live process is not reported dead, unless its rubatod died before it could meet the process:
 * the next rubatod does not find it, nothing is ever asked of it, and it ends by itself. */
static void check_report(struct sim *sim, const struct rb_write *write)
{
    Rb__WorkerReport *report = parse(sim, write, &rb__worker_report__descriptor);
    const struct sim_process *process = report ? sim_process_named(sim, report->worker) : NULL;

    if (process && process->alive && process->met &&
        report->state == RB__WORKER_REPORT__STATE__DEAD)
        sim_fail(sim, "%s is reported dead and lives", process->name);
    done(report);
}

static bool is_seen(struct sim *sim, const struct sim_process *process, uint32_t active)
{
    return process && process->alive && process->state.level >= 1 && !process->leave &&
           process->phase != SIM_FAILED && process->number >= active &&
           sim->now >= process->node->seen_away + CAME_BACK_US &&
           rb_fact_find(&truth(sim)->nodes, process->node->name);
}

/* Is the process in a configuration whose members have a part of the state each?  It may have
 * entered one that no report has called active yet. */
static bool has_part(const struct rb_job_facts *facts, const struct sim_process *process)
{
    const struct rb_fact *fact = rb_facts_configuration(facts, process->number);

    return fact && rb_holding_sharded(facts->job.job, fact->configuration);
}

/* A job must not fall back to a checkpoint while processes that can be seen have what it would
 * lose. */
static void check_restart(struct sim *sim, struct sim_job *job, const struct rb_job_facts *facts)
{
    const struct rb_fact *fact = rb_facts_configuration(facts, facts->state.state->active);
    const Rb__Configuration *active = fact ? fact->configuration : NULL;
    bool sharded = active && rb_holding_sharded(facts->job.job, active), here[SIM_RANKS];
    struct rb_arena arena = {0};
    struct rb_replicas how;

    for (size_t i = 0; i < sim->n_processes && !sharded; i++)
        if (sim->processes[i]->job == job &&
            is_seen(sim, sim->processes[i], facts->state.state->active) &&
            !has_part(facts, sim->processes[i]))
            sim_fail(sim, "%s falls back, and %s has its state of level %" PRId64, job->id,
                     sim->processes[i]->name, sim->processes[i]->state.level);
    if (!sharded)
        return;
    for (size_t m = 0; m < active->n_members; m++)
        here[m] = active->members[m]->worker &&
                  is_seen(sim, sim_process_named(sim, active->members[m]->worker), active->number);
    how = rb_holding_of(facts->job.job, active, &arena);
    if (rb_replicas_whole(&how, here))
        sim_fail(sim, "%s falls back, and members of configuration %u have all of its state",
                 job->id, active->number);
    rb_arena_done(&arena);
}

static void check_event(struct sim *sim, const struct rb_write *write)
{
    Rb__Event *event = parse(sim, write, &rb__event__descriptor);
    struct sim_job *job = event && event->job ? sim_job(sim, event->job) : NULL;
    const struct rb_job_facts *facts = job ? rb_facts_job(truth(sim), job->id) : NULL;

    for (size_t k = 0; event && k < RB_COUNT(sim_kinds); k++)
        sim->seen[k] += !strcmp(event->kind, sim_kinds[k]);
    if (event)
        sim_say(sim, "event", "%s: %s: %s", event->job ? event->job : "-", event->kind,
                event->text);
    if (facts && facts->state.message && !strcmp(event->kind, "restarted")) {
        check_restart(sim, job, facts);
        if (last_to_train(facts) && last_to_train(facts)->number > job->last_fall)
            job->fall_before = job->last_fall;
        job->fell_back = job->last_fall = facts->state.state->newest;
        memset(job->trains, 0, sizeof job->trains);
    }
    done(event);
}

/* ---- What is decided --------------------------------------------------------------------------*/

static void check_configuration(struct sim *sim, struct sim_job *job, const struct rb_write *write)
{
    uint32_t number = (uint32_t)strtoul(strrchr(write->key, '/') + 1, NULL, 10);
    const struct rb_job_facts *facts = rb_facts_job(truth(sim), job->id);

    if (facts && rb_facts_configuration(facts, number))
        return;
    if (number >= SIM_NUMBERS || job->numbers[number])
        sim_fail(sim, "%s: configuration %u comes again", job->id, number);
    else
        job->numbers[number] = true;
}

static void check_state(struct sim *sim, struct sim_job *job, const struct rb_job_facts *facts,
                        const struct rb_write *write, const struct rb_write *writes, size_t n)
{
    Rb__JobState *state = parse(sim, write, &rb__job_state__descriptor);
    const Rb__JobState *before = facts && facts->state.message ? facts->state.state : NULL;

    if (state && state->parked)
        check_file(sim, job, state->parked);
    if (state && before && rb_phase_final(before->phase) && state->phase != before->phase)
        sim_fail(sim, "%s was over and is not any more", job->id);
    if (state && before && state->newest < before->newest)
        sim_fail(sim, "%s: the newest configuration was %u and is %u", job->id, before->newest,
                 state->newest);
    if (state && state->phase == RB__PHASE__Succeeded &&
        (!state->parked || state->parked->step != job->steps))
        sim_fail(sim, "%s has succeeded without its last step", job->id);
    if (state && before)
        sim_check_stragglers(sim, before, state, writes, n);
    done(state);
}

void sim_check_txn(struct sim *sim, const struct rb_write *writes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *key = writes[i].key, *rest = NULL;
        const struct rb_job_facts *facts;
        struct sim_job *job = NULL;
        char id[8] = "";

        if (writes[i].kind != RB_WRITE_PUT)
            continue;
        if (!strncmp(key, "events/", 7))
            check_event(sim, &writes[i]);
        if (sscanf(key, "jobs/%7[^/]", id) == 1 && (job = sim_job(sim, id)) != NULL)
            rest = key + strlen("jobs/") + strlen(id) + 1;
        if (!rest)
            continue;
        facts = rb_facts_job(truth(sim), id);
        if (!strcmp(rest, "progress") && facts)
            check_progress(sim, job, facts, &writes[i]);
        else if (!strncmp(rest, "checkpoints/", 12) && facts)
            check_checkpoint(sim, job, facts, &writes[i]);
        else if (!strncmp(rest, "workers/", 8))
            check_report(sim, &writes[i]);
        else if (!strncmp(rest, "configurations/", 15))
            check_configuration(sim, job, &writes[i]);
        else if (!strcmp(rest, "state"))
            check_state(sim, job, facts, &writes[i], writes, n);
    }
}

/* ---- Behind a transaction ---------------------------------------------------------------------*/

static void check_job(struct sim *sim, const struct rb_job_facts *facts)
{
    const Rb__JobState *state = facts->state.state;
    size_t coming = 0, active = 0;

    for (size_t c = 0; c < facts->configurations.n; c++) {
        const Rb__Configuration *conf = facts->configurations.at[c].configuration;

        if (!rb_configuration_live(conf))
            continue;
        if (rb_phase_final(state->phase))
            sim_fail(sim, "%s is over, and configuration %u is not", facts->id, conf->number);
        if (conf->state == RB__CONFIGURATION__STATE__ACTIVE)
            active += conf->number == state->active ? 1 : 10;
        else
            coming += conf->number == state->next ? 1 : 10;
    }
    if (coming != (state->next != 0) || active != (state->active != 0))
        sim_fail(sim, "%s: its configurations and its state (active %u, next %u) differ", facts->id,
                 state->active, state->next);
}

/* A device serves one job.  A dead process serves none: a configuration that was given up, and is
 * revived, may name members whose devices have been given away meanwhile. */
static void check_devices(struct sim *sim)
{
    const char *holder[SIM_NODES][SIM_DEVICES] = {{0}};
    const struct rb_facts *facts = truth(sim);

    for (size_t j = 0; j < facts->n_jobs; j++)
        for (size_t c = 0; c < facts->jobs[j].configurations.n; c++) {
            const Rb__Configuration *conf = facts->jobs[j].configurations.at[c].configuration;

            for (size_t m = 0; rb_configuration_live(conf) && m < conf->n_members; m++) {
                const struct sim_node *node = sim_node(sim, conf->members[m]->node);
                const char **at = &holder[node - sim->nodes][conf->members[m]->device];

                if (rb_member_gone(&facts->jobs[j], conf, m))
                    continue;
                if (*at && strcmp(*at, facts->jobs[j].id) != 0)
                    sim_fail(sim, "%s:%u serves %s and %s", node->name, conf->members[m]->device,
                             *at, facts->jobs[j].id);
                *at = facts->jobs[j].id;
            }
        }
}

void sim_check_facts(struct sim *sim)
{
    const struct rb_facts *facts = truth(sim);

    for (size_t n = 0; n < sim->n_nodes; n++)
        if (!rb_fact_find(&facts->nodes, sim->nodes[n].name))
            sim->nodes[n].seen_away = sim->now;
    for (size_t j = 0; j < facts->n_jobs; j++)
        if (facts->jobs[j].job.message && facts->jobs[j].state.message)
            check_job(sim, &facts->jobs[j]);
    check_devices(sim);
}
