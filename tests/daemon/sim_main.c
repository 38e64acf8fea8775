/* SPDX-License-Identifier: Apache-2.0 */
/* usage: sim --seed N [--trace] | --seeds FROM:TO | --breaks N   [--break NAME]
 *
 * --seed     one story; --trace tells it: when, who, what
 * --seeds    many, until the first that goes wrong; a summary
 * --break    with a rule broken: then a story that goes wrong is what is looked for
 * --breaks   that each break is found, within so many seeds */
#include "sim.h"
#include "sim_store.h"
#include "sim_worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_US = 900000000, REPLAY = 64 };

static const struct {
    const char *word, *text;
} breaks[SIM_BREAKS_N] = {[SIM_WHOLE] = {"none", "nothing is broken"},
#define X(name, word, text) [SIM_##name] = {word, text},
                          SIM_BREAKS(X)
#undef X
};

static void make_cluster(struct sim *sim)
{
    uint32_t devices = 0;

    sim->n_nodes = 1 + sim_chance(sim, SIM_NODES);
    for (size_t n = 0; n < sim->n_nodes; n++) {
        struct sim_node *node = &sim->nodes[n];

        node->name[0] = (char)('a' + n);
        node->devices = 1 + (uint32_t)sim_chance(sim, SIM_DEVICES);
        devices += node->devices;
    }
    if (devices < 2)
        sim->nodes[0].devices = 2;
    sim->n_jobs = 1 + (sim_chance(sim, 3) == 0) + (sim_chance(sim, 6) == 0);
    for (size_t j = 0; j < sim->n_jobs; j++) {
        struct sim_job *job = &sim->jobs[j];

        snprintf(job->id, sizeof job->id, "j%zu", j + 1);
        job->steps = 10 + (int64_t)sim_chance(sim, SIM_STEPS - 10);
        job->microbatches = 1 + (uint32_t)sim_chance(sim, SIM_MICROBATCHES);
        job->step_us = sim_between(sim, 5000, 150000);
        if (!sim_chance(sim, 6)) { /* much may happen between two votes */
            job->step_us *= 10;
            job->steps = 10 + job->steps / 10;
        }
        job->replicas = sim_chance(sim, 2) ? 2 : (uint32_t)sim_chance(sim, 2);
        job->open = !job->replicas && sim_chance(sim, 2);
        job->model = sim_model();
        job->checkpoint_every = sim_chance(sim, 2) ? 1 + (int64_t)sim_chance(sim, 40) : 0;
    }
}

static void live(struct sim *sim, uint64_t until)
{
    while (!sim->failure[0] && sim->now < until && sim_next(sim))
        ;
}

static void tell_story(struct sim *sim)
{
    uint64_t troubled = sim_between(sim, 5000000, 60000000), until;

    sim_users_begin(sim);
    sim_faults_begin(sim);
    for (size_t n = 0; n < sim->n_nodes; n++)
        sim_node_start(sim, &sim->nodes[n]);
    live(sim, troubled);
    live(sim, sim->calm);
    sim_faults_heal(sim);
    sim_users_settle(sim);
    until = sim->now + PATIENCE_US;
    while (!sim->failure[0] && sim->now < until && !sim_check_over(sim))
        live(sim, sim->now + 200000);
    if (!sim->failure[0] && !sim_check_over(sim))
        sim_check_liveness(sim);
    if (!sim->failure[0])
        sim_check_ends(sim);
}

/* True: it went well. */
static bool run(uint64_t seed, enum sim_break broken, bool traces, struct sim *ret_sum)
{
    struct sim *sim = rb_alloc(sizeof *sim);
    bool well;

    sim->seed = seed;
    sim->random = seed * UINT64_C(0x632be59bd9b4e019);
    sim->broken = broken;
    sim->traces = traces;
    sim_store_begin(sim);
    make_cluster(sim);
    tell_story(sim);
    well = !sim->failure[0];
    if (!well)
        snprintf(ret_sum->failure, sizeof ret_sum->failure, "%s", sim->failure);
    for (size_t k = 0; k < RB_COUNT(sim->seen); k++)
        ret_sum->seen[k] += sim->seen[k] > 0;
    ret_sum->happened += sim->happened;
    ret_sum->random = sim->random ^ sim->now; /* two runs of one story agree in this */
    ret_sum->faults += sim->faults;
    ret_sum->changes += sim->changes;
    ret_sum->now += sim->now;
    ret_sum->succeeded += sim->succeeded;
    ret_sum->failed_jobs += sim->failed_jobs;
    ret_sum->others += sim->others;
    ret_sum->foreseen += sim->foreseen;
    sim_clients_done(sim);
    sim_store_end(sim);
    sim_confs_done(sim);
    for (size_t j = 0; j < sim->n_jobs; j++)
        rb__model__free_unpacked(sim->jobs[j].model, NULL);
    rb_arena_done(&sim->arena);
    free(sim->heap);
    free(sim);
    return well;
}

