/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that the module changes while it trains: spectral norms, moving averages, queues.  Except
 * for the statistics of batch norms they stay as the file has them. */
#include "graph/advice_inside.h"

#include "base/arena.h"

#include <string.h>

static bool is_statistic(const Onnx__NodeProto *node, size_t input)
{
    return input >= 3 && node->op_type && !strcmp(node->op_type, "BatchNormalization");
}

/* Is the buffer read for its contents?  Integers are mere counters. */
static bool is_read(const struct rb_onnx *model, const char *name)
{
    const Onnx__TensorProto *tensor = rb_names_get(&model->initializers, name);
    const Onnx__GraphProto *graph = model->proto->graph;

    if (!tensor || tensor->data_type != RB_F32)
        return false;
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t j = 0; j < graph->node[i]->n_input; j++)
            if (!strcmp(graph->node[i]->input[j], name) && !is_statistic(graph->node[i], j))
                return true;
    return false;
}

void rb_advice_check_changed(struct rb_advice_search *search)
{
    const struct rb_names *changed = &search->model->changed;
    const char *first = NULL;
    char room[80];
    int n = 0;

    for (size_t i = 0; i < changed->room; i++) {
        const char *name = changed->slots[i].name;

        if (!name || !is_read(search->model, name))
            continue;
        n++;
        first = !first || strcmp(name, first) < 0 ? name : first;
    }
    if (n)
        rb_advice_say_module(
            search,
            rb_arena_format(search->arena,
                            "%d of the module's buffers ('%s' ...) are changed by it while "
                            "it trains, as those of spectral norms and moving averages "
                            "are; here they stay as the file has them, and gradients go "
                            "through what makes them",
                            n, rb_onnx_quote(first, room)),
            "a module that changes no buffers but the statistics of batch norms");
}
