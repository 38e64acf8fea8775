/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that this node has seen: their folders, their rows, and what goes with them when they
 * are deleted. */
#include "daemon/agent/jobs.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/plan.h"
#include "daemon/agent/rows.h"
#include "daemon/agent/worker.h"

#include <stdlib.h>
#include <string.h>

bool rb_agent_id_valid(const char *id)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return *id && strlen(id) <= 64 && strspn(id, allowed) == strlen(id);
}

struct rb_agent_job *rb_agent_job_known(struct rb_agent *agent, const char *id)
{
    struct rb_agent_job *job = agent->jobs;
    while (job && strcmp(job->id, id))
        job = job->next;
    return job;
}

struct rb_agent_job *rb_agent_job(struct rb_agent *agent, const char *id)
{
    struct rb_agent_job *job = rb_agent_job_known(agent, id);
    if (job)
        return job;
    job = rb_alloc(sizeof(*job));
    job->agent = agent;
    job->id = rb_string(id);
    job->folder = rb_format("%s/%s", agent->jobs_folder, id);
    rb__progress__init(&job->progress);
    rb__progress__init(&job->heard);
    job->next = agent->jobs;
    agent->jobs = job;
    return job;
}

struct rb_rows *rb_agent_rows(struct rb_agent_job *job, struct rb_why *why)
{
    if (job->rows)
        return job->rows;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/metrics", job->folder);
    int err = rb_file_make_folder(job->folder, RB_FOLDER_OWN, why);
    if (!err)
        err = rb_rows_open(path, &job->rows, why);
    return err ? NULL : job->rows;
}

static void job_free(struct rb_agent_job *job)
{
    struct rb_agent_job **at = &job->agent->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    for (struct rb_agent_checkpoint *pending; (pending = job->checkpoints);) {
        job->checkpoints = pending->next;
        free(pending->value.path);
        free(pending->value.node);
        free(pending);
    }
    rb_agent_plans_free(job);
    rb_rows_close(job->rows);
    free(job->id);
    free(job->folder);
    free(job->model);
    free(job->weights);
    free(job->profile);
    free(job);
}

/* The job was deleted, and its workers are gone: remove its folder and its blobs. */
static void remove_job(struct rb_agent *agent, struct rb_agent_job *job,
                       const struct rb_facts *facts)
{
    struct rb_why why = {0};
    const char *blobs[] = {job->model, job->weights, job->profile};
    if (rb_file_remove(job->folder, &why))
        rb_log(RB_LOG_WARN, "job %s: its folder stays: %s", job->id, why.text);
    for (size_t i = 0; i < RB_COUNT(blobs); i++)
        if (blobs[i] && !rb_facts_names_blob(facts, blobs[i]))
            rb_blobs_remove(agent->daemon->blobs, blobs[i]);
    job_free(job);
}

static void keep_text(char **kept, const char *text)
{
    if (*kept && !strcmp(*kept, text))
        return;
    free(*kept);
    *kept = rb_string(text);
}

static bool has_workers(const struct rb_agent *agent, const struct rb_agent_job *job)
{
    for (const struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        if (worker->job == job)
            return true;
    return false;
}

static void take_deletion(struct rb_agent *agent, const Rb__Deletion *deletion)
{
    if (!rb_agent_id_valid(deletion->job))
        return;
    struct rb_agent_job *job = rb_agent_job(agent, deletion->job);
    char **blobs[] = {&job->model, &job->weights, &job->profile};
    for (size_t i = 0; i < deletion->n_blobs && i < RB_COUNT(blobs); i++)
        keep_text(blobs[i], deletion->blobs[i]);
    job->deleted = true;
}

/* Jobs whose deletion this node may have missed: while it was away, or because their keys had gone
 * before it looked. */
static void take_deletions(struct rb_agent *agent, const struct rb_facts *facts)
{
    if (facts->revision < agent->deletions_heard) /* another etcd, or an older copy of it */
        agent->deletions_heard = 0;
    for (size_t i = 0; i < facts->deletions.n; i++)
        if (facts->deletions.at[i].revision > agent->deletions_heard)
            take_deletion(agent, facts->deletions.at[i].deletion);
    agent->deletions_heard = facts->revision;
}

/* Only a deletion that was seen to be asked for removes folders: an etcd that has lost its data
 * must not take the data of jobs with it. */
void rb_agent_jobs_follow(struct rb_agent *agent)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *found = &facts->jobs[i];
        if (!found->job.message || !rb_agent_id_valid(found->id))
            continue;
        struct rb_agent_job *job = rb_agent_job(agent, found->id);
        keep_text(&job->model, found->job.job->model);
        keep_text(&job->weights, found->job.job->weights);
        if (found->job.job->profile)
            keep_text(&job->profile, found->job.job->profile);
        job->deleted = found->wish.message && found->wish.wish->deleted;
        if (!job->met)
            rb_agent_remove_half_copied(agent, found);
        job->met = true;
    }
    take_deletions(agent, facts);
    for (struct rb_agent_job *job = agent->jobs, *next; job; job = next) {
        const struct rb_job_facts *found = rb_facts_job(facts, job->id);
        next = job->next;
        if ((!found || !found->job.message) && job->deleted && !has_workers(agent, job) &&
            !rb_agent_copies(agent, job->id)) /* a caller was promised a copy */
            remove_job(agent, job, facts);
    }
}

void rb_agent_jobs_free(struct rb_agent *agent)
{
    while (agent->jobs)
        job_free(agent->jobs);
}
