/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/product.h"

#include "base/arena.h"
#include "proto/operators.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 100, BLOCK = 50000 };

static Rb__Tensor *new_tensor(void)
{
    Rb__Tensor *tensor = rb_alloc(sizeof *tensor);

    rb__tensor__init(tensor);
    tensor->space = RB__TENSOR__SPACE__ARENA;
    tensor->dtype = 1;
    tensor->n_dims = 2;
    tensor->dims = rb_alloc(2 * sizeof *tensor->dims);
    tensor->dims[0] = tensor->dims[1] = WIDTH;
    return tensor;
}

Rb__Program *product_program(void)
{
    static const int32_t inputs[2] = {0, 1}, outputs[1] = {2};
    Rb__Program *program = rb_alloc(sizeof *program);
    Rb__Instruction *product = rb_alloc(sizeof *product);
    Rb__Contribution *gradient = rb_alloc(sizeof *gradient);

    rb__program__init(program);
    program->name = rb_string("train b=1");
    program->train = 1;
    program->batch = 1;
    program->arena_bytes = 1 << 20;
    program->tensors = rb_alloc(3 * sizeof *program->tensors);
    while (program->n_tensors < 3)
        program->tensors[program->n_tensors++] = new_tensor();
    rb__instruction__init(product);
    product->operator_ = RB_OP_MATMUL;
    product->n_inputs = 2;
    product->inputs = rb_alloc(sizeof inputs);
    memcpy(product->inputs, inputs, sizeof inputs);
    product->n_outputs = 1;
    product->outputs = rb_alloc(sizeof outputs);
    memcpy(product->outputs, outputs, sizeof outputs);
    program->instructions = rb_alloc(sizeof *program->instructions);
    program->instructions[program->n_instructions++] = product;
    rb__contribution__init(gradient);
    program->contributions = rb_alloc(sizeof *program->contributions);
    program->contributions[program->n_contributions++] = gradient;
    return program;
}

static Rb__Optimizer *new_optimizer(void)
{
    Rb__Optimizer *optimizer = rb_alloc(sizeof *optimizer);

    rb__optimizer__init(optimizer);
    optimizer->kind = RB__OPTIMIZER__KIND__ADAMW;
    return optimizer;
}

Rb__Model *product_model(int64_t batch)
{
    Rb__Model *model = rb_alloc(sizeof *model);

    rb__model__init(model);
    model->global_batch = batch;
    model->micro_batch = 1;
    model->state_elements = PRODUCT_BUCKETS * PRODUCT_BUCKET;
    model->optimizer = new_optimizer();
    model->programs = rb_alloc(sizeof *model->programs);
    model->programs[model->n_programs++] = product_program();
    model->variables = rb_alloc(sizeof *model->variables);
    model->variables[0] = rb_alloc(sizeof **model->variables);
    rb__variable__init(model->variables[0]);
    model->variables[0]->name = rb_string("w");
    model->variables[0]->elements = model->state_elements;
    model->n_variables = 1;
    model->buckets = rb_alloc(PRODUCT_BUCKETS * sizeof *model->buckets);
    for (uint64_t b = 0; b < PRODUCT_BUCKETS; b++) {
        Rb__Bucket *bucket = model->buckets[model->n_buckets++] = rb_alloc(sizeof *bucket);

        rb__bucket__init(bucket);
        bucket->first = b * PRODUCT_BUCKET;
        bucket->count = PRODUCT_BUCKET;
    }
    model->blocks = rb_alloc(model->state_elements / BLOCK * sizeof *model->blocks);
    for (uint64_t at = 0; at < model->state_elements; at += BLOCK) {
        Rb__Block *block = model->blocks[model->n_blocks++] = rb_alloc(sizeof *block);

        rb__block__init(block);
        block->first = at;
        block->count = BLOCK;
    }
    return model;
}

struct rb_cluster product_cluster(const char *text)
{
    struct rb_cluster cluster;
    struct rb_why why;

    if (rb_cluster_parse("c.yaml", text, strlen(text), &cluster, &why))
        fail_msg("%s", why.text);
    return cluster;
}
