/* SPDX-License-Identifier: Apache-2.0 */
/* The reference models at their own size on one device, as a worker trains them.
 *
 * usage: train CASE[@BATCH] MICROBATCHES [profile]
 *
 * Alone it answers each line "N" on stdin with N steps' times, for each the ms on the core and the
 * ms by the clock: one half of tests/bench/train.py, which runs PyTorch in turn with it.
 *
 * The profile says where a step's time goes, by operator, in the thread's own time.  A floor is the
 * larger of an operator's products at the speed of a large matrix product and its bytes at the
 * speed of a large copy, both measured in the same run. */
#include "base/arena.h"
#include "base/clock.h"
#include "tests/bench/cases.h"
#include "tests/bench/floor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM = 4, PROFILED = 15, SHOWN = 10 };

static void serve(struct bench_job *job)
{
    struct rb_step_result result;
    long pages = 0;
    FILE *file;
    int n;

    for (int i = 0; i < WARM; i++)
        bench_job_step(job, &result);
    file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        exit(1);
    fclose(file);
    printf("ready %ld\n", pages * sysconf(_SC_PAGESIZE) / 1048576);
    fflush(stdout);
    while (scanf("%d", &n) == 1) {
        for (int i = 0; i < n; i++) {
            uint64_t wall = rb_clock_ns(), start = bench_clock_ns();

            bench_job_step(job, &result);
            start = bench_clock_ns() - start;
            printf("%.3f %.3f ", (double)start / 1e6, (double)(rb_clock_ns() - wall) / 1e6);
        }
        printf("\n");
        fflush(stdout);
    }
}

/* ---- Profile --------------------------------------------------------------------------------*/

/* Instructions of one operator; the places behind the operators are parts of a step beside them. */
struct share {
    const char *name;
    double ns, floor;
    uint32_t runs;
};
enum { BATCH = RB_OP_COUNT, ADDING, REST, SHARES };

struct profile {
    struct bench_job *job;
    const struct rb_runner *runner;
    size_t next;
    uint64_t at;
    bool first; /* microbatch of the step */
    double *ns; /* by instruction, of one step */
    double adding;
};

static void after_instruction(int instruction, void *context)
{
    struct profile *p = context;
    struct rb_model *model = p->job->model;
    uint64_t now = bench_clock_ns();

    p->ns[instruction] += (double)(now - p->at);
    p->at = now;
    for (; p->next < p->runner->message->n_contributions &&
           p->runner->contributions[p->next]->after <= (uint32_t)instruction + 1;
         p->next++) {
        const Rb__Contribution *one = p->runner->contributions[p->next];
        const Rb__Variable *variable = model->message->variables[one->variable];

        (p->first ? rb_fixed_set : rb_fixed_add)(
            model->device, model->local + variable->offset,
            rb_program_tensor(p->runner->program, (int)one->tensor), (size_t)variable->elements, 1,
            model->exponents[one->variable].exponent, model->limits[one->variable],
            &model->largest[one->variable], &model->overflow[one->variable]);
        now = bench_clock_ns();
        p->adding += (double)(now - p->at);
        p->at = now;
    }
}

/* The microbatches of a step; then a whole step, so that the next one is another. */
static void profile_step(struct profile *p, double *ret_batch, double *ret_whole)
{
    struct rb_model *model = p->job->model;
    const Rb__Model *message = model->message;
    struct rb_step_result result;
    uint64_t start;

    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    *ret_batch = 0;
    for (uint32_t i = 0; i < model->microbatches; i++) {
        struct rb_key key = {message->seed, (uint64_t)model->state.level, i};
        struct rb_batch batch =
            rb_batch_of(message->global_batch, message->micro_batch, model->state.level, i);

        p->runner = i + 1 == model->microbatches ? model->last_runner : model->runner;
        p->next = 0;
        p->first = i == 0;
        start = bench_clock_ns();
        rb_batch_fill(&p->runner->slots, model->train, message->seed, &batch);
        p->at = bench_clock_ns();
        *ret_batch += (double)(p->at - start);
        rb_program_run(p->runner->program, &key, NULL, after_instruction, p);
    }
    start = bench_clock_ns();
    bench_job_step(p->job, &result);
    *ret_whole = (double)(bench_clock_ns() - start);
}

