/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny job as messages: its Model and its plans. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "kernels/device.h"
#include "proto/dtype.h"
#include "proto/operators.h"
#include "worker/batch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Variables ------------------------------------------------------------------------------*/

enum { W1, B1, W2, B2, MEAN, MASK, VARIABLES };

static void add_variable(Rb__Model *model, const char *name, Rb__Variable__Role role, int64_t rows,
                         int64_t columns)
{
    Rb__Variable *variable = rb_alloc(sizeof *variable);
    bool fixed = role == RB__VARIABLE__ROLE__FIXED;

    rb__variable__init(variable);
    variable->name = rb_string(name);
    variable->role = role;
    variable->n_dims = rows ? 2 : 1;
    variable->dims = rb_alloc(2 * sizeof *variable->dims);
    variable->dims[0] = rows ? rows : columns;
    variable->dims[1] = columns;
    variable->dtype = fixed ? RB_I64 : RB_F32;
    variable->elements = (uint64_t)((rows ? rows : 1) * columns);
    variable->has_decay = variable->decay = rows != 0;
    if (fixed) {
        variable->offset = model->fixed_bytes;
        model->fixed_bytes += variable->elements * sizeof(int64_t);
    } else {
        variable->offset = model->state_elements;
        model->state_elements += (variable->elements + 15) / 16 * 16;
    }
    if (role == RB__VARIABLE__ROLE__TRAINED)
        model->trained_elements = model->state_elements;
    model->variables[model->n_variables++] = variable;
}

static void add_block(Rb__Model *model, uint32_t v, uint64_t first, uint64_t count)
{
    Rb__Block *block = rb_alloc(sizeof *block);

    rb__block__init(block);
    block->variable = v;
    block->first = model->variables[v]->offset + first;
    block->count = count;
    model->blocks[model->n_blocks++] = block;
}

static void add_bucket(Rb__Model *model, uint64_t first, uint64_t count)
{
    Rb__Bucket *bucket = rb_alloc(sizeof *bucket);

    rb__bucket__init(bucket);
    bucket->first = first;
    bucket->count = count;
    model->buckets[model->n_buckets++] = bucket;
}

static void add_variables(Rb__Model *model, int64_t hidden)
{
    model->variables = rb_alloc(VARIABLES * sizeof *model->variables);
    add_variable(model, "fc1.weight", RB__VARIABLE__ROLE__TRAINED, TINY_INPUTS, hidden);
    add_variable(model, "fc1.bias", RB__VARIABLE__ROLE__TRAINED, 0, hidden);
    add_variable(model, "fc2.weight", RB__VARIABLE__ROLE__TRAINED, hidden, TINY_CLASSES);
    add_variable(model, "fc2.bias", RB__VARIABLE__ROLE__TRAINED, 0, TINY_CLASSES);
    add_variable(model, "running_mean", RB__VARIABLE__ROLE__STATISTIC, 0, hidden);
    add_variable(model, "mask", RB__VARIABLE__ROLE__FIXED, 0, 5);
    model->blocks = rb_alloc(2 * VARIABLES * sizeof *model->blocks);
    for (uint32_t v = 0; v < MASK; v++) {
        uint64_t half = model->variables[v]->elements / 2;

        add_block(model, v, 0, half);
        add_block(model, v, half, model->variables[v]->elements - half);
    }
    model->buckets = rb_alloc(2 * sizeof *model->buckets);
    add_bucket(model, model->variables[W2]->offset,
               model->state_elements - model->variables[W2]->offset);
    add_bucket(model, 0, model->variables[W2]->offset);
}

/* ---- Programs -------------------------------------------------------------------------------*/

static int32_t add_tensor(Rb__Program *program, Rb__Tensor__Space space, uint64_t offset,
                          enum rb_dtype dtype, int64_t rows, int64_t columns)
{
    Rb__Tensor *tensor = rb_alloc(sizeof *tensor);
    size_t bytes = (size_t)((rows ? rows : 1) * (columns ? columns : 1)) * rb_dtype_size(dtype);

