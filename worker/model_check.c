/* SPDX-License-Identifier: Apache-2.0 */
/* A Model file is checked before anything in it becomes an address or a size. */
#include "worker/stages/exchange.h"
#include "worker/model.h"

#include <stdint.h>

enum {
    MICROBATCHES_LIMIT = 1 << 20,
    LAP_LIMIT = 1 << 16,   /* steps */
    STATE_LIMIT_BITS = 40, /* elements */
};

static bool in_range(uint64_t first, uint64_t count, uint64_t size)
{
    return first <= size && count <= size - first;
}

static int check_variable(const Rb__Model *model, const Rb__Variable *variable, struct rb_why *why)
{
    uint64_t elements = 1, size = rb_dtype_size((enum rb_dtype)variable->dtype), bytes;
    bool fixed = variable->role == RB__VARIABLE__ROLE__FIXED;

    for (size_t i = 0; i < variable->n_dims; i++)
        if (variable->dims[i] < 0 ||
            __builtin_mul_overflow(elements, (uint64_t)variable->dims[i], &elements))
            return rb_why_set(why, RB_EINVAL, "variable %s: impossible shape", variable->name);
    if (elements != variable->elements || variable->n_dims > RB_MAX_RANK || !size ||
        __builtin_mul_overflow(elements, size, &bytes))
        return rb_why_set(why, RB_EINVAL, "variable %s: shape, type and size disagree",
                          variable->name);
    if (!fixed && variable->dtype != RB_F32)
        return rb_why_set(why, RB_EINVAL, "variable %s is trained and not float32", variable->name);
    if (fixed ? !in_range(variable->offset, bytes, model->fixed_bytes)
              : !in_range(variable->offset, elements, model->state_elements))
        return rb_why_set(why, RB_EINVAL, "variable %s lies outside the state", variable->name);
    if (variable->role == RB__VARIABLE__ROLE__TRAINED &&
        !in_range(variable->offset, elements, model->trained_elements))
        return rb_why_set(why, RB_EINVAL, "variable %s lies behind the trained state",
                          variable->name);
    return 0;
}

static int check_contributions(const Rb__Model *model, const Rb__Program *program,
                               struct rb_why *why)
{
    for (size_t i = 0; i < program->n_contributions; i++) {
        const Rb__Contribution *one = program->contributions[i];
        const Rb__Variable *variable;
        uint64_t elements = 1;

        if (one->variable >= model->n_variables || one->tensor >= program->n_tensors ||
            one->after > program->n_instructions)
            return rb_why_set(why, RB_EINVAL, "program %s: contribution %zu is out of range",
                              program->name, i);
        variable = model->variables[one->variable];
        for (size_t d = 0; d < program->tensors[one->tensor]->n_dims; d++)
            if (__builtin_mul_overflow(elements, (uint64_t)program->tensors[one->tensor]->dims[d],
                                       &elements))
                elements = UINT64_MAX;
        if (variable->role == RB__VARIABLE__ROLE__FIXED ||
            !in_range(one->first, elements, variable->elements) ||
            (!program->parts && elements != variable->elements) ||
            program->tensors[one->tensor]->dtype != RB_F32)
            return rb_why_set(why, RB_EINVAL, "program %s: contribution %zu does not fit %s",
                              program->name, i, variable->name);
    }
    return 0;
}

static bool is_scalar(const Rb__Program *program, int64_t tensor, enum rb_dtype dtype)
{
    if (tensor < 0 || (uint64_t)tensor >= program->n_tensors)
        return false;
    for (size_t d = 0; d < program->tensors[tensor]->n_dims; d++)
        if (program->tensors[tensor]->dims[d] != 1)
            return false;
    return program->tensors[tensor]->dtype == (int)dtype;
}

/* The last part has the loss. */
static int check_part(const Rb__Program *program, struct rb_why *why)
{
    if (!program->parts)
        return 0;
    if (program->part >= program->parts || !program->train)
        return rb_why_set(why, RB_EINVAL, "program %s is part %u of %u", program->name,
                          program->part, program->parts);
    return rb_exchange_check(program, why);
}

