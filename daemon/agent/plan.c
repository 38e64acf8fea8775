/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a configuration, as a file that its workers read.
 *
 *   shares + model  >  STATE/jobs/ID/plans/DIGEST, or the order itself where the disk has no room:
 *                      jobs must be able to leave a node whose disk is full
 *
 * A plan follows from the model and from which rank computes and holds what, so it is made once for
 * each distribution of shares and known by that.  Plans for what is left after a death in the
 * active configuration are made ahead, so that no worker waits for them then: one plan a turn of
 * the loop, which has a lease to keep. */
#include "daemon/agent/plan.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/agent/jobs.h"
#include "daemon/facts/contingency.h"
#include "daemon/facts/holding.h"
#include "daemon/facts/shares.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "plan/split.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    AHEAD_MOST = 16,
    PLANS_KEPT = 64, /* files: a worker that is slow may still be about to read what it was told */
    PLAN_MOST = 64 << 20,
};

struct rb_agent_plan {
    struct rb_agent_plan *next;
    char key[33], digest[33];
    Rb__Plan *unsaved; /* the disk had no room for it; NULL: it is in the job's folder */
};

static void free_model(Rb__Model **model)
{
    if (*model)
        rb__model__free_unpacked(*model, NULL);
    *model = NULL;
}

void rb_agent_plans_free(struct rb_agent_job *job)
{
    free_model(&job->planned_model);
    for (struct rb_agent_plan *plan; (plan = job->plans);) {
        job->plans = plan->next;
        if (plan->unsaved)
            rb__plan__free_unpacked(plan->unsaved, NULL);
        free(plan);
    }
}

static struct rb_agent_plan *find(const struct rb_agent_job *job, const char *key)
{
    struct rb_agent_plan *plan = job->plans;
    while (plan && strcmp(plan->key, key))
        plan = plan->next;
    return plan;
}

static int read_model(struct rb_agent *agent, const char *digest, Rb__Model **ret,
                      struct rb_why *why)
{
    struct rb_map map;
    int err = rb_map_open(rb_blobs_path(agent->daemon->blobs, digest), &map, why);
    if (err)
        return err;
    *ret = rb__model__unpack(NULL, map.size, map.data);
    rb_map_close(&map);
    return *ret ? RB_OK : rb_why_set(why, RB_EINVAL, "the model %s cannot be read", digest);
}

/* Is it there, and whole?  It may have been torn when the machine went down. */
static bool is_kept(const char *path, const char *digest)
{
    struct rb_buffer bytes = {0};
    struct rb_why why;
    char found[33] = "";
    if (!rb_file_read(path, PLAN_MOST, &bytes, &why))
        rb_hash_digest(bytes.data, bytes.size, found);
    rb_buffer_done(&bytes);
    return !strcmp(found, digest);
}

/* Write a plan into the job's folder, named by its content, if it is not there yet.  A plan that is
 * asked for again becomes as new as one just written: tidy removes the oldest. */
static int keep(const char *folder, const Rb__Plan *plan, char ret_digest[33], struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *plans = rb_format("%s/plans", folder);
    RB_CLEANUP(rb_freep) char *path = NULL;
    size_t size = rb__plan__get_packed_size(plan);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size + 1);
    rb__plan__pack(plan, bytes);
    rb_hash_digest(bytes, size, ret_digest);
    path = rb_format("%s/%s", plans, ret_digest);
    if (is_kept(path, ret_digest) && !utimensat(AT_FDCWD, path, NULL, 0))
        return RB_OK;
    int err = rb_file_make_folder(plans, RB_FOLDER_OWN, why);
    return err ? err : rb_file_write_lightly(path, bytes, size, why);
}

/* model: read into *model where it is still NULL. */
static int make(struct rb_agent *agent, const struct rb_job_facts *facts,
                const struct rb_replicas *how, const int32_t *owners, struct rb_shape shape,
                const Rb__Configuration *configuration, Rb__Model **model,
                struct rb_agent_plan *ret, struct rb_why *why)
{
    Rb__Plan *plan = NULL;
    int err = *model ? RB_OK : read_model(agent, facts->job.job->model, model, why);
    if (!err && rb_schedule_microbatches(*model) != facts->job.job->microbatches)
        err = rb_why_set(why, RB_EINVAL, "the model %s is not the job's", facts->job.job->model);
    if (!err)
        err = !shape.stages ? rb_schedule_plan(*model, how->ranks, owners, &plan, why)
              : shape.split ? rb_split_plan(*model, how->ranks, shape.stages, &plan, why)
                            : rb_pipeline_plan(*model, how->ranks, shape.stages, &plan, why);
    if (!err) {
        plan->has_steals = plan->steals = configuration->steals;
        plan->has_recomputes = plan->recomputes = configuration->recomputes;
        rb_replicas_place(how, *model, plan); /* by what these programs need */
        err = keep(rb_agent_job(agent, facts->id)->folder, plan, ret->digest, why);
        if (err == RB_EFULL) {
            ret->unsaved = RB_TAKE(plan);
            err = RB_OK;
        }
    }
    if (plan)
        rb__plan__free_unpacked(plan, NULL);
    return err;
}

