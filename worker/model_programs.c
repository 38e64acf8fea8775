/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a model, made ready, and which of them train. */
#include "worker/model.h"

#include "base/arena.h"
#include "worker/stages/flight.h"
#include "worker/lanes.h"

#include <stdlib.h>

/* ---- One program -----------------------------------------------------------------------------*/

static int by_readiness(const void *a, const void *b)
{
    const Rb__Contribution *const *left = a, *const *right = b;

    if ((*left)->after != (*right)->after)
        return (*left)->after < (*right)->after ? -1 : 1;
    return (*left)->variable < (*right)->variable ? -1 : (*left)->variable > (*right)->variable;
}

static int prepare_in(struct rb_model *model, struct rb_runner *runner,
                      const struct rb_program_memory *memory, const struct rb_source *source,
                      struct rb_why *why)
{
    const Rb__Program *message = runner->message;
    int err =
        rb_program_prepare(model->device, model->message, message, memory, &runner->program, why);

    if (!err) {
        rb_program_defer(runner->program, true);
        rb_program_keep(runner->program);
        err = rb_batch_slots(message, runner->program, rb_source_info(source), &runner->slots, why);
    }
    if (err)
        return rb_why_add(why, err, "program %s", message->name);
    runner->contributions = rb_alloc(message->n_contributions * sizeof *runner->contributions);
    for (size_t i = 0; i < message->n_contributions; i++)
        runner->contributions[i] = message->contributions[i];
    if (message->n_contributions)
        qsort(runner->contributions, message->n_contributions, sizeof *runner->contributions,
              by_readiness);
    return 0;
}

static struct rb_program_memory memory_of(const struct rb_model *model, float *weights, void *arena)
{
    return (struct rb_program_memory){
        .state = weights,
        .fixed = model->state.fixed,
        .constants = model->constants,
        .arena = arena,
    };
}

int rb_runner_prepare(struct rb_model *model, struct rb_runner *runner, float *weights, void *arena,
                      const struct rb_source *source, struct rb_why *why)
{
    const struct rb_program_memory memory = memory_of(model, weights, arena);

    return prepare_in(model, runner, &memory, source, why);
}

int rb_runner_prepare_twin(struct rb_model *model, struct rb_runner *runner,
                           const struct rb_runner *of, void *arena, struct rb_why *why)
{
    struct rb_program_memory memory = memory_of(model, model->state.w, arena);

    memory.twin = of->program;
    return prepare_in(model, runner, &memory, model->train, why);
}

void rb_runner_done(struct rb_runner *runner)
{
    rb_program_free(runner->program);
    free(runner->contributions);
    *runner = (struct rb_runner){0};
}

/* ---- All that run ----------------------------------------------------------------------------*/

/* The largest program of the kind that takes at most `limit` samples; NULL: none. */
static struct rb_runner *largest_runner(struct rb_model *model, bool train, uint64_t limit)
{
    struct rb_runner *found = NULL;

    for (size_t i = 0; i < model->message->n_programs; i++) {
        const Rb__Program *one = model->message->programs[i];

        if (one->train == train && !one->parts && one->batch <= limit &&
            (!train || one->recomputes == model->recomputes) &&
            (!found || one->batch > found->message->batch))
            found = &model->runners[i];
    }
    return found;
}

static int find_train_runners(struct rb_model *model, struct rb_why *why)
{
    const Rb__Model *message = model->message;
    struct rb_batch first = rb_batch_of(message->global_batch, message->micro_batch, 0, 0);
    struct rb_batch last =
        rb_batch_of(message->global_batch, message->micro_batch, 0, model->microbatches - 1);

    model->runner = largest_runner(model, true, first.samples);
    model->last_runner = largest_runner(model, true, last.samples);
    if (!model->runner || model->runner->message->batch != first.samples || !model->last_runner ||
        model->last_runner->message->batch != last.samples)
        return rb_why_set(why, RB_EINVAL, "the model has no program for microbatches of %u and %u",
                          first.samples, last.samples);
    return 0;
}

/* Evaluation goes through its samples in order, each time with the largest program that still fits;
 * samples that no program fits are left out. */