static void summarize(const struct sim *sum, uint64_t seeds, double seconds)
{
    printf("%" PRIu64 " seeds, %" PRIu64 " events, %u faults, %u wishes, %.0f simulated hours in "
           "%.1f s; jobs: %u succeeded, %u failed, %u cancelled; %u orders foreseen\n",
           seeds, sum->happened, sum->faults, sum->changes, (double)sum->now / 3.6e9, seconds,
           sum->succeeded, sum->failed_jobs, sum->others, sum->foreseen);
    printf("seeds with:");
    for (size_t k = 0; k < RB_COUNT(sum->seen); k++)
        printf(" %s %u", sim_kinds[k], sum->seen[k]);
    putchar('\n');
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Now and then: does a story come out the same when it is run again? */
static bool replays(uint64_t seed, enum sim_break broken, uint64_t random, struct sim *ret_sum)
{
    struct sim *again;
    bool same;

    if (seed % REPLAY)
        return true;
    again = rb_alloc(sizeof *again);
    run(seed, broken, false, again);
    same = again->random == random;
    if (!same)
        snprintf(ret_sum->failure, sizeof ret_sum->failure, "it does not replay");
    free(again);
    return same;
}

/* The first seed that goes wrong, or 0. */
static uint64_t sweep(uint64_t from, uint64_t to, enum sim_break broken, struct sim *ret_sum)
{
    for (uint64_t seed = from; seed < to; seed++)
        if (!run(seed, broken, false, ret_sum) || !replays(seed, broken, ret_sum->random, ret_sum))
            return seed;
    return 0;
}

static int find_breaks(uint64_t within)
{
    int missed = 0;

    for (int b = SIM_WHOLE + 1; b < SIM_BREAKS_N; b++) {
        struct sim *sum = rb_alloc(sizeof *sum);
        uint64_t seed = sweep(1, within + 1, (enum sim_break)b, sum);

        missed += !seed;
        if (seed)
            printf("%-10s found by seed %" PRIu64 ": %s\n", breaks[b].word, seed, sum->failure);
        else
            printf("%-10s not found within %" PRIu64 " seeds (%s)\n", breaks[b].word, within,
                   breaks[b].text);
        free(sum);
    }
    return missed != 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: sim --seed N [--trace] | --seeds FROM:TO | --breaks N   [--break NAME]\n"
            "what can be broken:\n");
    for (int b = SIM_WHOLE + 1; b < SIM_BREAKS_N; b++)
        fprintf(stderr, "  %-10s  %s\n", breaks[b].word, breaks[b].text);
    return 2;
}

struct options {
    uint64_t from, to, breaks;
    bool traces;
    enum sim_break broken;
};

static bool read_options(int argc, char **argv, struct options *ret)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(argv[i], "--trace")) {
            ret->traces = true;
            continue;
        }
        i++;
        if (!strcmp(argv[i - 1], "--seed") && sscanf(value, "%" SCNu64, &ret->from) == 1) {
            ret->to = ret->from + 1;
        } else if (!strcmp(argv[i - 1], "--breaks")) {
            ret->breaks = strtoull(value, NULL, 10);
        } else if (!strcmp(argv[i - 1], "--break")) {
            for (int b = SIM_WHOLE + 1; b < SIM_BREAKS_N; b++)
                if (!strcmp(value, breaks[b].word))
                    ret->broken = (enum sim_break)b;
            if (!ret->broken)
                return false;
        } else if (strcmp(argv[i - 1], "--seeds") != 0 ||
                   sscanf(value, "%" SCNu64 ":%" SCNu64, &ret->from, &ret->to) != 2) {
            return false;
        }
    }
    return ret->to > ret->from || ret->breaks;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct sim *sum;
    double began = seconds();
    uint64_t seed = 0;

    if (!read_options(argc, argv, &options))
        return usage();
    if (options.breaks)
        return find_breaks(options.breaks);
    sum = rb_alloc(sizeof *sum);
    if (!options.traces)
        seed = sweep(options.from, options.to, options.broken, sum);
    else if (!run(options.from, options.broken, true, sum))
        seed = options.from;
    if (seed)
        printf("seed %" PRIu64 ": %s\n", seed, sum->failure);
    summarize(sum, (seed ? seed + 1 : options.to) - options.from, seconds() - began);
    free(sum);
    return seed != 0;
}
