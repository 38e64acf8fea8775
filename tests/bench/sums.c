/* SPDX-License-Identifier: Apache-2.0 */
/* What fixed-point sums cost and how wrong they are, beside float32 sums of the same gradients.
 *
 * usage: sums [CASE [MICROBATCHES [STEPS]]]     one case, or all of them
 *        sums add                               the cost of adding alone, by size
 *
 * Errors are against sums in double, |difference| / |sum|, over all trained variables of a step and
 * over each.  Then the same training is run on float32 and on double sums, and the loss curves are
 * compared.  Costs are medians of attempts that alternate between the two kinds of sum, in time
 * of the thread's own, so that other processes show only through the caches. */
#include "base/arena.h"
#include "tests/bench/cases.h"
#include "tests/bench/three.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 31, ADD_ROUNDS = 101, CHECKED_STEPS = 3 };

/* ---- Errors ---------------------------------------------------------------------------------*/

/* Errors of the fixed and of the float32 sum by variable (the last row: all of them) and step. */
struct errors {
    int64_t steps;
    uint32_t variables;
    double *of[2];
};

static double *row_of(const struct errors *errors, int sum, uint32_t variable)
{
    return errors->of[sum] + (size_t)variable * (size_t)errors->steps;
}

static void note(struct errors *errors, const struct three *three, int64_t step)
{
    for (int sum = THREE_FIXED; sum <= THREE_PLAIN; sum++)
        for (uint32_t v = 0; v <= errors->variables; v++)
            row_of(errors, sum, v)[step] =
                three_error(three, (enum three_sum)sum, v < errors->variables ? (int)v : -1);
}

static void report(const struct errors *errors, const Rb__Model *message)
{
    static const char *const names[] = {"fixed-point", "float32"};

    for (int sum = THREE_FIXED; sum <= THREE_PLAIN; sum++) {
        double *all = row_of(errors, sum, errors->variables), worst = 0;
        uint32_t named = 0;
        double median = bench_median(all, (size_t)errors->steps);

        for (uint32_t v = 0; v < errors->variables; v++) {
            double one = bench_median(row_of(errors, sum, v), (size_t)errors->steps);

            if (one > worst) {
                worst = one;
                named = v;
            }
        }
        printf("  %-11s sums: error %.1e in the median, %.1e in the worst step; worst variable "
               "%s: %.1e, %.1e\n",
               names[sum], median, all[errors->steps - 1], message->variables[named]->name, worst,
               row_of(errors, sum, named)[errors->steps - 1]);
    }
}

/* ---- Training -------------------------------------------------------------------------------*/

static void train_fixed(struct three *three, double *losses)
{
    const Rb__Model *message = three->job->model->message;
    struct errors errors = {message->steps, (uint32_t)message->n_variables, {NULL}};
    size_t cells = (size_t)(errors.variables + 1) * (size_t)errors.steps;
    uint32_t first = 0, redone = 0;

    errors.of[THREE_FIXED] = rb_alloc(cells * sizeof(double));
    errors.of[THREE_PLAIN] = rb_alloc(cells * sizeof(double));
    three->wanted = THREE_ALL;
    for (int64_t step = 0; step < message->steps; step++) {
        struct rb_vote_decision decision;
        uint32_t again = three_settle(three, &decision);

        *(step ? &redone : &first) += again;
        losses[step] = three->loss;
        note(&errors, three, step);
        three_commit(three, &decision, step < CHECKED_STEPS);
    }
    report(&errors, message);
    printf("  steps redone: first step %u, the other %lld: %u\n", first,
           (long long)message->steps - 1, redone);
    free(errors.of[THREE_FIXED]);
    free(errors.of[THREE_PLAIN]);
}

static void train_other(struct three *three, enum three_sum sum, double *losses)
{
    bench_job_reset(three->job);
    three->wanted = 1u << sum;
    for (int64_t step = 0; step < three->job->model->message->steps; step++) {
        struct rb_vote_decision decision;

        three_attempt(three, &decision);
        losses[step] = three->loss;
        three_apply(three, sum);
    }
}

/* The largest relative difference of two loss curves in the first `steps`. */
static double apart(const double *a, const double *b, int64_t steps)
{
    double most = 0;

    for (int64_t i = 0; i < steps; i++)
        most = fmax(most, fabs(a[i] - b[i]) / fabs(b[i]));
    return most;
}

static void compare(struct three *three)
{
    int64_t steps = three->job->model->message->steps, part = steps < 50 ? steps : 50;
    double *curve[THREE_SUMS];

    for (int sum = 0; sum < THREE_SUMS; sum++)
        curve[sum] = rb_alloc((size_t)steps * sizeof(double));
    train_fixed(three, curve[THREE_FIXED]);
    train_other(three, THREE_PLAIN, curve[THREE_PLAIN]);
    train_other(three, THREE_EXACT, curve[THREE_EXACT]);
    printf("  loss %.4f -> %.4f; largest relative difference of the curves, first %lld steps | all "
           "%lld: fixed to float32 %.1e | %.1e, fixed to double %.1e | %.1e, float32 to double "
           "%.1e | %.1e\n",
           curve[0][0], curve[0][steps - 1], (long long)part, (long long)steps,
           apart(curve[THREE_FIXED], curve[THREE_PLAIN], part),
           apart(curve[THREE_FIXED], curve[THREE_PLAIN], steps),
           apart(curve[THREE_FIXED], curve[THREE_EXACT], part),
           apart(curve[THREE_FIXED], curve[THREE_EXACT], steps),
           apart(curve[THREE_PLAIN], curve[THREE_EXACT], part),
           apart(curve[THREE_PLAIN], curve[THREE_EXACT], steps));
    for (int sum = 0; sum < THREE_SUMS; sum++)
        free(curve[sum]);
}

