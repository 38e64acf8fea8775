/* SPDX-License-Identifier: Apache-2.0 */
/* How long planning takes, in the time of one core: what a coordinator and an agent do on their
 * loop.
 *
 * usage: planning [--json] JOB.yaml
 *
 * The job is compiled as at a submit, for 1,024 devices of 8 a node.  A plan is what an agent makes
 * for a configuration, and up to 16 times more for what deaths may leave of it, one a turn of its
 * loop; a choice is what a coordinator asks for when it makes a configuration and the job file
 * leaves everything open. */
#include "base/arena.h"
#include "plan/compile/compile.h"
#include "plan/replicas.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "plan/search/search.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { A_NODE = 8, MOST = 1024 };

static const char devices[] =
    "nodes: [{count: 128, devices: [{count: 8, flops: 1e13, bandwidth: 1e12}],"
    " inside: {bandwidth: 1e11, latency: 1e-6}, network: {bandwidth: 1e10, latency: 1e-5}}]";

static double core_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void check(int err, const struct rb_why *why)
{
    if (!err)
        return;
    fprintf(stderr, "planning: %s\n", why->text);
    exit(1);
}

/* For plots.py. */
static void __attribute__((format(printf, 3, 4)))
print_json(uint32_t ranks, double ms, const char *what, ...)
{
    va_list words;

    printf("{\"what\": \"");
    va_start(words, what);
    vprintf(what, words);
    va_end(words);
    printf("\", \"devices\": %" PRIu32 ", \"ms\": %.4g}\n", ranks, ms);
}

/* Everything that an agent does, except for writing the file. */
static void time_plan(const Rb__Model *model, uint32_t ranks, uint32_t stages, uint32_t copies,
                      bool json)
{
    uint32_t nodes[MOST];
    struct rb_replicas how = {copies, model->n_blocks, ranks, nodes};
    double begun = core_seconds();
    struct rb_why why = {0};
    Rb__Plan *plan = NULL;
    double ms;
    size_t size;

    for (uint32_t r = 0; r < ranks; r++)
        nodes[r] = r / A_NODE;
    check(stages ? rb_pipeline_plan(model, ranks, stages, &plan, &why)
                 : rb_schedule_data(model, ranks, &plan, &why),
          &why);
    rb_replicas_place(&how, model, plan);
    size = rb__plan__get_packed_size(plan);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size);
    rb__plan__pack(plan, bytes);
    ms = 1e3 * (core_seconds() - begun);
    if (!json)
        printf("| plan: %.60s | %" PRIu32 " | %.1f | %.1f kB |\n", plan->summary, ranks, ms,
               (double)size / 1e3);
    else if (stages)
        print_json(ranks, ms, "plan, pipeline of %" PRIu32 " stages", stages);
    else
        print_json(ranks, ms, "plan, data parallel");
    rb__plan__free_unpacked(plan, NULL);
}

static void time_choice(const Rb__JobFile *job, const Rb__Model *model,
                        const struct rb_cluster *cluster, uint32_t ranks, bool json)
{
    static const struct rb_cost_profile none;
    static const uint32_t open = 0;
    struct rb_search_how how = {.spec = job->spec,
                                .model = model,
                                .cluster = cluster,
                                .profile = &none,
                                .replicas = &open,
                                .brief = true};
    double begun = core_seconds();
    struct rb_search found;
    struct rb_why why = {0};
    double ms;

    check(rb_search_run(&how, ranks, &found, &why), &why);
    ms = 1e3 * (core_seconds() - begun);
    if (json)
        print_json(ranks, ms, "choice of how to run");
    else
        printf("| choice of %zu: %s | %" PRIu32 " | %.1f | |\n", found.n, found.candidates[0].name,
               ranks, ms);
    rb_search_done(&found);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {2, 8, 64, 256, MOST};
    struct rb_compiled compiled;
    struct rb_cluster cluster;
    struct rb_why why = {0};
    Rb__JobFile *job;
    bool json = argc > 1 && !strcmp(argv[1], "--json");

    if (argc != 2 + json) {
        fprintf(stderr, "usage: planning [--json] JOB.yaml\n");
        return 2;
    }
    check(rb_spec_read(argv[1 + json], NULL, 0, &job, &why), &why);
    check(rb_compile(job->spec, "any", &compiled, &why), &why);
    check(rb_cluster_parse("cluster", devices, strlen(devices), &cluster, &why), &why);
    job->spec->devices->max = MOST;
    if (!json)
        printf(
            "%s; %zu instructions\n\n| what | devices | ms of a core | size |\n|---|---|---|---|\n",
            compiled.summary, compiled.model->programs[0]->n_instructions);
    for (size_t i = 0; i < RB_COUNT(sizes); i++)
        time_plan(compiled.model, sizes[i], 0, 2, json);
    time_plan(compiled.model, 64, 2, 2, json);
    time_plan(compiled.model, 64, 64, 2, json);
    time_plan(compiled.model, MOST, 64, 2, json);
    for (size_t i = 0; i < RB_COUNT(sizes); i++)
        time_choice(job, compiled.model, &cluster, sizes[i], json);
    rb_cluster_done(&cluster);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
    return 0;
}
