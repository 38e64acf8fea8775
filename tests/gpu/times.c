/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training step goes on a GPU: lines of the table of tests/gpu/run.
 *
 * usage: times gpt|resnet=MODEL.onnx fp32|bf16
 *
 * Pieces of a cold start, whole steps, and what each operator takes beside its floor: the larger of
 * its products at the speed of a large product and its bytes at that of a large copy, both measured
 * here.  An operator is timed by the clock with a wait behind each instruction, less what a wait
 * takes by itself; so its times are no better than a few microseconds an instruction. */
#include "base/arena.h"
#include "base/clock.h"
#include "proto/work.h"
#include "tests/bench/job.h"
#include "worker/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 3, STEPS = 9, PASSES = 5, SHOWN = 14, WIDTH = 4096, COPIED = 256 << 20, RACES = 9 };

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
        .name = "resnet",
        .data = "classes",
        .features = {3, 64, 64},
        .batch = 256,
        .steps = 1000000,
        .optimizer = "type: sgd, lr: 1.0e-4, momentum: 0.9",
        .device = "cuda",
    },
    {
        .name = "tiny", /* for machines without a GPU: that this program works */
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

static double since(uint64_t start)
{
    return (double)(rb_clock_ns() - start) / 1e6;
}

/* ---- What the GPU can do ----------------------------------------------------------------------*/

static void wait_for(struct rb_device *device, void *memory)
{
    rb_device_pull(device, memory, 4);
}

/* ns of one run, the best of some. */
static double race(struct rb_device *device, const struct rb_call *call, void *const *memory)
{
    struct rb_kernel *kernel = NULL;
    struct rb_why why;
    double best = 1e18;

    bench_check(rb_kernel_prepare(device, call, &kernel, &why), &why);
    for (int r = 0; r < RACES; r++) {
        uint64_t start;
        double took;

        wait_for(device, memory[2]);
        start = rb_clock_ns();
        rb_kernel_run(kernel, (const void *const *)memory, &memory[2], &(struct rb_key){1, 1, 0});
        wait_for(device, memory[2]);
        took = (double)(rb_clock_ns() - start);
        best = took < best ? took : best;
    }
    rb_kernel_free(kernel);
    return best;
}

static struct rb_profile_speed find_speed(struct rb_device *device, bool narrow, int64_t width)
{
    struct rb_tensor_type factor = {narrow ? RB_BF16 : RB_F32, 2, {width, width}};
    struct rb_tensor_type product = {RB_F32, 2, {width, width}}, factors[2] = {factor, factor};
    int64_t copied = width == WIDTH ? COPIED : 1 << 20;
    struct rb_tensor_type row = {RB_F32, 1, {copied / (int64_t)sizeof(float)}};
    const struct rb_call multiply = {RB_OP_MATMUL, 0, 2, 1, factors, &product, NULL, 0};
    const struct rb_call copy = {RB_OP_RESHAPE, 0, 1, 1, &row, &row, NULL, 0};
    struct rb_profile_speed speed;
    void *memory[3];

    for (int i = 0; i < 3; i++)
        memory[i] = rb_device_alloc(device, (size_t)copied + (size_t)(width * width) * 4);
    speed.flops =
        2 * (double)width * (double)width * (double)width / race(device, &multiply, memory);
    speed.bytes = 2 * (double)copied / race(device, &copy, memory);
    for (int i = 0; i < 3; i++)
        rb_device_free(device, memory[i]);
    return speed;
}

/* ---- By operator ------------------------------------------------------------------------------*/

struct pass {
    struct bench_job *job;
    struct rb_runner runner; /* the model's, with a program that is not played from a tape */
    uint64_t at;
    double wait; /* ns that a wait takes by itself */
    size_t next;
    double ns[RB_OP_COUNT], sums, all;
};

static double lap(struct pass *pass)
{
    double took;

    wait_for(pass->job->model->device, pass->job->model->largest);
    took = (double)(rb_clock_ns() - pass->at) - pass->wait;
    pass->at = rb_clock_ns();
    took = took > 0 ? took : 0;
    pass->all += took;
    return took;
}

static void after_instruction(int instruction, void *context)
{
    struct pass *pass = context;
    const struct rb_runner *runner = &pass->runner;
    struct rb_model *model = pass->job->model;

    pass->ns[runner->message->instructions[instruction]->operator_] += lap(pass);
    for (; pass->next < runner->message->n_contributions &&
           runner->contributions[pass->next]->after <= (uint32_t)instruction + 1;
         pass->next++) {
        const Rb__Contribution *one = runner->contributions[pass->next];
        const Rb__Variable *variable = model->message->variables[one->variable];
        struct rb_fixed into = {
            .sum = model->local + variable->offset,
            .weight = 1,
            .exponent = model->exponents[one->variable].exponent,
            .limit = model->limits[one->variable],
            .largest = &model->largest[one->variable],
            .overflow = &model->overflow[one->variable],
        };

        rb_program_add(runner->program, (int)one->tensor, &into);
        pass->sums += lap(pass);
    }
}

static void time_operators(struct bench_job *job, struct pass *pass)
{
    struct rb_model *model = job->model;
    struct rb_program_memory memory = {model->state.w, model->state.fixed, model->constants,
                                       model->arena};
    struct rb_key key = {1, 1, 0};
    struct rb_program *program;
    struct rb_why why;

    *pass = (struct pass){.job = job, .runner = *model->runner, .wait = 1e18};
    bench_check(rb_program_prepare(model->device, model->message, pass->runner.message, &memory,
                                   &program, &why),
                &why);
    pass->runner.program = program;
    for (int i = 0; i < 100; i++) {
        uint64_t start = rb_clock_ns();
        double took;

        wait_for(model->device, model->largest);
        took = (double)(rb_clock_ns() - start);
        pass->wait = took < pass->wait ? took : pass->wait;
    }
    rb_program_run(program, &key, NULL, NULL, NULL);
    for (int i = 0; i < PASSES; i++) {
        pass->next = 0;
        rb_program_start(program);
        wait_for(model->device, model->largest);
        pass->at = rb_clock_ns();
        rb_program_run(program, &key, NULL, after_instruction, pass);
    }
    rb_program_free(program);
}

static void print_operators(const struct pass *pass, const struct rb_profile_speed *speed)
{
    const Rb__Program *program = pass->runner.message;
    double floors[RB_OP_COUNT] = {0}, all = 0;
    int calls[RB_OP_COUNT] = {0};
    bool shown[RB_OP_COUNT] = {false};

    for (size_t i = 0; i < program->n_instructions; i++) {
        int op = program->instructions[i]->operator_;

        calls[op]++;
        floors[op] += rb_profile_floor(program, i, speed);
        all += rb_profile_floor(program, i, speed);
    }
    for (int n = 0; n < SHOWN; n++) {
        int most = 0;

        for (int op = 1; op < RB_OP_COUNT; op++)
            if (calls[op] && !shown[op] && (!most || pass->ns[op] > pass->ns[most]))
                most = op;
        if (!most)
            break;
        shown[most] = true;
        printf("TABLE   %-24s %5d  %8.3f ms %5.1f %%  floor %8.3f ms  times %.1f\n",
               rb_op_info((unsigned)most)->name, calls[most], pass->ns[most] / PASSES / 1e6,
               100 * pass->ns[most] / pass->all, floors[most] / 1e6,
               pass->ns[most] / PASSES / (floors[most] > 0 ? floors[most] : 1e18));
    }
    printf("TABLE   %-24s        %8.3f ms %5.1f %%\n", "fixed-point sums",
           pass->sums / PASSES / 1e6, 100 * pass->sums / pass->all);
    printf("TABLE   %-24s        %8.3f ms         floor %8.3f ms\n", "a microbatch in parts",
           pass->all / PASSES / 1e6, all / 1e6);
}

/* ---- The whole --------------------------------------------------------------------------------*/

/* Opened once before: the module, the driver and the context are this process's first ones. */
static void time_opening(void)
{
    uint64_t start = rb_clock_ns();
    struct rb_device *device;
    struct rb_why why;
    double counted, opened;
    int count;

    bench_check(rb_device_count("cuda", &count, &why), &why);
    counted = since(start);
    start = rb_clock_ns();
    bench_check(rb_device_open("cuda", 0, &device, &why), &why);
    opened = since(start);
    start = rb_clock_ns();
    rb_device_close(device);
    bench_check(rb_device_open("cuda", 0, &device, &why), &why);
    printf(
        "TABLE   cold start: module and driver %.0f ms, context, streams and cuBLASLt %.0f ms, the "
        "latter again %.0f ms\n",
        counted, opened, since(start));
    rb_device_close(device);
}

static void time_steps(struct bench_job *job, const struct bench_case *of)
{
    struct rb_step_result result;
    double took[STEPS], first[WARM];
    const char *refused;

    for (int i = 0; i < WARM; i++) {
        uint64_t start = rb_clock_ns();

        bench_job_step(job, &result);
        first[i] = since(start);
    }
    for (int i = 0; i < STEPS; i++) {
        uint64_t start = rb_clock_ns();

        bench_job_step(job, &result);
        took[i] = since(start);
    }
    refused = rb_program_refused(job->model->runner->program);
    printf(
        "TABLE   steps: first %.1f ms, then %.1f and %.1f; %.2f ms a step of %lld samples, %.0f a "
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
    struct pass pass;
    struct rb_why why;
    uint64_t start;
    bool tiny;

    if (argc != 3 || !find_case(argv[1], argv[2], &of)) {
        fprintf(stderr, "usage: times gpt|resnet=MODEL.onnx fp32|bf16\n");
        return 2;
    }
    tiny = strcmp(of.name, "tiny") == 0;
    bench_job_make(&of, of.batch / 2, &job);
    time_opening();
    start = rb_clock_ns();
    bench_job_load(&job, 0, 1);
    printf("TABLE   loading the model, kernels and weights: %.0f ms; %.1f MB of activations\n",
           since(start), (double)job.model->runner->message->arena_bytes / 1e6);
    time_steps(&job, &of);
    speed = find_speed(job.model->device, strcmp(argv[2], "bf16") == 0, tiny ? 64 : WIDTH);
    printf("TABLE   a large product %.1f TFLOP/s, a large copy %.0f GB/s (read and written)\n",
           speed.flops / 1e3, speed.bytes);
    time_operators(&job, &pass);
    print_operators(&pass, &speed);
    bench_check(rb_device_check(job.model->device, &why), &why);
    bench_job_close(&job);
    return 0;
}
