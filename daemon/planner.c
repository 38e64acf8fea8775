/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/planner.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/facts/measured.h"
#include "plan/search/search.h"
#include "plan/simulate/cost.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 4, ANSWERS = 32, LACKS = 32, PROFILE_MOST = 64 << 20 };

/* A job's model, and what a device took for it. */
struct subject {
    char digest[33]; /* of the profile; empty: none */
    Rb__Model *model;
    Rb__Profile *profile;
    double *seconds;
    uint64_t used;
};

struct answer {
    char key[33]; /* all that it follows from */
    bool known;
    struct rb_decide_plan plan;
    char why[320];
};

/* Why nothing can be said of jobs with this blob.  The log is told of it once, since decisions come
 * several times a second. */
struct lack {
    char digest[33];
    struct rb_why told; /* empty: that is over */
};

struct rb_planner {
    struct rb_daemon *daemon;
    struct subject subjects[MODELS];
    struct answer answers[ANSWERS]; /* the oldest is overwritten, */
    unsigned next;
    struct lack lacks[LACKS]; /* and here */
    unsigned next_lack;
    uint64_t uses;
};

/* ---- What it lacks ----------------------------------------------------------------------------*/

/* NULL: nothing was told of it. */
static struct lack *find_lack(struct rb_planner *planner, const char *digest)
{
    for (size_t i = 0; i < LACKS; i++)
        if (!strcmp(planner->lacks[i].digest, digest))
            return &planner->lacks[i];
    return NULL;
}

static struct lack *make_lack(struct rb_planner *planner, const char *digest)
{
    struct lack *lack = find_lack(planner, digest);

    if (!lack) {
        lack = &planner->lacks[planner->next_lack++ % LACKS];
        *lack = (struct lack){0};
        snprintf(lack->digest, sizeof(lack->digest), "%s", digest);
    }
    return lack;
}

/* Is it something else than the log was told of last? */
static bool is_news(struct lack *lack, const struct rb_why *why)
{
    bool news = strcmp(lack->told.text, why->text) != 0;

    lack->told = *why;
    return news;
}

static void end_lack(struct lack *lack)
{
    if (lack)
        lack->told = (struct rb_why){0};
}

/* ---- Models ---------------------------------------------------------------------------------- */

static void forget(struct subject *subject)
{
    if (subject->model)
        rb__model__free_unpacked(subject->model, NULL);
    if (subject->profile)
        rb__profile__free_unpacked(subject->profile, NULL);
    free(subject->seconds);
    *subject = (struct subject){0};
}

static void on_fetched(int err, const struct rb_why *why, void *context)
{
    struct lack *lack = context;

    if (!err)
        end_lack(lack);
    else if (err != RB_ECANCELED && is_news(lack, why))
        rb_log(RB_LOG_WARN, "the planner lacks what it needs: %s", why->text);
}

/* Is the blob here?  Else it is on its way for the next time. */
static bool has_blob(struct rb_planner *planner, const Rb__Job *job, const char *digest)
{
    struct rb_daemon *daemon = planner->daemon;

    if (rb_blobs_has(daemon->blobs, digest))
        return true;
    if (strcmp(job->node, daemon->settings->node))
        rb_blobs_fetch(daemon->blobs, daemon->server, job->node, digest, on_fetched,
                       make_lack(planner, digest));
    return false;
}

static int read_blob(struct rb_planner *planner, const char *digest,
                     const ProtobufCMessageDescriptor *type, void *ret, struct rb_why *why)
{
    struct rb_map map;
    int err = rb_map_open(rb_blobs_path(planner->daemon->blobs, digest), &map, why);

    if (err)
        return err;
    *(ProtobufCMessage **)ret = protobuf_c_message_unpack(type, NULL, map.size, map.data);
    rb_map_close(&map);
    return *(ProtobufCMessage **)ret
               ? 0
               : rb_why_set(why, RB_EINVAL, "the blob %s cannot be read", digest);
}

static int load(struct rb_planner *planner, const Rb__Job *job, struct subject *subject,
                struct rb_why *why)
{
    int err = read_blob(planner, job->model, &rb__model__descriptor, &subject->model, why);

    if (!err)
        err = read_blob(planner, job->profile, &rb__profile__descriptor, &subject->profile, why);
    if (!err && (!subject->model->n_programs ||
                 subject->profile->n_seconds != subject->model->programs[0]->n_instructions))
        err = rb_why_set(why, RB_EINVAL, "the profile %s is of another model", job->profile);
    if (err)
        return err;
    subject->seconds = rb_alloc((subject->profile->n_seconds + 1) * sizeof(*subject->seconds));
    for (size_t i = 0; i < subject->profile->n_seconds; i++)
        subject->seconds[i] = subject->profile->seconds[i];
    memcpy(subject->digest, job->profile, sizeof(subject->digest));
    return 0;
}