static int check_program(const Rb__Model *model, const Rb__Program *program, struct rb_why *why)
{
    int err;

    if (program->batch < 1)
        return rb_why_set(why, RB_EINVAL, "program %s has no samples", program->name);
    err = check_part(program, why);
    if (err)
        return err;
    if (program->parts && program->part + 1 < program->parts && program->loss < 0 &&
        program->count < 0 && program->correct < 0)
        return check_contributions(model, program, why);
    if (!is_scalar(program, program->loss, RB_F64) || !is_scalar(program, program->count, RB_I64) ||
        (program->correct >= 0 && !is_scalar(program, program->correct, RB_I64)))
        return rb_why_set(why, RB_EINVAL, "program %s has no usable loss", program->name);
    return check_contributions(model, program, why);
}

static int check_ranges(const Rb__Model *model, struct rb_why *why)
{
    uint64_t covered = 0;

    for (size_t i = 0; i < model->n_blocks; i++) {
        const Rb__Block *block = model->blocks[i];

        if (block->variable >= model->n_variables ||
            model->variables[block->variable]->role == RB__VARIABLE__ROLE__FIXED ||
            block->first < model->variables[block->variable]->offset ||
            !in_range(block->first - model->variables[block->variable]->offset, block->count,
                      model->variables[block->variable]->elements))
            return rb_why_set(why, RB_EINVAL, "block %zu lies outside its variable", i);
        covered += block->count;
    }
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->role != RB__VARIABLE__ROLE__FIXED)
            covered -= model->variables[i]->elements;
    if (covered)
        return rb_why_set(why, RB_EINVAL, "the blocks do not cover the state");
    for (size_t i = 0; i < model->n_buckets; i++)
        if (!in_range(model->buckets[i]->first, model->buckets[i]->count, model->state_elements))
            return rb_why_set(why, RB_EINVAL, "bucket %zu lies outside the state", i);
    return 0;
}

/* Of an asynchronous pipeline: laps that are not too long, of steps that go through it whole. */
static int check_laps(const Rb__Model *model, struct rb_why *why)
{
    const Rb__Asynchronous *how = model->asynchronous;
    uint32_t microbatches = rb_batch_count(model->global_batch, model->micro_batch);

    if (!how)
        return 0;
    if (how->lap < 1 || how->lap > LAP_LIMIT || microbatches > MICROBATCHES_LIMIT / how->lap ||
        (microbatches > 1 && how->kind != RB__ASYNCHRONOUS__KIND__TWO_BUFFERS))
        return rb_why_set(why, RB_EINVAL, "impossible laps: of %u steps in %u microbatches",
                          how->lap, microbatches);
    for (size_t i = 0; i < how->n_stops; i++)
        if (how->stops[i] < 1)
            return rb_why_set(why, RB_EINVAL, "laps cannot stop every %lld steps",
                              (long long)how->stops[i]);
    return 0;
}

int rb_model_check(const Rb__Model *model, struct rb_why *why)
{
    int err = 0;

    if (model->format < 1 || model->format > 2)
        return rb_why_set(why, RB_EINVAL, "the model has format %u, this worker reads 1 and 2",
                          model->format);
    if (model->global_batch < 1 || model->micro_batch < 1 || model->steps < 0 ||
        model->global_batch > INT32_MAX || model->micro_batch > model->global_batch ||
        rb_batch_count(model->global_batch, model->micro_batch) > MICROBATCHES_LIMIT)
        return rb_why_set(why, RB_EINVAL, "impossible batch: %lld as parts of %lld",
                          (long long)model->global_batch, (long long)model->micro_batch);
    if (model->state_elements >> STATE_LIMIT_BITS || model->fixed_bytes >> STATE_LIMIT_BITS ||
        model->trained_elements > model->state_elements)
        return rb_why_set(why, RB_EINVAL, "impossible size of the state");
    err = check_laps(model, why);
    for (size_t i = 0; !err && i < model->n_variables; i++)
        err = check_variable(model, model->variables[i], why);
    if (!err)
        err = check_ranges(model, why);
    for (size_t i = 0; !err && i < model->n_programs; i++)
        err = check_program(model, model->programs[i], why);
    return err;
}