    rb__tensor__init(tensor);
    tensor->space = space;
    tensor->dtype = (int32_t)dtype;
    tensor->n_dims = (size_t)(rows != 0) + (size_t)(columns != 0);
    tensor->dims = rb_alloc(2 * sizeof *tensor->dims);
    tensor->dims[0] = rows ? rows : columns;
    tensor->dims[1] = columns;
    tensor->offset = offset;
    if (space == RB__TENSOR__SPACE__ARENA) {
        tensor->offset = program->arena_bytes;
        program->arena_bytes += (bytes + 63) / 64 * 64;
    }
    program->tensors[program->n_tensors++] = tensor;
    return (int32_t)program->n_tensors - 1;
}

static int32_t temporary(Rb__Program *program, int64_t rows, int64_t columns)
{
    return add_tensor(program, RB__TENSOR__SPACE__ARENA, 0, RB_F32, rows, columns);
}

/* attribute: NULL, or the key of `value`. */
static void add(Rb__Program *program, enum rb_op op, const char *attribute, double value, int n_in,
                const int32_t *in, int n_out, const int32_t *out)
{
    Rb__Instruction *one = rb_alloc(sizeof *one);

    rb__instruction__init(one);
    one->operator_ = (uint32_t)op;
    one->id = (uint32_t)program->n_instructions;
    one->n_inputs = (size_t)n_in;
    one->inputs = rb_alloc((size_t)n_in * sizeof *one->inputs);
    memcpy(one->inputs, in, (size_t)n_in * sizeof *in);
    one->n_outputs = (size_t)n_out;
    one->outputs = rb_alloc((size_t)n_out * sizeof *one->outputs);
    memcpy(one->outputs, out, (size_t)n_out * sizeof *out);
    for (const char *key = attribute; key; key = NULL) {
        Rb__Attribute *attached = rb_alloc(sizeof *attached);
        bool whole = strcmp(key, "ratio") != 0;

        rb__attribute__init(attached);
        attached->key = rb_string(key);
        if (whole) {
            attached->n_ints = 1;
            attached->ints = rb_alloc(sizeof *attached->ints);
            attached->ints[0] = (int64_t)value;
        } else {
            attached->n_floats = 1;
            attached->floats = rb_alloc(sizeof *attached->floats);
            attached->floats[0] = (float)value;
        }
        one->attributes = rb_alloc(2 * sizeof *one->attributes);
        one->attributes[one->n_attributes++] = attached;
    }
    program->instructions[program->n_instructions++] = one;
}

#define ADD(program, op, attribute, value, ins, outs)                                              \
    add(program, op, attribute, value, (int)RB_COUNT(((int32_t[])ins)), (int32_t[])ins,            \
        (int)RB_COUNT(((int32_t[])outs)), (int32_t[])outs)
#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* One more whole-number attribute of the newest instruction. */
static void add_whole(Rb__Program *program, const char *key, int64_t value)
{
    Rb__Instruction *one = program->instructions[program->n_instructions - 1];
    Rb__Attribute *attached = rb_alloc(sizeof *attached);

    rb__attribute__init(attached);
    attached->key = rb_string(key);
    attached->n_ints = 1;
    attached->ints = rb_alloc(sizeof *attached->ints);
    attached->ints[0] = value;
    one->attributes[one->n_attributes++] = attached;
}

static void add_ratio(Rb__Program *program, double ratio)
{
    Rb__Instruction *one = program->instructions[program->n_instructions - 1];
    Rb__Attribute *attached = rb_alloc(sizeof *attached);

    rb__attribute__init(attached);
    attached->key = rb_string("ratio");
    attached->n_floats = 1;
    attached->floats = rb_alloc(sizeof *attached->floats);
    attached->floats[0] = (float)ratio;
    one->attributes[one->n_attributes++] = attached;
}

static void contribute(Rb__Program *program, uint32_t variable, int32_t tensor)
{
    Rb__Contribution *one = rb_alloc(sizeof *one);

    rb__contribution__init(one);
    one->variable = variable;
    one->tensor = (uint32_t)tensor;
    one->after = (uint32_t)program->n_instructions;
    program->contributions[program->n_contributions++] = one;
}