static void cut_evaluation(struct rb_model *model)
{
    uint64_t samples = (uint64_t)rb_source_info(model->eval)->samples, at = 0;
    struct rb_runner *runner;
    uint32_t room = 0;

    while ((runner = largest_runner(model, false, samples - at)) != NULL) {
        if (model->n_chunks == room) {
            room = room ? room * 2 : 16;
            model->chunks = rb_realloc(model->chunks, room * sizeof *model->chunks);
        }
        model->chunks[model->n_chunks++] = (struct rb_chunk){{at, runner->message->batch}, runner};
        at += runner->message->batch;
    }
}

static int prepare(struct rb_model *model, struct rb_runner *runner, const struct rb_source *source,
                   struct rb_why *why)
{
    struct rb_program_memory memory = memory_of(model, model->state.w, model->arena);

    memory.spares = true;
    return runner->program ? 0 : prepare_in(model, runner, &memory, source, why);
}

/* Where it costs no memory, the programs that may train later are prepared too, so that nobody
 * waits for them then. */
static int prepare_others(struct rb_model *model, struct rb_why *why)
{
    int err = 0;

    for (size_t i = 0; !err && i < model->message->n_programs; i++)
        if (model->runners[i].message->train && !model->runners[i].message->parts)
            err = prepare(model, &model->runners[i], model->train, why);
    return err;
}

static int prepare_programs(struct rb_model *model, struct rb_why *why)
{
    int err = find_train_runners(model, why);

    if (!err)
        err = prepare(model, model->runner, model->train, why);
    err = err ? err : rb_lanes_open(model, model->runner, model->last_runner, why);
    if (!err)
        err = prepare(model, model->last_runner, model->train, why);
    if (!err && model->eval && !model->n_chunks)
        cut_evaluation(model);
    for (uint32_t i = 0; !err && i < model->n_chunks; i++)
        err = prepare(model, model->chunks[i].runner, model->eval, why);
    return err || !rb_device_sparse(model->device) ? err : prepare_others(model, why);
}

/* ---- Sets of programs ------------------------------------------------------------------------*/

/* The largest arena of the programs that may run: now, or ever, where that costs nothing. */
static size_t arena_bytes(const struct rb_model *model)
{
    bool all = rb_device_sparse(model->device);
    size_t bytes = 64;

    for (size_t i = 0; i < model->message->n_programs; i++) {
        const Rb__Program *one = model->message->programs[i];

        if ((all || !one->train || one->recomputes == model->recomputes) &&
            one->arena_bytes > bytes)
            bytes = (size_t)one->arena_bytes;
    }
    return bytes;
}

/* Memory that the other set needs more of, or that is another's; what is in none stays: kernels. */
static void let_go(struct rb_model *model)
{
    if (model->arena) /* waits for a device that has come less far than it was asked */
        rb_device_pull(model->device, model->results, sizeof *model->results);
    rb_lanes_close(model);
    rb_flights_free(model);
    if (!model->arena)
        return;
    if (rb_device_sparse(model->device)) {
        rb_device_discard(model->device, model->arena, arena_bytes(model));
        return;
    }
    for (size_t i = 0; i < model->message->n_programs; i++) {
        rb_runner_done(&model->runners[i]);
        model->runners[i].message = model->message->programs[i];
    }
    rb_device_free(model->device, RB_TAKE(model->arena));
}

static int get_arena(struct rb_model *model, struct rb_why *why)
{
    size_t bytes = arena_bytes(model);

    if (!model->arena)
        model->arena = rb_device_alloc(model->device, bytes);
    return model->arena
               ? 0
               : rb_why_set(why, RB_ENOMEM, "no memory: activations take %zu bytes", bytes);
}

int rb_model_use(struct rb_model *model, bool recomputes, struct rb_why *why)
{
    int err;

    if (model->runner && model->recomputes == recomputes)
        return 0;
    let_go(model);
    model->recomputes = recomputes;
    err = get_arena(model, why);
    if (!err)
        err = prepare_programs(model, why);
    if (!err) /* other programs may use more of it, and only those are slower for that */
        rb_program_expect(model->runner->program, model->arena, arena_bytes(model));
    if (err)
        model->runner = NULL;
    return err;
}
