/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/gradient.h"

#include "base/arena.h"
#include "plan/compile/lower.h"
#include "tests/plan/precise.h"
#include "worker/program/program.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool gradient_seen[RB_OP_COUNT];

struct check {
    Rb__Model *model;
    const Rb__Program *program;
    struct rb_device *device;
    struct rb_program *ready;
    struct rb_program_memory memory;
    float *gradient, *direction, *weights; /* laid out as the flat state */
    uint64_t seed;
};

static void must(int err, const struct rb_why *why)
{
    if (err)
        fail_msg("%s", why->text);
}

static uint32_t draw(struct check *check)
{
    check->seed = check->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(check->seed >> 33);
}

static void lower(struct check *check, const struct rb_graph *graph)
{
    struct rb_why why = {0};

    check->model = rb_alloc(sizeof(*check->model));
    rb__model__init(check->model);
    must(rb_lower_variables(graph, check->model, &why), &why);
    must(rb_lower_program(graph, "train", check->model, &why), &why);
    check->program = check->model->programs[0];
}

/* The initializers' contents, put where the variables lie. */
static void fill_state(struct check *check, const struct rb_graph *graph)
{
    size_t n = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];
        const Rb__Variable *variable;

        if (value->role != RB_VALUE_WEIGHT && value->role != RB_VALUE_BUFFER)
            continue;
        variable = check->model->variables[n++];
        if (variable->role == RB__VARIABLE__ROLE__FIXED)
            memcpy((char *)check->memory.fixed + variable->offset, value->data,
                   variable->elements * rb_dtype_size(value->type.dtype));
        else
            memcpy(check->memory.state + variable->offset, value->data,
                   variable->elements * sizeof(float));
    }
}

static void prepare(struct check *check, const struct rb_graph *graph)
{
    const Rb__Model *model = check->model;
    struct rb_why why = {0};

    must(rb_device_open("cpu", 0, &check->device, &why), &why);
    check->memory.state =
        rb_device_alloc(check->device, model->state_elements * sizeof(float) + 64);
    check->memory.fixed = rb_device_alloc(check->device, model->fixed_bytes + 64);
    check->memory.arena = rb_device_alloc(check->device, check->program->arena_bytes + 64);
    check->memory.constants = rb_device_alloc(check->device, model->constants.len + 64);
    if (model->constants.len)
        memcpy((void *)check->memory.constants, model->constants.data, model->constants.len);
    fill_state(check, graph);
    check->gradient = rb_alloc(model->state_elements * sizeof(float));
    check->direction = rb_alloc(model->state_elements * sizeof(float));
    check->weights = rb_alloc(model->state_elements * sizeof(float));
    memcpy(check->weights, check->memory.state, model->state_elements * sizeof(float));
    must(rb_program_prepare(check->device, model, check->program, &check->memory, &check->ready,
                            &why),
         &why);
}

/* Numbers in -1..1, tokens and labels from 0 to 2. */
static void fill_inputs(struct check *check)
{
    for (size_t i = 0; i < check->program->n_tensors; i++) {
        const Rb__Tensor *tensor = check->program->tensors[i];
        void *data;
        int64_t n = 1;

        if (tensor->space != RB__TENSOR__SPACE__INPUT)
            continue;
        data = rb_program_input(check->ready, (int)tensor->offset);
        for (size_t j = 0; j < tensor->n_dims; j++)
            n *= tensor->dims[j];
        for (int64_t j = 0; j < n; j++)
            if (tensor->dtype == RB_I64)
                ((int64_t *)data)[j] = draw(check) % 3;
            else
                ((float *)data)[j] = (float)draw(check) / (float)(1u << 30) - 1.0f;
    }
}

static void collect(int instruction, void *context)
{
    struct check *check = context;

    for (size_t i = 0; i < check->program->n_contributions; i++) {
        const Rb__Contribution *from = check->program->contributions[i];
        const Rb__Variable *variable = check->model->variables[from->variable];
        const float *tensor;

        if (from->after != (uint32_t)instruction + 1)
            continue;
        tensor = rb_program_tensor(check->ready, (int)from->tensor);
        for (uint64_t j = 0; j < variable->elements; j++)
            check->gradient[variable->offset + j] += tensor[j];
    }
}