/* NULL: its blobs are not here, or cannot be read. */
static struct subject *find_subject(struct rb_planner *planner, const Rb__Job *job)
{
    struct subject *oldest = &planner->subjects[0];
    struct rb_why why = {0};

    for (size_t i = 0; i < MODELS; i++) {
        struct subject *one = &planner->subjects[i];

        if (!strcmp(one->digest, job->profile)) {
            one->used = ++planner->uses;
            return one;
        }
        if (one->used < oldest->used)
            oldest = one;
    }
    if (!has_blob(planner, job, job->model) || !has_blob(planner, job, job->profile))
        return NULL;
    forget(oldest);
    if (load(planner, job, oldest, &why)) {
        if (is_news(make_lack(planner, job->profile), &why))
            rb_log(RB_LOG_WARN, "job %s: not planned: %s", job->name, why.text);
        forget(oldest);
        return NULL;
    }
    oldest->used = ++planner->uses;
    return oldest;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* All that an answer follows from. */
static void make_key(const Rb__Job *job, const struct rb_search_way *running,
                     const struct rb_cluster *cluster, char ret_key[33])
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};

    rb_buffer_format(&text, "%s %" PRIu32, job->profile, job->replicas);
    if (running)
        rb_buffer_format(&text, " %" PRIu32 "/%" PRIu32, running->stages, running->copies);
    rb_buffer_format(&text, ",");
    for (uint32_t n = 0; n < cluster->n_nodes; n++)
        rb_buffer_format(&text, " %a/%a", cluster->nodes[n].network.bandwidth,
                         cluster->nodes[n].network.latency);
    for (uint32_t d = 0; d < cluster->n_devices; d++)
        rb_buffer_format(&text, " %" PRIu32 ":%a:%" PRIu64, cluster->devices[d].node,
                         cluster->devices[d].speed, cluster->devices[d].memory);
    rb_hash_digest(text.data, text.size, ret_key);
}

/* "a step of 21.9 ms is expected; the next best, data parallel x2: 433 ms".  A way that is quicker
 * than the chosen one is so by less than is asked of a way that is not as simple, or not what
 * runs. */
static void explain(const struct rb_search *found, struct answer *answer)
{
    const struct rb_search_candidate *chosen = &found->candidates[0], *other = NULL;
    int used = snprintf(answer->why, sizeof(answer->why), "a step of %.4g ms is expected",
                        1e3 * chosen->seconds);

    for (size_t i = 1; i < found->n; i++)
        if (found->candidates[i].verdict == RB_SEARCH_RUNS &&
            (!other || found->candidates[i].seconds < other->seconds))
            other = &found->candidates[i];
    if (other)
        snprintf(answer->why + used, sizeof(answer->why) - (size_t)used, "; %s, %s: %.4g ms",
                 other->seconds < chosen->seconds ? "hardly quicker" : "the next best", other->name,
                 1e3 * other->seconds);
}

static struct rb_cost_profile profile_of(const struct subject *subject)
{
    return (struct rb_cost_profile){
        .seconds = subject->seconds,
        .flops = subject->profile->flops,
        .bytes = subject->profile->bytes,
        .update = subject->profile->update,
        .lanes = subject->profile->lanes,
        .together = subject->profile->together,
    };
}

static void search(const struct rb_job_facts *job, const struct subject *subject,
                   const struct rb_search_way *running, const struct rb_cluster *cluster,
                   struct answer *answer)
{
    const struct rb_cost_profile profile = profile_of(subject);
    const struct rb_search_how how = {
        .spec = job->job.job->spec,
        .model = subject->model,
        .cluster = cluster,
        .profile = &profile,
        .replicas = &job->job.job->replicas,
        .brief = true,
        .running = running,
    };
    struct rb_search found;
    struct rb_why why = {0};
    uint64_t begun = rb_clock_ns();

    if (rb_search_run(&how, cluster->n_devices, &found, &why)) {
        rb_log(RB_LOG_WARN, "job %s: not planned: %s", job->job.job->name, why.text);
        return;
    }
    answer->known = found.n && found.candidates[0].verdict == RB_SEARCH_CHOSEN;
    if (answer->known) {
        answer->plan.stages = found.candidates[0].way.stages;
        answer->plan.replicas = found.candidates[0].way.copies;
        answer->plan.recomputes = found.candidates[0].recomputes;
        answer->plan.seconds = found.candidates[0].seconds;
        explain(&found, answer);
    }
    rb_log(RB_LOG_DEBUG,
           "job %s: planned for %" PRIu32 " devices, the first of speed %.2f, in %.1f ms",
           job->job.job->name, cluster->n_devices, cluster->devices[0].speed,
           (double)(rb_clock_ns() - begun) / 1e6);
    rb_search_done(&found);
}

