/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: how a job would run on given numbers of devices, and what the move there would cost.
 *
 * The job is compiled as at submit.  Devices and links come from a cluster file, or, for a
 * submitted job, are those that its nodes have measured.  Without either, and for devices of which
 * only a speed is known, a microbatch is timed here, on one device of the job's kind.  The report
 * is one JSON value; plan_page.c makes the table from it. */
#include "base/arena.h"
#include "ctl/output.h"
#include "ctl/plan_page.h"
#include "ctl/timing.h"
#include "ctl/verbs.h"
#include "plan/compile/compile.h"
#include "plan/search/search.h"
#include "plan/simulate/timeline.h"
#include "proto/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_COUNTS = 64, MOST_DEVICES = 65536 };

/* Everything open while a job is planned. */
struct plan {
    const char *cluster_path;
    uint32_t counts[MOST_COUNTS];
    size_t n_counts;
    const char *name;             /* of the job */
    Rb__JobFile *file;            /* the file that the job is from */
    Rb__Spec *spec;               /* the file's, or what was submitted */
    struct rb_timing_place place; /* a device of the kind that the job wants */
    struct rb_why nowhere;        /* why there is none here; empty: there is */
    struct rb_compiled compiled;
    struct rb_cluster cluster;
    struct rb_cost_profile profile;
    struct rb_cluster_link inside; /* this machine's devices, as timed */
    double *seconds;               /* by instruction of the first program */
    uint64_t memory;               /* of a device here */
    struct rb_search searches[MOST_COUNTS];
    size_t n_searches;
};

static void done(struct plan *plan)
{
    for (size_t i = 0; i < plan->n_searches; i++)
        rb_search_done(&plan->searches[i]);
    rb_cluster_done(&plan->cluster);
    free(plan->seconds);
    rb_compiled_done(&plan->compiled);
    if (plan->file)
        rb__job_file__free_unpacked(plan->file, NULL);
    else if (plan->spec)
        rb__spec__free_unpacked(plan->spec, NULL);
}

/* ---- What is asked ---- */

/* "2,4,8" */
static int read_counts(const char *text, struct plan *plan, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *copy = rb_string(text);
    char *rest = NULL;

    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int64_t count;
        int err = rb_arguments_count(word, 1, MOST_DEVICES, &count, why);

        if (!err && plan->n_counts == MOST_COUNTS)
            err = rb_why_set(why, RB_ELIMIT, "more than %d numbers", MOST_COUNTS);
        if (err)
            return err;
        plan->counts[plan->n_counts++] = (uint32_t)count;
    }
    return plan->n_counts ? 0 : rb_why_set(why, RB_EINVAL, "'%.40s' is no number", text);
}

static uint32_t largest_count(const struct plan *plan)
{
    uint32_t largest = plan->spec->devices->want;

    for (size_t i = 0; i < plan->n_counts; i++)
        if (plan->counts[i] > largest)
            largest = plan->counts[i];
    return largest;
}

/* ---- What there is ---- */

static int time_here(struct plan *plan, struct rb_why *why)
{
    const Rb__Program *program = plan->compiled.model->programs[0];
    struct rb_timing_taken taken;
    int err;

    if (plan->nowhere.text[0]) {
        *why = plan->nowhere;
        return RB_ENOTFOUND;
    }
    err = rb_timing_take(&plan->place, plan->compiled.model, true, &taken, why);
    if (err)
        return err;
    plan->seconds = rb_alloc((program->n_instructions + 1) * sizeof *plan->seconds);
    for (size_t i = 0; i < program->n_instructions; i++)
        plan->seconds[i] = rb_profile_ns(taken.profile, i) / 1e9;
    plan->profile = (struct rb_cost_profile){
        .seconds = plan->seconds,
        .flops = taken.speed.flops * 1e9,
        .bytes = taken.step.copied > 0 ? taken.step.copied : taken.speed.bytes * 1e9,
        .update = taken.step.update,
        .lanes = taken.step.lanes,
        .together = taken.step.together};
    plan->inside = taken.ways.host > 0 ? rb_cluster_inside(taken.ways.host, taken.ways.crossing)
                                       : rb_cluster_inside(plan->profile.bytes, 0);
    rb_profile_free(taken.profile);
    return 0;
}

/* Times taken with the job are better than what nodes measured when they started, and for GPUs
 * there is nothing else. */