struct forward {
    int32_t x, targets, w2, hidden, relu, dropped, logits, lse;
    int dropout;
};

static struct forward add_forward(Rb__Program *program, int64_t b, int64_t hidden)
{
    const Rb__Tensor__Space variable = RB__TENSOR__SPACE__VARIABLE;
    const Rb__Tensor__Space input = RB__TENSOR__SPACE__INPUT;
    struct forward f;
    int32_t w1, b1, b2;

    f.x = add_tensor(program, input, 0, RB_F32, b, TINY_INPUTS);
    f.targets = add_tensor(program, input, 1, RB_I64, 0, b);
    w1 = add_tensor(program, variable, W1, RB_F32, TINY_INPUTS, hidden);
    b1 = add_tensor(program, variable, B1, RB_F32, 0, hidden);
    f.w2 = add_tensor(program, variable, W2, RB_F32, hidden, TINY_CLASSES);
    b2 = add_tensor(program, variable, B2, RB_F32, 0, TINY_CLASSES);
    f.hidden = temporary(program, b, hidden);
    f.relu = temporary(program, b, hidden);
    f.dropped = f.relu;
    f.logits = temporary(program, b, TINY_CLASSES);
    f.lse = add_tensor(program, RB__TENSOR__SPACE__ARENA, 0, RB_F64, 0, b);
    program->loss = add_tensor(program, RB__TENSOR__SPACE__ARENA, 0, RB_F64, 0, 1);
    program->count = add_tensor(program, RB__TENSOR__SPACE__ARENA, 0, RB_I64, 0, 1);
    program->correct = add_tensor(program, RB__TENSOR__SPACE__ARENA, 0, RB_I64, 0, 1);
    ADD(program, RB_OP_MATMUL, NULL, 0, LIST(f.x, w1, b1), LIST(f.hidden));
    ADD(program, RB_OP_RELU, NULL, 0, LIST(f.hidden), LIST(f.relu));
    if (program->train) {
        f.dropped = temporary(program, b, hidden);
        f.dropout = (int)program->n_instructions;
        ADD(program, RB_OP_DROPOUT, "ratio", 0.25, LIST(f.relu), LIST(f.dropped));
    }
    ADD(program, RB_OP_MATMUL, NULL, 0, LIST(f.dropped, f.w2, b2), LIST(f.logits));
    ADD(program, RB_OP_CROSS_ENTROPY, "axis", 1, LIST(f.logits, f.targets),
        LIST(program->loss, program->count, program->correct, f.lse));
    add_whole(program, "ignoreIndex", -100);
    return f;
}

static void add_backward(Rb__Program *program, const struct forward *f, int64_t b, int64_t hidden)
{
    int32_t dlogits = temporary(program, b, TINY_CLASSES), ddropped = temporary(program, b, hidden);
    int32_t drelu = temporary(program, b, hidden), dhidden = temporary(program, b, hidden);
    int32_t dw2 = temporary(program, hidden, TINY_CLASSES);
    int32_t db2 = temporary(program, 0, TINY_CLASSES);
    int32_t dw1 = temporary(program, TINY_INPUTS, hidden), db1 = temporary(program, 0, hidden);
    int32_t mean = temporary(program, 0, hidden);

    ADD(program, RB_OP_CROSS_ENTROPY_GRAD, "axis", 1, LIST(f->logits, f->targets, f->lse),
        LIST(dlogits));
    add_whole(program, "ignoreIndex", -100);
    ADD(program, RB_OP_MATMUL, "transA", 1, LIST(f->dropped, dlogits), LIST(dw2));
    contribute(program, W2, dw2);
    ADD(program, RB_OP_REDUCE_SUM, "axes", 0, LIST(dlogits), LIST(db2));
    contribute(program, B2, db2);
    ADD(program, RB_OP_MATMUL, "transB", 1, LIST(dlogits, f->w2), LIST(ddropped));
    ADD(program, RB_OP_DROPOUT_GRAD, "key", f->dropout, LIST(ddropped), LIST(drelu));
    add_ratio(program, 0.25);
    ADD(program, RB_OP_RELU_GRAD, NULL, 0, LIST(drelu, f->relu), LIST(dhidden));
    ADD(program, RB_OP_MATMUL, "transA", 1, LIST(f->x, dhidden), LIST(dw1));
    contribute(program, W1, dw1);
    ADD(program, RB_OP_REDUCE_SUM, "axes", 0, LIST(dhidden), LIST(db1));
    contribute(program, B1, db1);
    ADD(program, RB_OP_REDUCE_MEAN, "axes", 0, LIST(f->hidden), LIST(mean));
    contribute(program, MEAN, mean);
}