static const struct answer *find_answer(struct rb_planner *planner, const struct rb_job_facts *job,
                                        const struct subject *subject,
                                        const struct rb_search_way *running,
                                        const struct rb_cluster *cluster)
{
    struct answer *answer;
    char key[33];

    make_key(job->job.job, running, cluster, key);
    for (size_t i = 0; i < ANSWERS; i++)
        if (!strcmp(planner->answers[i].key, key))
            return &planner->answers[i];
    answer = &planner->answers[planner->next++ % ANSWERS];
    *answer = (struct answer){0};
    memcpy(answer->key, key, sizeof(key));
    search(job, subject, running, cluster, answer);
    return answer;
}

static struct rb_measured_by measured_by(const char *node, const Rb__Profile *profile)
{
    return (struct rb_measured_by){
        .node = node,
        .kind = profile->kind,
        .copied = profile->has_host_bytes ? profile->host_bytes : profile->bytes,
        .crossing = profile->crossing,
    };
}

/* us of a microbatch on a core of speed 1, by the profile, as the configuration that trains runs
 * it. */
static double expected_us(const struct subject *subject, const Rb__Job *job,
                          const Rb__Configuration *active)
{
    static const struct rb_cluster_device core = {.speed = 1};
    const struct rb_cost_profile profile = profile_of(subject);
    size_t program = rb_cost_find(subject->model, subject->model->micro_batch, active->recomputes);
    size_t n = active->n_members;
    uint32_t each = active->steals ? 1 : (uint32_t)((job->microbatches + n - 1) / n);

    return 1e6 * rb_cost_program(subject->model, program, &core, &profile).seconds *
           rb_cost_together(each, &core, &profile);
}

/* What the job's processes take says more than what was measured before.  A pipeline does not
 * measure that, and leaves what is known. */
static void take_paces(const struct subject *subject, const struct rb_job_facts *job,
                       const Rb__Configuration *configuration, struct rb_cluster *cluster)
{
    RB_CLEANUP(rb_freep) uint32_t *us = rb_alloc(configuration->n_members * sizeof *us + 1);
    const struct rb_fact *fact = rb_facts_configuration(job, job->state.state->active);
    const Rb__Configuration *active = fact ? fact->configuration : NULL;

    if (!active || !active->n_members)
        return;
    for (size_t m = 0; m < configuration->n_members; m++)
        us[m] = configuration->members[m]->microbatch_us;
    rb_measured_paces(cluster, us, expected_us(subject, job->job.job, active));
}

static bool choose(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                   const Rb__Configuration *configuration, const Rb__Configuration *running,
                   struct rb_arena *arena, struct rb_decide_plan *ret)
{
    struct rb_planner *planner = context;
    const Rb__Job *what = job->job.job;
    const struct subject *subject;
    const struct answer *answer;
    struct rb_measured_by by;
    struct rb_search_way way;
    struct rb_cluster cluster;
    struct rb_why why = {0};

    if (!what->profile || !rb_blobs_digest_valid(what->profile))
        return false;
    subject = find_subject(planner, what);
    if (!subject)
        return false;
    if (running)
        way = (struct rb_search_way){running->pipeline, running->replicas};
    by = measured_by(what->node, subject->profile);
    if (rb_measured_cluster(facts, configuration, &by, &cluster, &why)) {
        if (is_news(make_lack(planner, what->profile), &why))
            rb_log(RB_LOG_INFO, "job %s: not planned: %s", what->name, why.text);
        return false;
    }
    end_lack(find_lack(planner, what->profile));
    take_paces(subject, job, configuration, &cluster);
    answer = find_answer(planner, job, subject, running ? &way : NULL, &cluster);
    rb_cluster_done(&cluster);
    *ret = answer->plan;
    ret->why = rb_arena_string(arena, answer->why);
    return answer->known;
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_decide_planner rb_planner_ask(struct rb_planner *planner)
{
    return (struct rb_decide_planner){choose, planner};
}

struct rb_planner *rb_planner_new(struct rb_daemon *daemon)
{
    struct rb_planner *planner = rb_alloc(sizeof(*planner));

    planner->daemon = daemon;
    return planner;
}

void rb_planner_free(struct rb_planner *planner)
{
    if (!planner)
        return;
    for (size_t i = 0; i < MODELS; i++)
        forget(&planner->subjects[i]);
    free(planner);
}