/* All that a plan of this job follows from. */
static void make_key(const struct rb_replicas *how, const int32_t *owners, uint32_t total,
                     struct rb_shape shape, const Rb__Configuration *configuration,
                     char ret_key[33])
{
    const bool how_run[] = {configuration->steals, configuration->recomputes};
    struct rb_buffer text = {0};

    rb_buffer_add(&text, owners, total * sizeof(*owners));
    rb_buffer_add(&text, &how->ranks, sizeof(how->ranks));
    rb_buffer_add(&text, &how->copies, sizeof(how->copies));
    rb_buffer_add(&text, &shape.stages, sizeof(shape.stages));
    rb_buffer_add(&text, &shape.split, sizeof(shape.split));
    rb_buffer_add(&text, how_run, sizeof(how_run));
    rb_buffer_add(&text, how->nodes, how->ranks * sizeof(*how->nodes));
    rb_hash_digest(text.data, text.size, ret_key);
    rb_buffer_done(&text);
}

static int find_or_make(struct rb_agent *agent, const struct rb_job_facts *facts,
                        const Rb__Configuration *configuration, struct rb_arena *arena,
                        Rb__Model **model, const struct rb_agent_plan **ret, struct rb_why *why)
{
    uint32_t total = facts->job.job->microbatches;
    struct rb_replicas how = rb_holding_of(facts->job.job, configuration, arena);
    struct rb_agent_job *job = rb_agent_job(agent, facts->id);
    struct rb_agent_plan made = {0};
    int32_t *owners;
    struct rb_shape shape = rb_shares_shape(configuration);
    int err = rb_shares_of(configuration, total, arena, &owners, why);
    if (err)
        return err;
    make_key(&how, owners, total, shape, configuration, made.key);
    struct rb_agent_plan *plan = find(job, made.key);
    if (!plan) {
        err = make(agent, facts, &how, owners, shape, configuration, model, &made, why);
        if (err)
            return rb_why_add(why, err, "planning for %u worker%s", how.ranks,
                              how.ranks == 1 ? "" : "s");
        made.next = job->plans;
        job->plans = plan = rb_alloc(sizeof(*plan));
        *plan = made;
    }
    *ret = plan;
    return RB_OK;
}

int rb_agent_plan(struct rb_agent *agent, const struct rb_job_facts *facts,
                  const Rb__Configuration *configuration, struct rb_arena *arena,
                  Rb__Configure *order, const char **ret_digest, struct rb_why *why)
{
    const struct rb_agent_plan *plan;
    Rb__Model *model = NULL;
    int err = find_or_make(agent, facts, configuration, arena, &model, &plan, why);
    free_model(&model);
    if (err)
        return err;
    *ret_digest = rb_arena_string(arena, plan->digest);
    order->plan_path =
        rb_arena_format(arena, "%s/plans/%s", rb_agent_job(agent, facts->id)->folder, plan->digest);
    if (plan->unsaved) {
        order->plan.len = rb__plan__get_packed_size(plan->unsaved);
        order->plan.data = rb_arena_alloc(arena, order->plan.len);
        rb__plan__pack(plan->unsaved, order->plan.data);
        order->has_plan = true;
    }
    return RB_OK;
}

/* ---- Ahead ----------------------------------------------------------------------------------- */

/* Plan for what is left when this rank dies. */
static void plan_without(struct rb_agent *agent, const struct rb_job_facts *facts,
                         const Rb__Configuration *active, size_t rank, Rb__Model **model)
{
    const char *dead[] = {active->members[rank]->worker};
    struct rb_contingency_known known = {.dead = dead, .n_dead = 1};
    struct rb_arena arena = {0};
    const struct rb_agent_plan *plan;
    struct rb_why why = {0};
    const Rb__Configuration *left = dead[0] ? rb_contingency_next(facts, &known, &arena) : NULL;
    if (left && find_or_make(agent, facts, left, &arena, model, &plan, &why))
        rb_log(RB_LOG_WARN, "job %s: %s", facts->id, why.text);
    rb_arena_done(&arena);
}

static bool has_member_here(const struct rb_agent *agent, const Rb__Configuration *configuration)
{
    for (size_t m = 0; m < configuration->n_members; m++)
        if (!strcmp(configuration->members[m]->node, agent->node))
            return true;
    return false;
}

/* Keep the newest files.  No plan is remembered at this point, so one that is needed again is
 * looked for, and written again where its file is gone. */
static void tidy(const struct rb_agent_job *job)
{
    RB_CLEANUP(rb_freep) char *plans = rb_format("%s/plans", job->folder);
    struct rb_why why = {0};
    int err = rb_file_keep_newest(plans, PLANS_KEPT, &why);
    if (err && err != RB_ENOTFOUND)
        rb_log(RB_LOG_WARN, "job %s: old plans stay: %s", job->id, why.text);
}

void rb_agent_plan_ahead(struct rb_agent *agent, const struct rb_job_facts *facts)
{
    const struct rb_fact *fact =
        facts->state.message ? rb_facts_configuration(facts, facts->state.state->active) : NULL;
    const Rb__Configuration *active = fact ? fact->configuration : NULL;
    struct rb_agent_job *job = rb_agent_job_known(agent, facts->id);
    if (!active || !job || !facts->job.message || !has_member_here(agent, active) ||
        !rb_blobs_has(agent->daemon->blobs, facts->job.job->model))
        return;
    if (job->planned_ahead != active->number) {
        job->planned_ahead = active->number;
        job->planned_ranks = 0;
        rb_agent_plans_free(job);
        tidy(job);
    } else if (job->planned_ranks == active->n_members || job->planned_ranks == AHEAD_MOST) {
        return;
    }
    plan_without(agent, facts, active, job->planned_ranks++, &job->planned_model);
    if (job->planned_ranks == active->n_members || job->planned_ranks == AHEAD_MOST)
        free_model(&job->planned_model);
    else
        rb_agent_poke(agent);
}