static double run(struct check *check, bool gradient)
{
    const struct rb_key key = {.seed = 1, .step = 3, .microbatch = 2};
    struct rb_why why = {0};

    must(rb_program_run(check->ready, &key, NULL, gradient ? collect : NULL, check), &why);
    return *(const double *)rb_program_tensor(check->ready, check->program->loss);
}

static double slope(struct check *check, const Rb__Variable *variable, float eps)
{
    double loss[2];

    for (int side = 0; side < 2; side++) {
        for (uint64_t j = variable->offset; j < variable->offset + variable->elements; j++)
            check->memory.state[j] = check->weights[j] + (side ? eps : -eps) * check->direction[j];
        loss[side] = run(check, false);
    }
    memcpy(check->memory.state + variable->offset, check->weights + variable->offset,
           variable->elements * sizeof(float));
    return (loss[1] - loss[0]) / (2.0 * (double)eps);
}

/* What rounding of the loss adds to a slope that is 0 (a bias in front of a batch norm), times the
 * size of the step. */
static const double noise = 2e-6;

static void check_variable(struct check *check, const char *what, const Rb__Variable *variable,
                           float eps)
{
    double expected = 0, length = 0, measured = 0;

    for (uint64_t j = variable->offset; j < variable->offset + variable->elements; j++) {
        check->direction[j] = (float)draw(check) / (float)(1u << 30) - 1.0f;
        expected += (double)check->gradient[j] * (double)check->direction[j];
        length += (double)check->gradient[j] * (double)check->gradient[j];
    }
    if (length == 0)
        fail_msg("%s: the gradient of %s is zero", what, variable->name);
    /* Where a relu or a pool has its kink within the step, a shorter step may avoid it. */
    for (int shorter = 0; shorter < 3; shorter++, eps /= 8) {
        measured = slope(check, variable, eps);
        if (fabs(measured - expected) <= 0.02 * sqrt(length) + noise / (double)eps)
            return;
    }
    fail_msg("%s: the slope of %s is %.6g, its gradient says %.6g (length %.3g)", what,
             variable->name, measured, expected, sqrt(length));
}

double gradient_check(const char *what, struct rb_graph *graph, float eps)
{
    struct check check = {.seed = 5};
    double loss;

    lower(&check, graph);
    prepare(&check, graph);
    fill_inputs(&check);
    loss = run(&check, true);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < check.model->n_variables; i++)
            if (check.model->variables[i]->role == RB__VARIABLE__ROLE__TRAINED)
                check_variable(&check, what, check.model->variables[i], eps);
    rb_program_free(check.ready);
    rb_device_free(check.device, check.memory.state);
    rb_device_free(check.device, check.memory.fixed);
    rb_device_free(check.device, check.memory.arena);
    rb_device_free(check.device, (void *)check.memory.constants);
    rb_device_close(check.device);
    free(check.gradient);
    free(check.direction);
    free(check.weights);
    rb__model__free_unpacked(check.model, NULL);
    rb_graph_free(graph);
    return loss;
}

void gradient_check_output(const char *what, struct tiny *tiny, struct rb_value *y)
{
    struct rb_value *c = tiny_constant(tiny, y->type, 0.3f, 1.0f);
    int64_t axes[RB_MAX_RANK];

    for (int i = 0; i < y->type.rank; i++)
        axes[i] = i;
    y = tiny_two(tiny, RB_OP_MUL, "weighted", y, c);
    y = tiny_with(tiny, RB_OP_REDUCE_SUM, "sum", 1, &y, "axes", axes, y->type.rank);
    tiny_finish(tiny, y, "graph", (struct rb_tensor_type){0});
    precise_check(what, tiny->graph, gradient_seen);
    gradient_check(what, tiny->graph, 4e-3f);
}
