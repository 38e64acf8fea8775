/* SPDX-License-Identifier: Apache-2.0 */
/* The reference models at their own size on one device, trained as a worker trains them.
 *
 * usage: train CASE[@BATCH][+bf16][=MODEL.onnx] MICROBATCHES [profile]
 *
 * Without `profile` it answers each line "N" on stdin with N steps' times, for each the ms on the
 * core and the ms by the clock: one half of tests/bench/train.py, which runs PyTorch in turn with
 * it.
 *
 * The profile says where a step's time goes, by operator, in the thread's own time.  A floor is the
 * larger of an operator's products at the speed of a large matrix product and its bytes at the
 * speed of a large copy, both measured in the same run. */
#include "base/arena.h"
#include "base/clock.h"
#include "proto/work.h"
#include "tests/bench/cases.h"
#include "worker/timing/profile.h"

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

/* A step cut up: its instructions, and the work beside them.  Its sums go where those of the step
 * before are: the sums of the next step will be there, and the other array takes no memory. */
struct cut {
    struct bench_job *job;
    const struct rb_runner *runner;
    struct rb_profile *profile;
    size_t next;
    uint32_t microbatch; /* of the step */
    double batch, adding;
};

static void after_instruction(int instruction, void *context)
{
    struct cut *cut = context;
    struct rb_model *model = cut->job->model;

    rb_profile_instruction(cut->profile, instruction);
    for (; cut->next < cut->runner->message->n_contributions &&
           cut->runner->contributions[cut->next]->after <= (uint32_t)instruction + 1;
         cut->next++) {
        const Rb__Contribution *one = cut->runner->contributions[cut->next];
        struct rb_fixed into = rb_model_summand(model, one, cut->microbatch);

        into.sum = model->reduced + (into.sum - model->local);
        into.fresh = cut->microbatch == 0 && one->first == 0;
        rb_program_add(cut->runner->program, (int)one->tensor, &into);
        cut->adding += rb_profile_pass(cut->profile);
    }
}

/* The microbatches of a step; then a whole step, so that the next one differs.  Returns the ns of
 * the whole step. */
static double cut_step(struct cut *cut)
{
    struct rb_model *model = cut->job->model;
    const Rb__Model *message = model->message;
    struct rb_step_result result;

    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    cut->batch = cut->adding = 0;
    for (uint32_t i = 0; i < model->microbatches; i++) {
        struct rb_key key = {message->seed, (uint64_t)model->state.level, i};
        struct rb_batch batch =
            rb_batch_of(message->global_batch, message->micro_batch, model->state.level, i);

        cut->runner = i + 1 == model->microbatches ? model->last_runner : model->runner;
        cut->next = 0;
        cut->microbatch = i;
        rb_profile_pass(cut->profile);
        rb_batch_fill(&cut->runner->slots, model->train, message->seed, &batch);
        cut->batch += rb_profile_pass(cut->profile);
        rb_program_run(cut->runner->program, &key, NULL, after_instruction, cut);
    }
    rb_profile_end(cut->profile);
    rb_profile_pass(cut->profile);
    bench_job_step(cut->job, &result);
    return rb_profile_pass(cut->profile);
}

static void print_row(const char *name, double ns, double whole, double floor, uint32_t calls)
{
    printf("%-22s %9.3f %6.1f", name, ns / 1e6, 100 * ns / whole);
    if (floor > 0)
        printf(" %9.3f %7.1f %6u", floor / 1e6, ns / floor, calls);
    printf("\n");
}

static void print_rows(const struct rb_profile *profile, const struct rb_profile_speed *speed,
                       const double beside[3], double whole, uint32_t microbatches)
{
    static const char *const names[] = {"(samples)", "(fixed-point sums)",
                                        "(reduce, vote, update)"};
    size_t n;
    struct rb_profile_row *rows = rb_profile_rows(profile, speed, &n);
    double floors = 0, rest = whole;

    for (size_t i = 0; i < n; i++) {
        floors += microbatches * rows[i].floor;
        rest -= rows[i].ns;
    }
    printf("%-22s %9s %6s %9s %7s %6s\n", "", "ms", "%", "floor ms", "times", "calls");
    for (size_t i = 0; i < n && i < SHOWN; i++)
        print_row(rows[i].name, rows[i].ns, whole, microbatches * rows[i].floor,
                  microbatches * rows[i].calls);
    for (int i = 0; i < 3; i++)
        print_row(names[i], i < 2 ? beside[i] : rest - beside[0] - beside[1], whole, 0, 0);
    printf("%-22s %9.3f %6.1f %9.3f %7.2f\n", "a step", whole / 1e6, 100.0, floors / 1e6,
           whole / floors);
    free(rows);
}

/* The slowest instructions against their floors. */
static void print_slow(const struct rb_profile *profile, const Rb__Program *program,
                       const struct rb_profile_speed *speed, uint32_t microbatches)
{
    size_t n;
    struct rb_profile_loss *losses = rb_profile_losses(profile, speed, microbatches, &n);

    for (size_t i = 0; i < n && i < SHOWN; i++) {
        struct rb_buffer text = {0};

        rb_work_text(program, losses[i].instruction, &text);
        printf("%9.3f ms over %9.3f: %.*s\n", losses[i].lost / 1e6,
               (losses[i].ns - losses[i].lost) / 1e6, (int)text.size, (char *)text.data);
        rb_buffer_done(&text);
    }
    free(losses);
}

static void profile(struct bench_job *job)
{
    const struct rb_model *model = job->model;
    const Rb__Program *program = model->runner->message;
    struct cut cut = {.job = job, .profile = rb_profile_new(program)};
    double batch[PROFILED], adding[PROFILED], whole[PROFILED], beside[3];
    struct rb_profile_speed speed;
    struct rb_step_result result;
    struct rb_why why;

    for (int i = 0; i < WARM; i++)
        bench_job_step(job, &result);
    bench_check(rb_profile_measure(model->device, program, &speed, &why), &why);
    for (int r = 0; r < PROFILED; r++) {
        whole[r] = cut_step(&cut);
        batch[r] = cut.batch;
        adding[r] = cut.adding;
    }
    beside[0] = rb_profile_median(batch, PROFILED);
    beside[1] = rb_profile_median(adding, PROFILED);
    printf("%s\nproducts %.1f GFLOP/s, copy %.1f GB/s (read and written)\n", job->summary,
           speed.flops, speed.bytes);
    print_rows(cut.profile, &speed, beside, rb_profile_median(whole, PROFILED),
               model->microbatches);
    print_slow(cut.profile, program, &speed, model->microbatches);
    rb_profile_free(cut.profile);
}

/* The case that `text` names, with the batch behind its "@" and the precision behind its "+". */
static bool find_case(const char *text, struct bench_case *ret_case)
{
    size_t name = strcspn(text, "@+=");
    const char *file = strchr(text, '=');
    bool narrow =
        file ? file - text > 5 && strncmp(file - 5, "+bf16", 5) == 0 : strchr(text, '+') != NULL;

    for (size_t i = 0; i < bench_n_train_cases; i++) {
        const struct bench_case *one = &bench_train_cases[i];

        if (strlen(one->name) != name || strncmp(text, one->name, name) != 0)
            continue;
        *ret_case = *one;
        if (narrow)
            ret_case->precision = "bf16";
        if (file)
            ret_case->onnx = file + 1;
        if (text[name] == '@')
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
        fprintf(
            stderr,
            "usage: train gpt|mlp|cnn|resnet[@BATCH][+bf16][=MODEL.onnx] MICROBATCHES [profile]\n");
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
