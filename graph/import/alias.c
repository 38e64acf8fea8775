/* SPDX-License-Identifier: Apache-2.0 */
/* Other names of weights and buffers.  An exporter that writes equal parameters once leaves
 *
 *     Identity('l1.bias') -> 'l2.bias'
 *
 * and a file of the module's weights may have the one name, the other, or both. */
#include "graph/import/import.h"

#include <ctype.h>
#include <string.h>

/* Does the name belong to a tensor inside a module: "l2.bias", not "/l2/Identity_output_0", nor a
 * tracer's "input.3"? */
static bool is_of_a_module(const char *name)
{
    const char *dot = strrchr(name, '.');

    for (const char *at = name; *at; at++)
        if (!isgraph((unsigned char)*at))
            return false;
    return dot && dot != name && (isalpha((unsigned char)dot[1]) || dot[1] == '_') &&
           !strchr(name, '/') && !strchr(name, ':');
}

static const struct rb_value *named_by(const struct rb_import *import, const Onnx__NodeProto *node)
{
    const struct rb_value *value;

    if (!node->op_type || strcmp(node->op_type, "Identity") || node->n_output != 1 ||
        !node->output[0] || !is_of_a_module(node->output[0]))
        return NULL;
    value = rb_names_get(&import->values, node->output[0]);
    if (!value || (value->role != RB_VALUE_WEIGHT && value->role != RB_VALUE_BUFFER))
        return NULL;
    return value;
}

/* A running statistic is nobody's weight, and the module writes it down by itself: what has another
 * name beside it was merged by the exporter, and would be overwritten by what batches have. */
static int check_apart(struct rb_import *import, const struct rb_value *value, const char *name)
{
    char a[80], b[80];

    if (!value->update)
        return 0;
    return RB_IMPORT_NO(import,
                        "'%s' and '%s' are one tensor here, and a running statistic: in evaluation "
                        "mode the exporter makes one of those that are equal; export the model in "
                        "training mode (rubatoctl model check prints the call)",
                        rb_onnx_quote(name, a), rb_onnx_quote(value->name, b));
}

int rb_import_aliases(struct rb_import *import)
{
    const Onnx__GraphProto *from = import->model->proto->graph;
    struct rb_graph *graph = import->graph;
    int err = 0;

    graph->aliases = RB_ARENA_NEW(&graph->arena, struct rb_alias, from->n_node);
    for (size_t i = 0; !err && i < from->n_node; i++) {
        const struct rb_value *value = named_by(import, from->node[i]);

        if (!value)
            continue;
        err = check_apart(import, value, from->node[i]->output[0]);
        graph->aliases[graph->n_aliases++] =
            (struct rb_alias){rb_arena_string(&graph->arena, from->node[i]->output[0]), value};
    }
    return err;
}
