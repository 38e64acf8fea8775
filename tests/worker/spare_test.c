/* SPDX-License-Identifier: Apache-2.0 */
/* What is free of an arena: writes there while an instruction runs spoil nothing.  Programs are run
 * on stamps instead of numbers, and a wide one on numbers. */
#include "base/arena.h"
#include "base/hash.h"
#include "proto/work.h"
#include "tests/bench/cases.h"
#include "worker/program/spare.h"
#include "worker/timing/timing_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GRANULE = 64, SPOILED = -1 };

struct stamps {
    const Rb__Program *program;
    struct rb_reads reads;
    struct rb_spare *spares;
    int *granule; /* by 64 bytes of the arena: stamp of the last write */
    int *written; /* by tensor: stamp of the write that its elements come from */
    int count;
};

static void stamp(struct stamps *stamps, uint64_t first, uint64_t bytes, int with)
{
    assert_true(first % GRANULE == 0 && first + bytes <= stamps->program->arena_bytes);
    for (uint64_t g = first / GRANULE; g < (first + bytes + GRANULE - 1) / GRANULE; g++)
        stamps->granule[g] = with;
}

static void write_tensor(struct stamps *stamps, int32_t index)
{
    if (index < 0)
        return;
    stamps->written[index] = ++stamps->count;
    stamp(stamps, stamps->program->tensors[index]->offset, stamps->reads.bytes[index],
          stamps->count);
}

/* All of the tensor comes from one write; a view's first read tells which. */
static void read_tensor(struct stamps *stamps, int32_t index)
{
    const Rb__Tensor *tensor = index < 0 ? NULL : stamps->program->tensors[index];

    if (!tensor || tensor->space != RB__TENSOR__SPACE__ARENA || !stamps->reads.bytes[index])
        return;
    if (!stamps->written[index])
        stamps->written[index] = stamps->granule[tensor->offset / GRANULE];
    assert_true(stamps->written[index] > 0);
    for (uint64_t g = 0; g < (stamps->reads.bytes[index] + GRANULE - 1) / GRANULE; g++)
        assert_int_equal(stamps->granule[tensor->offset / GRANULE + g], stamps->written[index]);
}

static void run_one(struct stamps *stamps, size_t i)
{
    const Rb__Program *program = stamps->program;
    const Rb__Instruction *one = program->instructions[i];

    for (size_t k = 0; k < one->n_inputs; k++)
        read_tensor(stamps, one->inputs[k]);
    for (size_t k = 0; k < one->n_outputs; k++)
        write_tensor(stamps, one->outputs[k]);
    stamp(stamps, stamps->spares[i].first, stamps->spares[i].bytes, SPOILED);
    for (size_t k = 0; k < one->n_inputs; k++)
        read_tensor(stamps, one->inputs[k]);
    for (size_t k = 0; k < one->n_outputs; k++)
        read_tensor(stamps, one->outputs[k]);
    for (size_t k = 0; k < program->n_contributions; k++)
        if (program->contributions[k]->after == i + 1)
            read_tensor(stamps, (int32_t)program->contributions[k]->tensor);
}

static void run(struct stamps *stamps, size_t first)
{
    const Rb__Program *program = stamps->program;

    for (size_t i = first; i < program->n_instructions; i++)
        run_one(stamps, i);
    read_tensor(stamps, program->loss);
    read_tensor(stamps, program->count);
    read_tensor(stamps, program->correct);
    for (size_t i = 0; i < program->n_outputs; i++)
        read_tensor(stamps, program->outputs[i]);
}

/* What the next run finds: the views of tensors that it makes itself are of its own writes. */
static void forget_views(struct stamps *stamps)
{
    const Rb__Program *program = stamps->program;
    bool *kept = rb_alloc((program->n_tensors + 1) * sizeof *kept);

    for (size_t i = 0; i < program->once; i++)
        for (size_t k = 0; k < program->instructions[i]->n_outputs; k++)
            if (program->instructions[i]->outputs[k] >= 0)
                kept[program->instructions[i]->outputs[k]] = true;
    for (size_t t = 0; t < program->n_tensors; t++)
        stamps->written[t] = kept[t] ? stamps->written[t] : 0;
    free(kept);
}

