/* SPDX-License-Identifier: Apache-2.0 */
/* x + (y - x) is only ever written with a detach() around the difference, for the value of y with
 * the gradient of x.  Files of the newer exporter have an Identity there; in others nothing is left
 * of the detach(). */
#include "graph/advice_inside.h"

#include "base/arena.h"
#include "graph/names.h"

#include <string.h>

static bool is_binary(const Onnx__NodeProto *node, const char *op)
{
    return node->op_type && !strcmp(node->op_type, op) && node->n_input == 2 &&
           node->n_output == 1 && node->input[0] && node->input[1] && node->output[0];
}

static bool adds_a_difference(const Onnx__NodeProto *add, struct rb_names *differences)
{
    for (int i = 0; i < 2; i++) {
        const Onnx__NodeProto *difference = rb_names_get(differences, add->input[i]);

        if (difference && !strcmp(difference->input[1], add->input[1 - i]))
            return true;
    }
    return false;
}

void rb_advice_check_detached(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    struct rb_names differences = {0};
    const char *found = NULL;
    char room[80];

    for (size_t i = 0; i < graph->n_node; i++)
        if (is_binary(graph->node[i], "Sub"))
            rb_names_add(&differences, graph->node[i]->output[0], graph->node[i]);
    for (size_t i = 0; i < graph->n_node && !found; i++)
        if (is_binary(graph->node[i], "Add") && adds_a_difference(graph->node[i], &differences))
            found = graph->node[i]->output[0];
    rb_names_done(&differences);
    if (found)
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "'%s' is x + (y - x), which is y with the gradient of x where "
                            "the difference is detached; this file does not say what "
                            "is, and so the gradient is that of y",
                            rb_onnx_quote(found, room)),
            "dynamo=True, optimize=False: the newer exporter says what is detached");
}
