/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training step goes on a GPU: lines of the table of tests/gpu/run.
 *
 * usage: times gpt|small|resnet=MODEL.onnx fp32|bf16
 *        times communicator RANKS
 *
 * Pieces of a cold start, whole steps, and the time of each operator beside its two floors: its
 * products at the speed of a large product and its bytes at that of a large copy, both measured
 * here.  An operator's time is that between two events (worker/timing/timing.h).  Lines are printed
 * as they come, so a run that is ended in the middle leaves what was known by then. */
#include "base/arena.h"
#include "base/clock.h"
#include "tests/bench/job.h"
#include "tests/gpu/cold.h"
#include "tests/gpu/communicator.h"
#include "worker/timing/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, STEPS = 9, SHOWN = 14 };

static const struct bench_case cases[] = {
    {
        .name = "gpt",
        .kind = "gpt",
        .settings = {"vocab=50257", "layers=12", "width=768", "heads=12", "seq=1024"},
        .data = "text",
        .seq = 1024,
        .batch = 16,
        .steps = 1000000,
        .optimizer = "type: adamw, lr: 1.0e-4",
        .device = "cuda",
    },
    {
        .name = "small", /* asking for kernels takes most of its step */
        .kind = "gpt",
        .settings = {"vocab=256", "layers=6", "width=384", "heads=6", "seq=256"},
        .data = "text",
        .seq = 256,
        .batch = 8,
        .steps = 1000000,
        .optimizer = "type: adamw, lr: 1.0e-4",
        .device = "cuda",
    },
    {
        .name = "resnet",
        .data = "classes",
        .features = {3, 64, 64},
        .batch = 256,
        .steps = 1000000,
        .optimizer = "type: sgd, lr: 1.0e-4, momentum: 0.9",
        .device = "cuda",
    },
    {
        .name = "tiny", /* for machines without a GPU, to show that this program works */
        .kind = "gpt",
        .settings = {"layers=1", "width=32", "heads=2", "seq=32", "dropout=0.1"},
        .data = "text",
        .seq = 32,
        .batch = 4,
        .steps = 1000000,
        .optimizer = "type: adamw, lr: 1.0e-3",
        .device = "cuda",
    },
};

/* ---- By operator ------------------------------------------------------------------------------*/

static struct rb_profile *time_program(const struct bench_job *job, bool sums)
{
    const struct rb_timing how = {
        .warm = WARM, .runs = STEPS, .least = 1, .most_ns = UINT64_C(10000000000), .sums = sums};
    struct rb_profile *profile;
    struct rb_why why;

    bench_check(
        rb_timing_model(job->model->device, job->model->message, &how, &profile, NULL, &why), &why);
    return profile;
}

/* The time of its products alone, and of its bytes. */
static double product_floor(const struct rb_profile_row *row, const struct rb_profile_speed *speed)
{
    return row->flops / speed->flops;
}

static double byte_floor(const struct rb_profile_row *row, const struct rb_profile_speed *speed)
{
    return row->bytes / speed->bytes;
}

static void print_operator(const struct rb_profile_row *row, double all,
                           const struct rb_profile_speed *speed)
{
    printf(
        "TABLE   %-24s %5u  %8.3f ms %5.1f %%  floors: products %8.3f ms, bytes %8.3f ms;  times "
        "%.1f\n",
        row->name, row->calls, row->ns / 1e6, 100 * row->ns / all, product_floor(row, speed) / 1e6,
        byte_floor(row, speed) / 1e6, row->floor > 0 ? row->ns / row->floor : 0);
}

static void print_operators(const struct bench_job *job, const struct rb_profile_speed *speed)
{
    struct rb_profile *parts = time_program(job, false), *sums = time_program(job, true);
    double all = rb_profile_whole(parts), summed = rb_profile_whole(sums), floors = 0;
    size_t n;
    struct rb_profile_row *rows = rb_profile_rows(parts, speed, &n);

    for (size_t i = 0; i < n; i++) {
        floors += rows[i].floor;
        if (i < SHOWN)
            print_operator(&rows[i], all, speed);
    }
    printf("TABLE   %-24s        %8.3f ms         floor %8.3f ms\n", "a microbatch in parts",
           all / 1e6, floors / 1e6);
    printf("TABLE   %-24s        %8.3f ms         of which the sums %.1f %%\n",
           "with fixed-point sums", summed / 1e6, 100 * (summed - all) / summed);
    free(rows);
    rb_profile_free(parts);
    rb_profile_free(sums);
}

/* ---- The whole --------------------------------------------------------------------------------*/

static void time_steps(struct bench_job *job, const struct bench_case *of)
{
    struct rb_step_result result;
    double took[STEPS], first[WARM];
    const char *refused;

    for (int i = 0; i < WARM; i++) {
        uint64_t start = rb_clock_ns();

        bench_job_step(job, &result);
        first[i] = bench_since(start);
    }
    for (int i = 0; i < STEPS; i++) {
        uint64_t start = rb_clock_ns();

        bench_job_step(job, &result);
        took[i] = bench_since(start);
    }
    refused = rb_program_refused(job->model->runner->program);
    printf(
        "TABLE   steps: first %.1f ms, then %.1f and %.1f; %.2f ms a step of %lld samples, %.1f a "
        "second%s%s\n",
        first[0], first[1], first[2], bench_median(took, STEPS), (long long)of->batch,
        1000 * (double)of->batch / bench_median(took, STEPS), refused ? "; NO GRAPHS: " : "",
        refused ? refused : "");
}

static bool find_case(const char *text, const char *precision, struct bench_case *ret_case)
{
    size_t name = strcspn(text, "=");

    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (strlen(cases[i].name) == name && strncmp(text, cases[i].name, name) == 0) {
            *ret_case = cases[i];
            ret_case->onnx = text[name] ? text + name + 1 : NULL;
            ret_case->precision = precision;
            return cases[i].kind || ret_case->onnx;
        }
    return false;
}

int main(int argc, char **argv)
{
    struct bench_case of;
    struct bench_job job;
    struct rb_profile_speed speed;
    struct rb_why why;
    uint64_t start;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "communicator") == 0)
        return communicator_times(atoi(argv[2]));
    if (argc != 3 || !find_case(argv[1], argv[2], &of)) {
        fprintf(stderr, "usage: times gpt|small|resnet=MODEL.onnx fp32|bf16\n"
                        "       times communicator RANKS\n");
        return 2;
    }
    bench_job_make(&of, of.batch / 2, &job);
    cold_times(strcmp(argv[2], "bf16") == 0 ? RB_BF16 : RB_F32);
    start = rb_clock_ns();
    bench_job_load(&job, 0, 1);
    printf("TABLE   loading the model, kernels and weights: %.0f ms; %.1f MB of activations\n",
           bench_since(start), (double)job.model->runner->message->arena_bytes / 1e6);
    time_steps(&job, &of);
    bench_check(
        rb_profile_measure(job.model->device, job.model->message->programs[0], &speed, &why), &why);
    printf("TABLE   a large product %.1f TFLOP/s, a large copy %.0f GB/s (read and written)\n",
           speed.flops / 1e3, speed.bytes);
    print_operators(&job, &speed);
    bench_check(rb_device_check(job.model->device, &why), &why);
    bench_job_close(&job);
    return 0;
}