/* The share of the arena that is free at the worst and at the best of times. */
static void check(const Rb__Program *program, double *ret_least, double *ret_most)
{
    static char arena[1]; /* nothing writes there */
    void **addresses = rb_alloc((program->n_tensors + 1) * sizeof *addresses);
    size_t *bytes = rb_alloc((program->n_tensors + 1) * sizeof *bytes);
    struct stamps stamps = {
        .program = program,
        .reads = {program, addresses, bytes},
        .spares = rb_alloc((program->n_instructions + 1) * sizeof *stamps.spares),
        .granule = rb_alloc((program->arena_bytes / GRANULE + 1) * sizeof(int)),
        .written = rb_alloc((program->n_tensors + 1) * sizeof(int)),
    };

    for (size_t t = 0; t < program->n_tensors; t++) {
        bytes[t] = (size_t)rb_work_tensor_bytes(program->tensors[t]);
        if (program->tensors[t]->space == RB__TENSOR__SPACE__ARENA)
            addresses[t] = (void *)((uintptr_t)arena + program->tensors[t]->offset);
    }
    rb_spare_find(&stamps.reads, arena, stamps.spares);
    run(&stamps, 0);
    forget_views(&stamps);
    run(&stamps, program->once); /* the next microbatch */
    *ret_least = 1;
    *ret_most = 0;
    for (size_t i = 0; i < program->n_instructions; i++) {
        double share = (double)stamps.spares[i].bytes / (double)program->arena_bytes;

        *ret_least = share < *ret_least ? share : *ret_least;
        *ret_most = share > *ret_most ? share : *ret_most;
    }
    free(addresses);
    free(bytes);
    free(stamps.spares);
    free(stamps.granule);
    free(stamps.written);
}

static struct bench_case case_of(const char *name)
{
    const struct bench_case *found = bench_case_find(bench_sums_cases, bench_n_sums_cases, name);

    assert_non_null(found);
    return *found;
}

static void nothing_is_spoiled(void **state)
{
    static const char *const names[] = {"mlp", "cnn", "gpt", "cnn"};

    (void)state;
    for (size_t n = 0; n < RB_COUNT(names); n++) {
        struct bench_case one = case_of(names[n]);
        struct bench_job job;
        double least, most;

        one.batch = 4;
        one.precision = n == 3 ? "bf16" : NULL; /* weights are rounded once a step */
        bench_job_open(&one, 2, &job);
        assert_int_equal(job.model->runner->message->once > 0, n == 3);
        check(job.model->runner->message, &least, &most);
        assert_true(least < 0.1 && most > 0.5); /* activations come and go */
        bench_job_close(&job);
    }
}

/* The sums of a microbatch, where kernels may use what is free of the arena, or may not. */
static uint64_t sums_of(const struct bench_job *job, bool spares)
{
    const Rb__Model *model = job->model->message;
    const Rb__Program *program = model->programs[0];
    struct rb_device *device = job->model->device;
    size_t state = (size_t)model->state_elements * sizeof(float);
    struct rb_timing_place place = {
        .device = device,
        .memory = {.state = job->model->state.w,
                   .fixed = job->model->state.fixed,
                   .constants = job->model->constants,
                   .arena = rb_device_alloc(device, (size_t)program->arena_bytes + 64),
                   .spares = spares},
        .sums = rb_device_alloc(device, state),
        .largest = rb_device_alloc(device, sizeof *place.largest),
        .overflow = rb_device_alloc(device, sizeof *place.overflow),
    };
    struct rb_why why;
    uint64_t hash;

    bench_check(rb_program_prepare(device, model, program, &place.memory, &place.ready, &why),
                &why);
    rb_timing_fill(program, place.ready);
    rb_program_start(place.ready);
    rb_program_defer(place.ready, true);
    rb_timing_run(&place, model, true, false);
    rb_timing_run(&place, model, true, false); /* on what the first run has left */
    hash = rb_hash64(place.sums, state);
    rb_program_free(place.ready);
    rb_device_free(device, place.memory.arena);
    rb_device_free(device, place.sums);
    rb_device_free(device, place.largest);
    rb_device_free(device, place.overflow);
    return hash;
}

/* Convolutions of so many samples need more than a little memory for themselves. */
static void sums_are_the_same(void **state)
{
    struct bench_case one = case_of("cnn");
    struct bench_job job;

    (void)state;
    one.settings[0] = "batchnorm=1"; /* that keeps more for its gradient */
    one.batch = 48;
    bench_job_open(&one, 48, &job);
    assert_int_equal(sums_of(&job, true), sums_of(&job, false));
    bench_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_spoiled),
        cmocka_unit_test(sums_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
