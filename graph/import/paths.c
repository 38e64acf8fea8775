/* SPDX-License-Identifier: Apache-2.0 */
/* A model that is exported for training may drop whole paths at random.  Exporters write no Dropout
 * for that, but the operators by which torchvision, timm and transformers do it.  A mask is 1 with
 * a chance of p,
 *
 *     Cast(Less(uniform, p))    or    Floor(Add(uniform, p)),
 *
 * and occurs as Div(mask, p), or as Mul(Div(x, p), mask): 1 and x where nothing is dropped. */
#include "graph/import/paths.h"

#include "graph/fold.h"

#include <math.h>

/* The number that all elements are equal to, if it is known; else 0, which is no chance. */
static double number_of(const struct rb_value *value)
{
    const struct rb_node *expand = rb_graph_made_by(value, RB_OP_EXPAND);
    double first;

    value = expand ? expand->in[0] : value;
    if (!value || !rb_fold_known(value) || value->type.dtype != RB_F32)
        return 0;
    first = rb_tensor_elements(&value->type) ? rb_fold_real(value, 0) : 0;
    for (int64_t i = 1; i < rb_tensor_elements(&value->type); i++)
        if (rb_fold_real(value, i) != first)
            return 0;
    return first;
}

static bool is_uniform(const struct rb_value *value)
{
    const struct rb_node *node = rb_graph_made_by(value, RB_OP_UNIFORM);

    return node && number_of(node->in[0]) == 1;
}

/* The chance that a mask is 1; 0: it is no mask. */
static double chance_of(const struct rb_value *value)
{
    const struct rb_node *node = rb_graph_made_by(value, RB_OP_FLOOR);

    if (node) {
        node = rb_graph_made_by(node->in[0], RB_OP_ADD);
        if (node && is_uniform(node->in[0]))
            return number_of(node->in[1]);
        return node && is_uniform(node->in[1]) ? number_of(node->in[0]) : 0;
    }
    while (rb_graph_made_by(value, RB_OP_CAST))
        value = value->maker->in[0];
    node = rb_graph_made_by(value, RB_OP_LESS);
    return node && is_uniform(node->in[0]) ? number_of(node->in[1]) : 0;
}

/* Does dividing by this number make up for a mask of this chance, so that the quotient stands for
 * 1? */
static bool is_made_up_for(double chance, const struct rb_value *divisor)
{
    return chance > 0 && chance <= 1 && fabs(number_of(divisor) - chance) <= 1e-6 * chance;
}

static struct rb_value *one_of(struct rb_graph *graph, const char *name)
{
    struct rb_tensor_type type = {.dtype = RB_F32};
    static const float one = 1;

    return rb_graph_value(graph, RB_VALUE_CONST, name, &type, &one);
}

static void keep_divided(struct rb_graph *graph, struct rb_node *node)
{
    if (!is_made_up_for(chance_of(node->in[0]), node->in[1]))
        return;
    node->op = RB_OP_EXPAND;
    node->in[0] = one_of(graph, node->name);
    node->n_in = 1;
}

static void keep_product(struct rb_graph *graph, struct rb_node *node)
{
    for (int i = 0; i < 2; i++) {
        const struct rb_node *div = rb_graph_made_by(node->in[i], RB_OP_DIV);

        if (!div || !rb_tensor_same(&div->in[0]->type, &node->out[0]->type) ||
            !is_made_up_for(chance_of(node->in[1 - i]), div->in[1]))
            continue;
        node->in[i] = div->in[0];
        node->in[1 - i] = one_of(graph, node->name);
        return;
    }
}

void rb_import_keep_paths(struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        struct rb_node *node = graph->nodes[i];

        if (node->op == RB_OP_DIV)
            keep_divided(graph, node);
        else if (node->op == RB_OP_MUL)
            keep_product(graph, node);
    }
}