static int by_time(const void *a, const void *b)
{
    const struct share *x = a, *y = b;

    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_shares(struct share *shares, double whole)
{
    double floors = 0;

    for (int i = 0; i < SHARES; i++)
        floors += shares[i].floor;
    qsort(shares, SHARES, sizeof *shares, by_time);
    printf("%-22s %9s %6s %9s %7s %6s\n", "", "ms", "%", "floor ms", "times", "calls");
    for (int i = 0; i < SHOWN && shares[i].ns > 0; i++) {
        printf("%-22s %9.3f %6.1f", shares[i].name, shares[i].ns / 1e6, 100 * shares[i].ns / whole);
        if (shares[i].floor > 0)
            printf(" %9.3f %7.1f %6u", shares[i].floor / 1e6, shares[i].ns / shares[i].floor,
                   shares[i].runs);
        printf("\n");
    }
    printf("%-22s %9.3f %6.1f %9.3f %7.2f\n", "a step", whole / 1e6, 100.0, floors / 1e6,
           whole / floors);
}

/* The slowest instructions against their floors. */
static void print_slow(const Rb__Program *program, const double *ns,
                       const struct bench_speed *speed, uint32_t microbatches)
{
    for (int shown = 0; shown < SHOWN; shown++) {
        size_t worst = 0;
        double lost = 0;
        static bool seen[1 << 16];

        for (size_t i = 0; i < program->n_instructions && i < RB_COUNT(seen); i++) {
            double over = ns[i] - microbatches * bench_floor_of(program, i, speed);

            if (!seen[i] && over > lost) {
                lost = over;
                worst = i;
            }
        }
        if (lost <= 0)
            break;
        seen[worst] = true;
        printf("%9.3f ms over %9.3f: ", lost / 1e6, (ns[worst] - lost) / 1e6);
        bench_floor_print(program, worst);
    }
}

static void profile(struct bench_job *job)
{
    const struct rb_model *model = job->model;
    const Rb__Program *program = model->runner->message;
    size_t n = program->n_instructions;
    struct profile p = {.job = job, .ns = rb_alloc((n + 1) * sizeof(double))};
    double *runs = rb_alloc((n + 3) * PROFILED * sizeof(double)), rest;
    struct share shares[SHARES] = {[BATCH] = {.name = "(samples)"},
                                   [ADDING] = {.name = "(fixed-point sums)"},
                                   [REST] = {.name = "(reduce, vote, update)"}};
    struct bench_speed speed;
    struct rb_step_result result;

    for (int i = 0; i < WARM; i++)
        bench_job_step(job, &result);
    bench_speed_measure(model->device, &speed);
    for (int r = 0; r < PROFILED; r++) {
        double batch, whole;

        memset(p.ns, 0, n * sizeof *p.ns);
        p.adding = 0;
        profile_step(&p, &batch, &whole);
        for (size_t i = 0; i < n; i++)
            runs[i * PROFILED + (size_t)r] = p.ns[i];
        runs[n * PROFILED + (size_t)r] = batch;
        runs[(n + 1) * PROFILED + (size_t)r] = p.adding;
        runs[(n + 2) * PROFILED + (size_t)r] = whole;
    }
    for (size_t i = 0; i < n; i++) {
        struct share *share = &shares[program->instructions[i]->operator_];

        p.ns[i] = bench_median(runs + i * PROFILED, PROFILED);
        share->name = rb_op_info(program->instructions[i]->operator_)->name;
        share->ns += p.ns[i];
        share->floor += model->microbatches * bench_floor_of(program, i, &speed);
        share->runs += model->microbatches;
    }
    shares[BATCH].ns = bench_median(runs + n * PROFILED, PROFILED);
    shares[ADDING].ns = bench_median(runs + (n + 1) * PROFILED, PROFILED);
    rest = bench_median(runs + (n + 2) * PROFILED, PROFILED);
    for (int i = 0; i < REST; i++)
        shares[REST].ns += shares[i].ns;
    shares[REST].ns = rest > shares[REST].ns ? rest - shares[REST].ns : 0;
    printf("%s\nproducts %.1f GFLOP/s, copy %.1f GB/s (read and written)\n", job->summary,
           speed.flops, speed.bytes);
    print_shares(shares, rest);
    print_slow(program, p.ns, &speed, model->microbatches);
    free(p.ns);
    free(runs);
}

/* The case that `text` names, with the batch behind its "@". */
static bool find_case(const char *text, struct bench_case *ret_case)
{
    size_t name = strcspn(text, "@");

    for (size_t i = 0; i < bench_n_train_cases; i++) {
        const struct bench_case *one = &bench_train_cases[i];

        if (strlen(one->name) != name || strncmp(text, one->name, name) != 0)
            continue;
        *ret_case = *one;
        if (text[name])
            ret_case->batch = atoll(text + name + 1);
        return ret_case->batch > 0;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct bench_case found;
    struct bench_job job;
    int64_t microbatches = argc > 2 ? atoll(argv[2]) : 1;

    if (argc < 2 || !find_case(argv[1], &found) || microbatches < 1 || microbatches > found.batch) {
        fprintf(stderr, "usage: train gpt|mlp|cnn[@BATCH] MICROBATCHES [profile]\n");
        return 2;
    }
    bench_job_open(&found, (found.batch + microbatches - 1) / microbatches, &job);
    if (argc > 3) {
        bench_cpu_print();
        profile(&job);
    } else {
        serve(&job);
    }
    bench_job_close(&job);
    return 0;
}
