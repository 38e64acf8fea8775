/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a step on each of several workers: one process and one core each, as far as there
 * are cores, a real group, no rubatod.
 *
 * usage: parts CASE MICROBATCHES WORKERS [STEPS]
 *
 * A line of JSON a rank: medians over steps, in ms, of the whole and of its parts, each as [time on
 * the core, time by the clock].  Waiting for slower ranks counts in the parts that wait: above all
 * in `reduce`, which comes first.  The linker puts the functions below around those of the product,
 * which knows nothing of being measured. */
#include "base/arena.h"
#include "base/clock.h"
#include "tests/bench/cases.h"
#include "tests/bench/job.h"
#include "worker/step/update.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM = 4, STEPS = 40 };
enum part { STEP, COMPUTE, ADD, REDUCE, VOTE, UPDATE, PARTS };

static const char *const names[] = {"step", "compute", "add", "reduce", "vote", "update"};

struct span {
    uint64_t core, wall;
};

/* Times of the step under way; one array for the process, since wrapped functions have no
 * context. */
static struct span spent[PARTS];

static struct span start(void)
{
    return (struct span){bench_clock_ns(), rb_clock_ns()};
}

static void stop(enum part part, struct span from)
{
    spent[part].wall += rb_clock_ns() - from.wall;
    spent[part].core += bench_clock_ns() - from.core;
}

/* ---- Around the product's --------------------------------------------------------------------*/

int __real_rb_program_run(struct rb_program *program, const struct rb_key *key,
                          const atomic_bool *stop_at, void (*after)(int instruction, void *context),
                          void *context);
int __wrap_rb_program_run(struct rb_program *program, const struct rb_key *key,
                          const atomic_bool *stop_at, void (*after)(int instruction, void *context),
                          void *context);
int __real_rb_program_again(struct rb_program *program, const struct rb_key *key,
                            const atomic_bool *stop_at,
                            void (*after)(int instruction, void *context), void *context);
int __wrap_rb_program_again(struct rb_program *program, const struct rb_key *key,
                            const atomic_bool *stop_at,
                            void (*after)(int instruction, void *context), void *context);
int __real_rb_program_run_each(struct rb_program *const *programs, int n, const struct rb_key *keys,
                               const atomic_bool *stop_at,
                               void (*after)(int instruction, void *context), void *context);
int __wrap_rb_program_run_each(struct rb_program *const *programs, int n, const struct rb_key *keys,
                               const atomic_bool *stop_at,
                               void (*after)(int instruction, void *context), void *context);
void __real_rb_fixed_add(struct rb_device *device, int32_t *sums, const float *values, size_t n,
                         float weight, int exponent, int32_t limit, uint32_t *largest,
                         bool *overflow);
void __wrap_rb_fixed_add(struct rb_device *device, int32_t *sums, const float *values, size_t n,
                         float weight, int exponent, int32_t limit, uint32_t *largest,
                         bool *overflow);
int __real_rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                       size_t n, struct rb_why *why);
int __wrap_rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                       size_t n, struct rb_why *why);
int __real_rb_coll_gather(struct rb_coll *coll, uint64_t tag, const void *mine, void *all,
                          size_t bytes, struct rb_why *why);
int __wrap_rb_coll_gather(struct rb_coll *coll, uint64_t tag, const void *mine, void *all,
                          size_t bytes, struct rb_why *why);
int __real_rb_vote_decide(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                          int64_t level, uint32_t attempt, const struct rb_exponent *exponents,
                          const int32_t *limits, struct rb_vote_decision *ret_decision,
                          uint32_t *ret_largest, struct rb_why *why);
int __wrap_rb_vote_decide(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                          int64_t level, uint32_t attempt, const struct rb_exponent *exponents,
                          const int32_t *limits, struct rb_vote_decision *ret_decision,
                          uint32_t *ret_largest, struct rb_why *why);
struct rb_update __real_rb_update_commit(struct rb_model *model,
                                         const struct rb_vote_decision *decision, bool squared);
struct rb_update __wrap_rb_update_commit(struct rb_model *model,
                                         const struct rb_vote_decision *decision, bool squared);

/* Adding runs within computing, so its time is taken off. */
static int computed(struct span from, struct span added, int err)
{
    stop(COMPUTE, from);
    spent[COMPUTE].core -= spent[ADD].core - added.core;
    spent[COMPUTE].wall -= spent[ADD].wall - added.wall;
    return err;
}

int __wrap_rb_program_run(struct rb_program *program, const struct rb_key *key,
                          const atomic_bool *stop_at, void (*after)(int instruction, void *context),
                          void *context)
{
    struct span from = start(), added = spent[ADD];

    return computed(from, added, __real_rb_program_run(program, key, stop_at, after, context));
}

