/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/import/buffers.h"

#include "base/arena.h"
#include "graph/onnx/model.h"

#include <stdlib.h>
#include <string.h>

/* No gradient goes through these. */
static bool is_step(enum rb_op op)
{
    return op == RB_OP_SIGN || op == RB_OP_FLOOR || op == RB_OP_CEIL || op == RB_OP_ROUND ||
           op == RB_OP_DETACH;
}

/* By value, whether it depends on an input of the model. */
static bool *find_data(const struct rb_graph *graph)
{
    bool *data = rb_alloc(sizeof *data * (size_t)graph->n_values);

    for (int i = 0; i < graph->n_values; i++)
        data[i] = graph->values[i]->role == RB_VALUE_INPUT;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        bool any = false;

        for (int j = 0; j < node->n_in; j++)
            any |= node->in[j] && data[node->in[j]->id];
        for (int j = 0; any && j < node->n_out; j++)
            if (node->out[j])
                data[node->out[j]->id] = true;
    }
    return data;
}

/* How a gradient comes to a value. */
enum reach {
    NOT_REACHED,
    BY_TABLES, /* only through sines and cosines of values that depend on no input */
    REACHED,
};

/* A gradient flows from a float output to every float input. */
static enum reach passes_gradient(const struct rb_node *node, const enum reach *reached,
                                  const bool *data)
{
    enum reach most = NOT_REACHED;

    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] && reached[node->out[i]->id] > most)
            most = reached[node->out[i]->id];
    if (!most || is_step(node->op))
        return NOT_REACHED;
    return (node->op == RB_OP_SIN || node->op == RB_OP_COS) && !data[node->in[0]->id] ? BY_TABLES
                                                                                      : most;
}

/* Rotary embeddings have their frequencies in a vector that falls or rises all along; any other
 * tensor that only sines and cosines read (the phases of a state space model) may be a
 * parameter. */
static bool are_frequencies(const struct rb_value *value)
{
    int64_t n = value->data ? rb_tensor_elements(&value->type) : 0, axes = 0;
    bool falls = true, rises = true;
    float last = 0, x;

    for (int i = 0; i < value->type.rank; i++)
        axes += value->type.dim[i] > 1;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&x, (const uint8_t *)value->data + i * (int64_t)sizeof x, sizeof x);
        falls &= !i || x <= last;
        rises &= !i || x >= last;
        last = x;
    }
    return axes <= 1 && (falls || rises);
}

/* An exporter that marks parameters leaves nothing to guess. */
static bool is_trained(const struct rb_graph *graph, const struct rb_value *value,
                       enum reach reached)
{
    bool marked = graph->model && rb_onnx_kind(graph->model, value->name) == RB_ONNX_PARAMETER;

    return reached == REACHED || (reached == BY_TABLES && (marked || !are_frequencies(value)));
}

/* Under any update an infinity stays an infinity, and a NaN a NaN. */
static bool is_finite(const struct rb_value *value)
{
    enum { CHUNK = 4096, EXPONENT = 0x7f800000 };
    const uint8_t *bytes = value->data;
    int64_t n = bytes ? rb_tensor_elements(&value->type) : 0;

    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t end = first + CHUNK < n ? first + CHUNK : n;
        uint32_t most = 0;

        for (int64_t i = first; i < end; i++) {
            uint32_t bits;

            memcpy(&bits, bytes + i * (int64_t)sizeof bits, sizeof bits);
            bits &= EXPONENT;
            most = bits > most ? bits : most;
        }
        if (most == EXPONENT)
            return false;
    }
    return true;
}

void rb_import_find_buffers(struct rb_graph *graph)
{
    enum reach *reached = rb_alloc(sizeof *reached * (size_t)graph->n_values);
    bool *data = find_data(graph);

    for (int i = 0; i < graph->n_outputs; i++)
        if (rb_dtype_is_real(graph->outputs[i]->type.dtype))
            reached[graph->outputs[i]->id] = REACHED;
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];
        enum reach reach = passes_gradient(node, reached, data);

        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && rb_dtype_is_real(node->in[j]->type.dtype) &&
                reached[node->in[j]->id] < reach)
                reached[node->in[j]->id] = reach;
    }
    for (int i = 0; i < graph->n_values; i++) {
        struct rb_value *value = graph->values[i];

        if (value->role != RB_VALUE_WEIGHT)
            continue;
        value->no_number = reached[i] && !is_finite(value);
        if (value->no_number || !is_trained(graph, value, reached[i])) {
            value->frequencies = reached[i] == BY_TABLES && !value->no_number;
            value->role = RB_VALUE_BUFFER;
            value->frozen = false;
        }
    }
    free(reached);
    free(data);
}
