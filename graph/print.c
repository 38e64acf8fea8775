/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a graph, for golden tests and for inspecting an import. */
#include "base/buffer.h"
#include "graph/graph.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>

static void print_scalar(const struct rb_value *value, struct rb_buffer *out)
{
    switch (value->type.dtype) {
    case RB_F32:
        rb_buffer_format(out, "%.9g", (double)*(const float *)value->data);
        break;
    case RB_F64:
        rb_buffer_format(out, "%.17g", *(const double *)value->data);
        break;
    case RB_I64:
        rb_buffer_format(out, "%" PRId64, *(const int64_t *)value->data);
        break;
    case RB_I32:
        rb_buffer_format(out, "%" PRId32, *(const int32_t *)value->data);
        break;
    case RB_BOOL:
        rb_buffer_text(out, *(const uint8_t *)value->data ? "true" : "false");
        break;
    default:
        rb_buffer_format(out, "c:%%%d", value->id);
    }
}

/* How a node refers to a value: "%3", "w:fc1.weight", "0.125". */
static void print_use(const struct rb_value *value, struct rb_buffer *out)
{
    if (!value) {
        rb_buffer_text(out, "-");
        return;
    }
    switch (value->role) {
    case RB_VALUE_TEMP:
        rb_buffer_format(out, "%%%d", value->id);
        break;
    case RB_VALUE_INPUT:
        rb_buffer_format(out, "in:%s", value->name);
        break;
    case RB_VALUE_WEIGHT:
        rb_buffer_format(out, "w:%s", value->name);
        break;
    case RB_VALUE_BUFFER:
        rb_buffer_format(out, "b:%s", value->name);
        break;
    case RB_VALUE_CONST:
        if (value->data && rb_tensor_elements(&value->type) == 1)
            print_scalar(value, out);
        else
            rb_buffer_format(out, "c:%%%d", value->id);
        break;
    }
}

static void print_attributes(const struct rb_node *node, struct rb_buffer *out)
{
    if (!node->n_attributes)
        return;
    rb_buffer_text(out, " {");
    for (int i = 0; i < node->n_attributes; i++) {
        const struct rb_graph_attribute *attribute = &node->attributes[i];

        rb_buffer_format(out, "%s%s", i ? ", " : "", attribute->key);
        for (int j = 0; j < attribute->n_ints; j++)
            rb_buffer_format(out, " %" PRId64, attribute->ints[j]);
        for (int j = 0; j < attribute->n_floats; j++)
            rb_buffer_format(out, " %.9g", (double)attribute->floats[j]);
    }
    rb_buffer_text(out, "}");
}

static void print_node(const struct rb_node *node, struct rb_buffer *out)
{
    char text[RB_TENSOR_TEXT];

    for (int i = 0; i < node->n_out; i++) {
        rb_buffer_text(out, i ? ", " : "");
        print_use(node->out[i], out);
    }
    rb_buffer_format(out, " = %s(", rb_op_info(node->op)->name);
    for (int i = 0; i < node->n_in; i++) {
        rb_buffer_text(out, i ? ", " : "");
        print_use(node->in[i], out);
    }
    rb_buffer_text(out, ")");
    print_attributes(node, out);
    for (int i = 0; i < node->n_out; i++)
        rb_buffer_format(out, "%s%s", i ? ", " : " : ",
                         node->out[i] ? rb_tensor_text(&node->out[i]->type, text) : "-");
    rb_buffer_text(out, "\n");
}

/* Values that exist before the first node runs; constants of one element are printed where they are
 * used. */
static void print_given(const struct rb_value *value, struct rb_buffer *out)
{
    static const char *const words[] = {
        [RB_VALUE_INPUT] = "input",
        [RB_VALUE_WEIGHT] = "weight",
        [RB_VALUE_BUFFER] = "buffer",
        [RB_VALUE_CONST] = "const",
    };
    char text[RB_TENSOR_TEXT];

    if (value->role == RB_VALUE_TEMP ||
        (value->role == RB_VALUE_CONST && rb_tensor_elements(&value->type) == 1))
        return;
    rb_buffer_format(out, "%s ", words[value->role]);
    print_use(value, out);
    rb_buffer_format(out, " : %s%s%s\n", rb_tensor_text(&value->type, text),
                     value->frozen ? " frozen" : "", value->statistic ? " statistic" : "");
}

void rb_graph_print(const struct rb_graph *graph, struct rb_buffer *out)
{
    for (int i = 0; i < graph->n_values; i++)
        print_given(graph->values[i], out);
    for (int i = 0; i < graph->n_nodes; i++)
        print_node(graph->nodes[i], out);
    for (int i = 0; i < graph->n_outputs; i++) {
        rb_buffer_text(out, "output ");
        print_use(graph->outputs[i], out);
        rb_buffer_text(out, "\n");
    }
    for (int i = 0; i < graph->n_contributions; i++) {
        rb_buffer_text(out, "contribute ");
        print_use(graph->contributions[i].value, out);
        rb_buffer_text(out, " to ");
        print_use(graph->contributions[i].variable, out);
        rb_buffer_text(out, "\n");
    }
}