int __wrap_rb_program_again(struct rb_program *program, const struct rb_key *key,
                            const atomic_bool *stop_at,
                            void (*after)(int instruction, void *context), void *context)
{
    struct span from = start(), added = spent[ADD];

    return computed(from, added, __real_rb_program_again(program, key, stop_at, after, context));
}

int __wrap_rb_program_run_each(struct rb_program *const *programs, int n, const struct rb_key *keys,
                               const atomic_bool *stop_at,
                               void (*after)(int instruction, void *context), void *context)
{
    struct span from = start(), added = spent[ADD];

    return computed(from, added,
                    __real_rb_program_run_each(programs, n, keys, stop_at, after, context));
}

void __wrap_rb_fixed_add(struct rb_device *device, int32_t *sums, const float *values, size_t n,
                         float weight, int exponent, int32_t limit, uint32_t *largest,
                         bool *overflow)
{
    struct span from = start();

    __real_rb_fixed_add(device, sums, values, n, weight, exponent, limit, largest, overflow);
    stop(ADD, from);
}

int __wrap_rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                       size_t n, struct rb_why *why)
{
    struct span from = start();
    int err = __real_rb_coll_sum(coll, tag, in, out, n, why);

    stop(REDUCE, from);
    return err;
}

int __wrap_rb_coll_gather(struct rb_coll *coll, uint64_t tag, const void *mine, void *all,
                          size_t bytes, struct rb_why *why)
{
    struct span from = start();
    int err = __real_rb_coll_gather(coll, tag, mine, all, bytes, why);

    stop(VOTE, from);
    return err;
}

int __wrap_rb_vote_decide(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                          int64_t level, uint32_t attempt, const struct rb_exponent *exponents,
                          const int32_t *limits, struct rb_vote_decision *ret_decision,
                          uint32_t *ret_largest, struct rb_why *why)
{
    struct span from = start();
    int err = __real_rb_vote_decide(shape, records, ranks, level, attempt, exponents, limits,
                                    ret_decision, ret_largest, why);

    stop(VOTE, from);
    return err;
}

struct rb_update __wrap_rb_update_commit(struct rb_model *model,
                                         const struct rb_vote_decision *decision, bool squared)
{
    struct span from = start();
    struct rb_update done = __real_rb_update_commit(model, decision, squared);

    stop(UPDATE, from);
    return done;
}

/* ---- A worker --------------------------------------------------------------------------------*/

static void stay_on(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void work(struct bench_job *job, int rank, int size, int steps)
{
    double *core[PARTS], *wall[PARTS];
    struct rb_step_result result;

    stay_on(rank % (int)sysconf(_SC_NPROCESSORS_ONLN));
    bench_job_load(job, rank, size);
    for (int p = 0; p < PARTS; p++) {
        core[p] = rb_alloc((size_t)steps * sizeof(double));
        wall[p] = rb_alloc((size_t)steps * sizeof(double));
    }
    for (int i = -WARM; i < steps; i++) {
        struct span from;

        memset(spent, 0, sizeof spent);
        from = start();
        bench_job_step(job, &result);
        stop(STEP, from);
        for (int p = 0; i >= 0 && p < PARTS; p++) {
            core[p][i] = (double)spent[p].core / 1e6;
            wall[p][i] = (double)spent[p].wall / 1e6;
        }
    }
    printf("{\"rank\": %d", rank);
    for (int p = 0; p < PARTS; p++)
        printf(", \"%s\": [%.4f, %.4f]", names[p], bench_median(core[p], (size_t)steps),
               bench_median(wall[p], (size_t)steps));
    printf("}\n");
    fflush(stdout);
    bench_job_unload(job);
    exit(0);
}

int main(int argc, char **argv)
{
    const struct bench_case *found =
        argc > 1 ? bench_case_find(bench_train_cases, bench_n_train_cases, argv[1]) : NULL;
    int64_t microbatches = argc > 2 ? atoll(argv[2]) : 0;
    int workers = argc > 3 ? atoi(argv[3]) : 0, steps = argc > 4 ? atoi(argv[4]) : STEPS;
    int status, failed = 0;
    struct bench_job job;

    if (!found || microbatches < 1 || microbatches > found->batch || workers < 1 ||
        workers > BENCH_MAX_WORKERS || workers > microbatches || steps < 1) {
        fprintf(stderr, "usage: parts gpt|mlp|cnn MICROBATCHES WORKERS [STEPS]\n");
        return 2;
    }
    bench_job_make(found, (found->batch + microbatches - 1) / microbatches, &job);
    fflush(NULL);
    for (int rank = 0; rank < workers; rank++)
        if (!fork())
            work(&job, rank, workers, steps);
    while (wait(&status) > 0)
        failed |= status != 0;
    bench_job_remove(&job);
    return failed;
}