static void add_program(Rb__Model *model, bool train, int64_t b, int64_t hidden)
{
    Rb__Program *program = rb_alloc(sizeof *program);
    struct forward forward;

    rb__program__init(program);
    program->name = rb_format("%s b=%d", train ? "train" : "eval", (int)b);
    program->train = train;
    program->batch = (uint32_t)b;
    program->tensors = rb_alloc(64 * sizeof *program->tensors);
    program->instructions = rb_alloc(64 * sizeof *program->instructions);
    program->contributions = rb_alloc(8 * sizeof *program->contributions);
    program->n_inputs = 2;
    program->inputs = rb_alloc(2 * sizeof *program->inputs);
    program->inputs[0] = rb_string("features");
    program->inputs[1] = rb_string("targets");
    forward = add_forward(program, b, hidden);
    if (train)
        add_backward(program, &forward, b, hidden);
    model->programs[model->n_programs++] = program;
}

/* A twin that computes again: the same instructions do, to see which set is run. */
static void add_twin(Rb__Model *model, const Rb__Program *of)
{
    enum { APART = 1 << 12 };
    size_t size = rb__program__get_packed_size(of);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size + 1);
    Rb__Program *program;

    rb__program__pack(of, bytes);
    program = rb__program__unpack(NULL, size, bytes);
    program->has_recomputes = program->recomputes = 1;
    for (size_t t = 0; t < program->n_tensors; t++)
        if (program->tensors[t]->space == RB__TENSOR__SPACE__ARENA)
            program->tensors[t]->offset += APART;
    program->arena_bytes += APART;
    model->programs[model->n_programs++] = program;
}

static void add_twins(Rb__Model *model)
{
    size_t n = model->n_programs;

    model->programs = rb_realloc(model->programs, 2 * n * sizeof *model->programs);
    for (size_t p = 0; p < n; p++)
        if (model->programs[p]->train)
            add_twin(model, model->programs[p]);
}

/* ---- The message ----------------------------------------------------------------------------*/

static Rb__Source *source_of(const char *folder, const char *prefix, int64_t samples)
{
    Rb__Source *source = rb_alloc(sizeof *source);

    rb__source__init(source);
    source->path = rb_alloc(sizeof *source->path);
    source->targets = rb_alloc(sizeof *source->targets);
    source->path[source->n_path++] = rb_format("%s/%sfeatures.npy", folder, prefix);
    source->targets[source->n_targets++] = rb_format("%s/%stargets.npy", folder, prefix);
    source->format = rb_string("npy");
    source->samples = samples;
    return source;
}

static Rb__Optimizer *optimizer_of(const struct tiny_options *options)
{
    Rb__Optimizer *optimizer = rb_alloc(sizeof *optimizer);

    rb__optimizer__init(optimizer);
    optimizer->kind = options->sgd ? RB__OPTIMIZER__KIND__SGD : RB__OPTIMIZER__KIND__ADAMW;
    optimizer->lr = 0.01;
    optimizer->beta1 = 0.9;
    optimizer->beta2 = 0.999;
    optimizer->eps = 1e-8;
    optimizer->weight_decay = 0.01;
    optimizer->momentum = options->no_momentum ? 0 : 0.9;
    optimizer->schedule = RB__OPTIMIZER__SCHEDULE__COSINE;
    optimizer->warmup = 5;
    optimizer->min_ratio = 0.1;
    optimizer->clip_norm = options->clip_norm;
    return optimizer;
}

