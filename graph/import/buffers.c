/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/import/buffers.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static bool is_real(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_F64 || dtype == RB_F16 || dtype == RB_BF16;
}

static bool is_step(enum rb_op op)
{
    return op == RB_OP_SIGN || op == RB_OP_FLOOR || op == RB_OP_CEIL || op == RB_OP_ROUND;
}

/* What depends on an input of the model. */
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

/* A gradient flows from a float output to every float input; but the sines and cosines of what no
 * input has a part in are a table (the frequencies of rotary embeddings). */
static bool passes_gradient(const struct rb_node *node, const bool *reached, const bool *data)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] && reached[node->out[i]->id])
            return !is_step(node->op) &&
                   ((node->op != RB_OP_SIN && node->op != RB_OP_COS) || data[node->in[0]->id]);
    return false;
}

/* An infinity stays one under any update, and a NaN too. */
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
    bool *reached = rb_alloc(sizeof *reached * (size_t)graph->n_values);
    bool *data = find_data(graph);

    for (int i = 0; i < graph->n_outputs; i++)
        reached[graph->outputs[i]->id] = is_real(graph->outputs[i]->type.dtype);
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];

        if (!passes_gradient(node, reached, data))
            continue;
        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && is_real(node->in[j]->type.dtype))
                reached[node->in[j]->id] = true;
    }
    for (int i = 0; i < graph->n_values; i++) {
        struct rb_value *value = graph->values[i];

        if (value->role != RB_VALUE_WEIGHT)
            continue;
        value->no_number = reached[i] && !is_finite(value);
        if (!reached[i] || value->no_number) {
            value->role = RB_VALUE_BUFFER;
            value->frozen = false;
        }
    }
    free(reached);
    free(data);
}