/* ---- Costs ----------------------------------------------------------------------------------*/

/* Attempts of one step, alternating; then whole steps. */
static void cost(struct three *three)
{
    double add[2][ROUNDS], step[ROUNDS];
    const struct rb_model *model = three->job->model;
    double elements = 0, whole, fixed, plain;
    struct rb_vote_decision decision;
    struct rb_step_result result;

    for (size_t v = 0; v < model->message->n_variables; v++)
        if (model->message->variables[v]->role != RB__VARIABLE__ROLE__FIXED)
            elements += (double)model->message->variables[v]->elements * model->microbatches;
    bench_job_reset(three->job);
    bench_job_step(three->job, &result);
    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start;

        for (int sum = THREE_FIXED; sum <= THREE_PLAIN; sum++) {
            three->wanted = 1u << sum;
            three_attempt(three, &decision);
            add[sum][i] = (double)three->ns[sum];
        }
        start = bench_clock_ns();
        bench_job_step(three->job, &result);
        step[i] = (double)(bench_clock_ns() - start);
    }
    whole = bench_median(step, ROUNDS);
    fixed = bench_median(add[THREE_FIXED], ROUNDS);
    plain = bench_median(add[THREE_PLAIN], ROUNDS);
    printf(
        "  a step %.2f ms; adding in fixed point %.3f ms (%.2f %% of it, %.2f ns an element), in "
        "float32 %.3f ms (%.2f %%, %.2f ns): %.2f times\n",
        whole / 1e6, fixed / 1e6, 100 * fixed / whole, fixed / elements, plain / 1e6,
        100 * plain / whole, plain / elements, fixed / plain);
}

/* rb_fixed_add, a float32 add and a copy on the same memory, in turn. */
static void add_sizes(void)
{
    struct rb_device *device;
    struct rb_why why;

    bench_check(rb_device_open("cpu", 0, &device, &why), &why);
    printf("ns an element: rb_fixed_add | float32 add | floor: the bytes of an add (12) at the "
           "speed of a copy\n");
    for (size_t n = (size_t)1 << 12; n <= (size_t)1 << 24; n <<= 2) {
        size_t again = n < (1u << 20) ? (1u << 20) / n : 1;
        float *g = rb_device_alloc(device, n * 4), *sum = rb_device_alloc(device, n * 4);
        int32_t *whole = rb_device_alloc(device, n * 4);
        double took[3][ADD_ROUNDS], ns[3];
        uint32_t largest = 0;
        bool overflow = false;

        if (!g || !sum || !whole)
            exit(1);
        for (size_t i = 0; i < n; i++)
            g[i] = (float)((double)(i * 2654435761u % 65536) / 65536 - 0.5);
        for (int i = 0; i < ADD_ROUNDS; i++) {
            uint64_t at[4] = {bench_clock_ns()};

            for (size_t k = 0; k < again; k++)
                rb_fixed_add(device, whole, g, n, 1, 16, INT32_MAX / 8, &largest, &overflow);
            at[1] = bench_clock_ns();
            for (size_t k = 0; k < again; k++)
                three_add_plain(sum, g, n, 1);
            at[2] = bench_clock_ns();
            for (size_t k = 0; k < again; k++) {
                memcpy(sum, g, n * 4);
                __asm__ volatile("" ::: "memory");
            }
            at[3] = bench_clock_ns();
            for (int k = 0; k < 3; k++)
                took[k][i] = (double)(at[k + 1] - at[k]) / (double)(n * again);
        }
        for (int k = 0; k < 3; k++)
            ns[k] = bench_median(took[k], ADD_ROUNDS);
        printf("  %8zu elements: %.3f | %.3f | %.3f (fixed %.2f times float32, %.2f times the "
               "floor)\n",
               n, ns[0], ns[1], 1.5 * ns[2], ns[0] / ns[1], ns[0] / (1.5 * ns[2]));
        rb_device_free(device, g);
        rb_device_free(device, sum);
        rb_device_free(device, whole);
    }
    rb_device_close(device);
}

static void run(const struct bench_case *one, int64_t microbatches)
{
    struct bench_job job;
    struct three three;

    bench_job_open(one, (one->batch + microbatches - 1) / microbatches, &job);
    printf("%s, M = %u, %lld steps: %s\n", one->name, job.model->microbatches,
           (long long)one->steps, job.summary);
    fflush(stdout);
    three_open(&job, &three);
    compare(&three);
    cost(&three);
    fflush(stdout);
    three_done(&three);
    bench_job_close(&job);
}

int main(int argc, char **argv)
{
    bench_cpu_print();
    if (argc < 2 || strcmp(argv[1], "add") == 0)
        add_sizes();
    for (size_t i = 0; i < bench_n_sums_cases; i++) {
        struct bench_case one = bench_sums_cases[i];

        if (argc > 1 && strcmp(argv[1], one.name) != 0)
            continue;
        if (argc > 3)
            one.steps = atoll(argv[3]);
        run(&one, argc > 2 ? atoll(argv[2]) : 8);
        if (argc < 2 && one.batch >= 32)
            run(&one, 32);
    }
    return 0;
}
