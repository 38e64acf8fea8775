/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/precise.h"

#include "kernels/reference/reference.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct precise {
    const struct rb_graph *graph;
    void **data; /* by value: its elements; float32 elements are doubles here */
    double **gradient;
    uint64_t seed;
};

static double draw(struct precise *precise)
{
    precise->seed = precise->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(precise->seed >> 33) / (double)(1u << 30) - 1.0;
}

static size_t bytes_of(const struct rb_tensor_type *type)
{
    size_t size = type->dtype == RB_F32 ? sizeof(double) : rb_dtype_size(type->dtype);

    return (size_t)rb_tensor_elements(type) * size;
}

static void fill(struct precise *precise, const struct rb_value *value)
{
    void *to = rb_alloc(bytes_of(&value->type) + 1);
    int64_t n = rb_tensor_elements(&value->type);

    precise->data[value->id] = to;
    for (int64_t i = 0; value->role == RB_VALUE_INPUT && i < n; i++) {
        if (value->type.dtype == RB_F32)
            ((double *)to)[i] = draw(precise);
        else
            ((int64_t *)to)[i] = (int64_t)(3 * fabs(draw(precise))) % 3;
    }
    for (int64_t i = 0; value->data && value->type.dtype == RB_F32 && i < n; i++)
        ((double *)to)[i] = (double)((const float *)value->data)[i];
    if (value->data && value->type.dtype != RB_F32)
        memcpy(to, value->data, bytes_of(&value->type));
}

static void run_node(const struct precise *precise, const struct rb_node *node)
{
    const struct rb_key key = {.seed = 1, .step = 3, .microbatch = 2};
    struct rb_tensor_type in[64] = {0}, out[64] = {0};
    struct rb_attribute attributes[16];
    const void *from[64] = {0};
    void *to[64] = {0};
    struct rb_call call = {.op = node->op,
                           .id = (uint32_t)node->id,
                           .n_in = node->n_in,
                           .n_out = node->n_out,
                           .in = in,
                           .out = out,
                           .attributes = attributes,
                           .n_attributes = node->n_attributes};

    assert_true(node->n_in <= 64 && node->n_out <= 64 && node->n_attributes <= 16);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]) {
            in[i] = node->in[i]->type;
            from[i] = precise->data[node->in[i]->id];
        }
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]) {
            out[i] = node->out[i]->type;
            to[i] = precise->data[node->out[i]->id];
        }
    for (int i = 0; i < node->n_attributes; i++) {
        const struct rb_graph_attribute *a = &node->attributes[i];

        attributes[i] = (struct rb_attribute){a->key, a->ints, a->n_ints, a->floats, a->n_floats};
    }
    if (!rb_reference_table[node->op])
        fail_msg("%s has no reference", rb_op_info(node->op)->name);
    rb_reference_table[node->op](&call, from, to, &key);
}

static double run(const struct precise *precise)
{
    const struct rb_graph *graph = precise->graph;

    for (int i = 0; i < graph->n_nodes; i++)
        run_node(precise, graph->nodes[i]);
    return *(const double *)precise->data[graph->loss->id];
}

static void collect(struct precise *precise)
{
    const struct rb_graph *graph = precise->graph;

    run(precise);
    for (int i = 0; i < graph->n_contributions; i++) {
        const struct rb_value *variable = graph->contributions[i].variable;
        const double *part = precise->data[graph->contributions[i].value->id];
        int64_t n = rb_tensor_elements(&variable->type);

        if (!precise->gradient[variable->id])
            precise->gradient[variable->id] = rb_alloc(sizeof(double) * (size_t)n);
        for (int64_t j = 0; j < n; j++)
            precise->gradient[variable->id][j] += part[j];
    }
}

static double slope(const struct precise *precise, const struct rb_value *variable,
                    const double *direction, double eps)
{
    double *w = precise->data[variable->id], loss[2];
    int64_t n = rb_tensor_elements(&variable->type);
    double *before = rb_alloc(sizeof(double) * (size_t)n);

    memcpy(before, w, sizeof(double) * (size_t)n);
    for (int side = 0; side < 2; side++) {
        for (int64_t j = 0; j < n; j++)
            w[j] = before[j] + (side ? eps : -eps) * direction[j];
        loss[side] = run(precise);
    }
    memcpy(w, before, sizeof(double) * (size_t)n);
    free(before);
    return (loss[1] - loss[0]) / (2 * eps);
}

static void check_variable(struct precise *precise, const char *what,
                           const struct rb_value *variable)
{
    const double *gradient = precise->gradient[variable->id];
    int64_t n = rb_tensor_elements(&variable->type);
    double *direction = rb_alloc(sizeof(double) * (size_t)n);
    double expected = 0, length = 0, measured = 0, eps = 1e-4;

    for (int64_t j = 0; j < n; j++) {
        direction[j] = draw(precise);
        expected += gradient[j] * direction[j];
        length += gradient[j] * gradient[j];
    }
    length = sqrt(length);
    /* A kink within the step is not within a shorter one; a smooth curve wants a step neither too
     * long nor too short. */
    for (int shorter = 0; shorter < 3; shorter++, eps /= 10) {
        measured = slope(precise, variable, direction, eps);
        if (fabs(measured - expected) <= 1e-6 * length + 1e-8) {
            free(direction);
            return;
        }
    }
    fail_msg("%s: the slope of %s is %.12g, its gradient says %.12g (length %.3g)", what,
             variable->name, measured, expected, length);
}

/* Operators that a gradient goes through lie between a weight and the loss. */
static void mark_seen(const struct rb_graph *graph, bool *seen)
{
    bool *from_weight = rb_alloc((size_t)graph->n_values + 1);

    for (int i = 0; i < graph->n_values; i++)
        from_weight[i] = graph->values[i]->role == RB_VALUE_WEIGHT;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        bool any = false;

        for (int j = 0; j < node->n_in; j++)
            any |= node->in[j] && from_weight[node->in[j]->id];
        if (any)
            seen[node->op] = true;
        for (int j = 0; any && j < node->n_out; j++)
            if (node->out[j])
                from_weight[node->out[j]->id] = true;
        if (node == graph->loss->maker)
            break;
    }
    free(from_weight);
}

void precise_check(const char *what, const struct rb_graph *graph, bool *seen)
{
    struct precise precise = {.graph = graph, .seed = 7};

    precise.data = rb_alloc(sizeof(void *) * (size_t)graph->n_values);
    precise.gradient = rb_alloc(sizeof(double *) * (size_t)graph->n_values);
    for (int i = 0; i < graph->n_values; i++)
        fill(&precise, graph->values[i]);
    collect(&precise);
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_WEIGHT && precise.gradient[i])
            for (int round = 0; round < 2; round++)
                check_variable(&precise, what, graph->values[i]);
    mark_seen(graph, seen);
    for (int i = 0; i < graph->n_values; i++) {
        free(precise.data[i]);
        free(precise.gradient[i]);
    }
    free(precise.data);
    free(precise.gradient);
}