static void fill_inside(struct plan *plan)
{
    for (uint32_t n = 0; plan->inside.bandwidth > 0 && n < plan->cluster.n_nodes; n++)
        plan->cluster.nodes[n].inside = plan->inside;
}

/* Assume as many devices as are asked about, all like the timed one. */
static void assume_here(struct plan *plan)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    uint32_t asked = largest_count(plan);

    cores = cores > 0 ? cores : 1;
    if (plan->place.bytes) {
        plan->memory = plan->place.bytes;
        rb_cluster_here(plan->place.kind, asked, plan->inside, plan->memory, &plan->cluster);
        return;
    }
    if (pages > 0)
        plan->memory = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / (uint64_t)cores;
    rb_cluster_here("cpu", asked > (uint32_t)cores ? asked : (uint32_t)cores, plan->inside,
                    plan->memory, &plan->cluster);
}

/* A JSON value is YAML. */
static int ask_cluster(const struct rb_session *session, struct plan *plan, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *text = NULL;
    json_t *reply = NULL;
    int err =
        rb_session_call(session, "cluster", json_pack("{s:s}", "job", plan->name), 0, &reply, why);

    if (err)
        return err;
    text = json_dumps(reply, 0);
    json_decref(reply);
    return rb_cluster_parse("what nodes have measured", text, strlen(text), &plan->cluster, why);
}

/* Reads the job from its file, and its devices where they are known. */
static int look_at_file(struct plan *plan, const char *path, const char *const *overrides, int n,
                        struct rb_why *why)
{
    int err = rb_spec_read(path, overrides, n, &plan->file, why);

    if (err)
        return err;
    plan->name = plan->file->metadata->name;
    plan->spec = plan->file->spec;
    return 0;
}

/* Chooses as submit does: a GPU before a core where both may train the job.  Where only GPUs may,
 * and there is none here, the job is still compiled for one, and a cluster file must give its
 * speed. */
static int look_for_place(struct plan *plan, struct rb_why *why)
{
    const char *kind = plan->spec->devices ? plan->spec->devices->kind : NULL;
    bool any = !kind || !strcmp(kind, "any");
    struct rb_why no_gpu;

    if (any && !rb_timing_first("cuda", &plan->place, &no_gpu))
        return 0;
    if (any || !strcmp(kind, "cpu"))
        return rb_timing_first("cpu", &plan->place, why);
    if (rb_timing_first(kind, &plan->place, &plan->nowhere))
        snprintf(plan->place.numeric_class, sizeof plan->place.numeric_class, "%s", kind);
    return 0;
}

static int look_at_job(const struct rb_session *session, struct plan *plan, const char *name,
                       struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *class = NULL;
    int err = rb_session_spec(session, name, &plan->spec, &class, why);

    plan->name = name;
    if (!err && rb_timing_find(class, &plan->place, &plan->nowhere))
        snprintf(plan->place.numeric_class, sizeof plan->place.numeric_class, "%s", class);
    return err || plan->cluster_path ? err : ask_cluster(session, plan, why);
}

static int look(struct plan *plan, struct rb_why *why)
{
    int err = rb_compile(plan->spec, plan->place.numeric_class, &plan->compiled, why);
    bool known = plan->cluster.n_devices || plan->cluster_path;

    if (!err && plan->cluster_path)
        err = rb_cluster_read(plan->cluster_path, &plan->cluster, why);
    if (!err && (!known || rb_cluster_unmeasured(&plan->cluster)))
        err = time_here(plan, why);
    if (!err && !known)
        assume_here(plan);
    if (!err && !plan->cluster_path)
        fill_inside(plan);
    return err;
}

static int search(struct plan *plan, struct rb_why *why)
{
    const struct rb_search_how how = {
        .spec = plan->spec,
        .model = plan->compiled.model,
        .cluster = &plan->cluster,
        .profile = &plan->profile,
        .from = plan->spec->devices->want,
        .machine = plan->memory,
    };
    int err = 0;

    if (!plan->n_counts)
        plan->counts[plan->n_counts++] = how.from;
    for (size_t i = 0; !err && i < plan->n_counts; i++) {
        err = rb_search_run(&how, plan->counts[i], &plan->searches[i], why);
        plan->n_searches += !err;
    }
    return err;
}

/* ---- The report: times in ms, sizes in bytes ---- */