static Rb__Asynchronous *laps_of(const struct tiny_options *options)
{
    Rb__Asynchronous *how = rb_alloc(sizeof *how);

    rb__asynchronous__init(how);
    how->kind = (Rb__Asynchronous__Kind)options->laps;
    how->lap = options->lap;
    how->has_formula = how->formula = options->formula;
    how->stops = rb_alloc(sizeof *how->stops);
    if (options->eval_every)
        how->stops[how->n_stops++] = options->eval_every;
    return how;
}

/* The class of the devices that the workers are told to use (tests/worker/cluster.c). */
static char *class_of(const char *kind)
{
    struct rb_device_about about;

    if (!kind || rb_device_describe(kind, 0, &about, NULL))
        return rb_string(rb_device_numeric_class("cpu"));
    return rb_string(about.numeric_class);
}

Rb__Model *tiny_model(const char *folder, const struct tiny_options *options)
{
    Rb__Model *model = rb_alloc(sizeof *model);
    int64_t rest = options->global_batch % options->micro_batch;
    int64_t eval_rest = options->eval_samples % options->micro_batch;

    rb__model__init(model);
    model->format = 1;
    add_variables(model, options->hidden);
    model->programs = rb_alloc(4 * sizeof *model->programs);
    add_program(model, true, options->micro_batch, options->hidden);
    if (rest)
        add_program(model, true, rest, options->hidden);
    if (options->eval_samples >= options->micro_batch)
        add_program(model, false, options->micro_batch, options->hidden);
    if (eval_rest)
        add_program(model, false, eval_rest, options->hidden);
    if (options->both)
        add_twins(model);
    model->seed = 7;
    model->steps = options->steps;
    model->global_batch = options->global_batch;
    model->micro_batch = options->micro_batch;
    model->optimizer = optimizer_of(options);
    model->train = source_of(folder, "", options->samples);
    if (options->eval_samples)
        model->eval = source_of(folder, "eval-", options->eval_samples);
    model->eval_every = options->eval_every;
    if (options->lap)
        model->asynchronous = laps_of(options);
    model->non_finite_limit = 3;
    model->numeric_class = class_of(getenv("RUBATO_TEST_KIND"));
    model->spec_digest = rb_string("tiny");
    return model;
}

Rb__Plan *tiny_plan(const Rb__Model *model, uint32_t ranks)
{
    uint32_t m = rb_batch_count(model->global_batch, model->micro_batch), next = 0;
    Rb__Plan *plan = rb_alloc(sizeof *plan);

    rb__plan__init(plan);
    plan->format = 1;
    plan->summary = rb_format("data parallel x%u", ranks);
    plan->n_ranks = ranks;
    plan->ranks = rb_alloc(ranks * sizeof *plan->ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t share = m / ranks + (r < m % ranks);
        Rb__RankPlan *rank = plan->ranks[r] = rb_alloc(sizeof *rank);

        rb__rank_plan__init(rank);
        rank->n_orders = share + model->n_buckets + 2;
        rank->orders = rb_alloc(rank->n_orders * sizeof *rank->orders);
        for (size_t i = 0; i < rank->n_orders; i++) {
            Rb__Order *order = rank->orders[i] = rb_alloc(sizeof *order);
            size_t after = i - share;

            rb__order__init(order);
            order->has_argument = 1;
            order->kind = i < share                   ? RB__ORDER__KIND__COMPUTE
                          : after < model->n_buckets  ? RB__ORDER__KIND__REDUCE
                          : after == model->n_buckets ? RB__ORDER__KIND__VOTE
                                                      : RB__ORDER__KIND__UPDATE;
            order->argument = i < share ? next++ : after < model->n_buckets ? (uint32_t)after : 0;
        }
    }
    return plan;
}