static json_t *move_json(const struct rb_search_candidate *one)
{
    if (!one->moves)
        return json_null();
    return json_pack("{s:I,s:f,s:f}", "bytes", (json_int_t)one->move.bytes, "ms",
                     1e3 * one->move.seconds, "stallMs", 1e3 * one->move.stall);
}

static json_t *candidate_json(const struct plan *plan, const struct rb_search_candidate *one)
{
    double batch = (double)plan->compiled.model->global_batch;

    return json_pack("{s:s,s:s,s:b,s:s,s:f,s:f,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:o}", "name", one->name,
                     "verdict", rb_search_verdict_text(one->verdict), "runs",
                     one->verdict == RB_SEARCH_CHOSEN || one->verdict == RB_SEARCH_RUNS, "reason",
                     one->reason, "stepMs", 1e3 * one->seconds, "samplesPerSecond",
                     one->seconds > 0 ? batch / one->seconds : 0, "memoryBytes",
                     (json_int_t)one->memory, "sentBytes", (json_int_t)one->sent, "idle", one->idle,
                     "computeMs", 1e3 * one->computing, "sumMs", 1e3 * one->summing, "updateMs",
                     1e3 * one->updating, "gatherMs", 1e3 * one->gathering, "move", move_json(one));
}

static json_t *report(const struct plan *plan)
{
    json_t *plans = json_array();

    for (size_t i = 0; i < plan->n_searches; i++) {
        json_t *candidates = json_array();

        for (size_t c = 0; c < plan->searches[i].n; c++)
            json_array_append_new(candidates,
                                  candidate_json(plan, &plan->searches[i].candidates[c]));
        json_array_append_new(plans,
                              json_pack("{s:i,s:o}", "devices", (int)plan->searches[i].devices,
                                        "candidates", candidates));
    }
    return json_pack("{s:s,s:s,s:b,s:i,s:{s:i,s:i},s:o}", "job", plan->name, "model",
                     plan->compiled.summary, "timedHere", plan->seconds != NULL, "from",
                     (int)plan->spec->devices->want, "cluster", "devices",
                     (int)plan->cluster.n_devices, "nodes", (int)plan->cluster.n_nodes, "plans",
                     plans);
}

/* ---- As a picture ---- */

/* The step of the first candidate of the last number of devices. */
static int draw(struct rb_session *session, const struct plan *plan, const char *path,
                struct rb_why *why)
{
    const struct rb_search_candidate *one = plan->searches[plan->n_searches - 1].candidates;
    RB_CLEANUP(rb_buffer_done) struct rb_buffer svg = {0};
    RB_CLEANUP(rb_freep)
    char *title = rb_format("%s: %s, a step of %.4g ms", plan->name, one->name, 1e3 * one->seconds);

    rb_timeline_svg(one->simulate, title, &svg);
    return rb_output_write(session, path, svg.data, svg.size, why);
}

/* ---- The verb ---- */

int rb_plan(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *overrides[RB_ARGUMENTS_MAX], *path = rb_arguments_value(arguments, "file");
    const char *counts = rb_arguments_value(arguments, "devices");
    const char *svg = rb_arguments_value(arguments, "svg");
    int n = rb_arguments_values(arguments, "set", overrides), err;
    struct plan plan = {.cluster_path = rb_arguments_value(arguments, "cluster")};
    struct rb_why why = {0};
    json_t *all;

    if (!path && !arguments->n_words)
        return rb_session_usage(session, "-f says which job file, or a word which job");
    if (path ? arguments->n_words : n)
        return rb_session_usage(session, "a job that was submitted is planned as it is");
    if (counts && read_counts(counts, &plan, &why))
        return rb_session_usage(session, "--devices %s", why.text);
    err = path ? look_at_file(&plan, path, overrides, n, &why)
               : look_at_job(session, &plan, arguments->word[0], &why);
    if (!err && path)
        err = look_for_place(&plan, &why);
    if (!err)
        err = look(&plan, &why);
    if (!err)
        err = search(&plan, &why);
    if (!err && svg)
        err = draw(session, &plan, svg, &why);
    if (!err) {
        all = report(&plan);
        if (session->format == RB_FORMAT_TABLE)
            rb_plan_page(session, all);
        else
            rb_session_print(session, all);
        json_decref(all);
    }
    done(&plan);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
