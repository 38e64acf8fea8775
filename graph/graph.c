/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include "graph/onnx/onnx.h"
#include "graph/shapes/shapes.h"

#include <stdlib.h>
#include <string.h>

struct rb_graph *rb_graph_new(void)
{
    return rb_alloc(sizeof(struct rb_graph));
}

void rb_graph_free(struct rb_graph *graph)
{
    if (!graph)
        return;
    rb_graph_free(graph->whole);
    rb_onnx_close(graph->model);
    rb_arena_done(&graph->arena);
    free(graph);
}

/* Lists have room for at least the next power of two, so the room need not be stored, and a list
 * that was shortened in place can grow again. */
static void push(struct rb_arena *arena, void ***list, int *n, void *item)
{
    if (*n == 0 || (*n >= 16 && (*n & (*n - 1)) == 0)) {
        void **wider = RB_ARENA_NEW(arena, void *, *n ? 2 * *n : 16);

        if (*n)
            memcpy(wider, *list, sizeof(void *) * (size_t)*n);
        *list = wider;
    }
    (*list)[(*n)++] = item;
}

bool rb_graph_reads(const struct rb_graph *graph, const struct rb_value *value)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i]->n_in; k++)
            if (graph->nodes[i]->in[k] == value)
                return true;
    return false;
}

struct rb_value *rb_graph_value(struct rb_graph *graph, enum rb_role role, const char *name,
                                const struct rb_tensor_type *type, const void *data)
{
    struct rb_value *value = RB_ARENA_NEW(&graph->arena, struct rb_value, 1);

    value->id = graph->n_values;
    value->role = role;
    value->name = rb_arena_string(&graph->arena, name ? name : "");
    value->type = *type;
    value->data = data;
    push(&graph->arena, (void ***)&graph->values, &graph->n_values, value);
    return value;
}

static bool known_attribute(const struct rb_op_info *info, const char *key)
{
    size_t length = strlen(key);

    for (const char *at = info->attributes; (at = strstr(at, key)); at += length) {
        bool begins = at == info->attributes || at[-1] == ' ';

        if (begins && (at[length] == '\0' || at[length] == ' '))
            return true;
    }
    return false;
}

static int copy_attributes(struct rb_graph *graph, struct rb_node *node,
                           const struct rb_op_info *info, int n,
                           const struct rb_graph_attribute *attributes, struct rb_why *why)
{
    node->attributes = RB_ARENA_NEW(&graph->arena, struct rb_graph_attribute, n);
    node->n_attributes = n;
    for (int i = 0; i < n; i++) {
        const struct rb_graph_attribute *from = &attributes[i];
        struct rb_graph_attribute *to = &node->attributes[i];

        if (!known_attribute(info, from->key))
            return rb_why_set(why, RB_EINTERNAL, "%s has no attribute '%s'", info->name, from->key);
        to->key = rb_arena_string(&graph->arena, from->key);
        to->n_ints = from->n_ints;
        to->ints = rb_arena_copy(&graph->arena, from->ints, sizeof(int64_t) * (size_t)from->n_ints);
        to->n_floats = from->n_floats;
        to->floats =
            rb_arena_copy(&graph->arena, from->floats, sizeof(float) * (size_t)from->n_floats);
    }
    return 0;
}

static int check_counts(const struct rb_op_info *info, int n_in, struct rb_value *const *in,
                        int n_out, struct rb_why *why)
{
    if (info->inputs >= 0 && n_in > info->inputs)
        return rb_why_set(why, RB_EINVAL, "%d inputs, %s takes at most %d", n_in, info->name,
                          info->inputs);
    if (info->outputs >= 0 && n_out > info->outputs)
        return rb_why_set(why, RB_EINVAL, "%d outputs, %s makes at most %d", n_out, info->name,
                          info->outputs);
    if ((n_in < 1 || !in[0]) && info->kind != RB_KIND_EXCHANGE)
        return rb_why_set(why, RB_EINVAL, "the first input is missing");
    return 0;
}

int rb_graph_node(struct rb_graph *graph, enum rb_op op, const char *name, int n_in,
                  struct rb_value *const *in, int n_attributes,
                  const struct rb_graph_attribute *attributes, unsigned want_out,
                  const struct rb_tensor_type *given_type, struct rb_node **ret_node,
                  struct rb_why *why)
{
    const struct rb_op_info *info = rb_op_info(op);
    struct rb_node *node = RB_ARENA_NEW(&graph->arena, struct rb_node, 1);
    struct rb_shapes shapes = {.node = node, .given = given_type, .why = why};
    int err;

    if (!info)
        return rb_why_set(why, RB_EINTERNAL, "%d is no operator", (int)op);
    while (n_in > 0 && !in[n_in - 1])
        n_in--;
    node->op = op;
    node->name = rb_arena_string(&graph->arena, name ? name : "");
    node->n_in = n_in;
    node->in = rb_arena_copy(&graph->arena, in, sizeof *in * (size_t)n_in);
    node->n_out = want_out ? 32 - __builtin_clz(want_out) : 0;
    node->out = RB_ARENA_NEW(&graph->arena, struct rb_value *, node->n_out);
    err = check_counts(info, n_in, in, node->n_out, why);
    if (!err)
        err = copy_attributes(graph, node, info, n_attributes, attributes, why);
    if (!err)
        err = rb_shapes_infer(&shapes);
    if (err)
        return err;
    for (int i = 0; i < node->n_out; i++) {
        if (!(want_out >> i & 1u))
            continue;
        node->out[i] = rb_graph_value(graph, RB_VALUE_TEMP, name, &shapes.out[i], NULL);
        node->out[i]->maker = node;
        node->out[i]->output = i;
    }
    node->id = graph->n_nodes;
    push(&graph->arena, (void ***)&graph->nodes, &graph->n_nodes, node);
    if (ret_node)
        *ret_node = node;
    return 0;
}

struct rb_node *rb_graph_copy(struct rb_graph *graph, const struct rb_node *node,
                              struct rb_value *const *in)
{
    struct rb_node *copy = rb_arena_copy(&graph->arena, node, sizeof(*node));

    copy->in = rb_arena_copy(&graph->arena, in, sizeof(*in) * (size_t)node->n_in);
    copy->out = RB_ARENA_NEW(&graph->arena, struct rb_value *, node->n_out);
    for (int i = 0; i < node->n_out; i++) {
        if (!node->out[i])
            continue;
        copy->out[i] =
            rb_graph_value(graph, RB_VALUE_TEMP, node->out[i]->name, &node->out[i]->type, NULL);
        copy->out[i]->maker = copy;
        copy->out[i]->output = i;
    }
    push(&graph->arena, (void ***)&graph->nodes, &graph->n_nodes, copy);
    return copy;
}

static void mark(const struct rb_value *value, bool *live)
{
    if (value)
        live[value->id] = true;
}

static bool makes_live(const struct rb_node *node, const bool *live)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] && live[node->out[i]->id])
            return true;
    return false;
}

void rb_graph_sweep(struct rb_graph *graph, bool *ret_live)
{
    int kept = 0;

    mark(graph->loss, ret_live);
    mark(graph->count, ret_live);
    mark(graph->correct, ret_live);
    for (int i = 0; i < graph->n_outputs; i++)
        mark(graph->outputs[i], ret_live);
    for (int i = 0; i < graph->n_values; i++)
        mark(graph->values[i]->update, ret_live);
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];

        if (!makes_live(node, ret_live))
            continue;
        for (int j = 0; j < node->n_in; j++)
            mark(node->in[j], ret_live);
        for (int j = 0; j < node->n_out; j++)
            mark(node->out[j], ret_live);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        struct rb_node *node = graph->nodes[i];

        if (!makes_live(node, ret_live))
            continue;
        node->id = kept;
        graph->nodes[kept++] = node;
    }
    graph->n_nodes = kept;
}

static void use(int *uses, const struct rb_value *value)
{
    if (value)
        uses[value->id]++;
}

void rb_graph_count_uses(const struct rb_graph *graph, int *ret_uses)
{
    memset(ret_uses, 0, (size_t)graph->n_values * sizeof *ret_uses);
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            use(ret_uses, graph->nodes[i]->in[j]);
    for (int i = 0; i < graph->n_outputs; i++)
        use(ret_uses, graph->outputs[i]);
    for (int i = 0; i < graph->n_contributions; i++)
        use(ret_uses, graph->contributions[i].value);
    for (int i = 0; i < graph->n_values; i++)
        use(ret_uses, graph->values[i]->update);
    use(ret_uses, graph->loss);
    use(ret_uses, graph->count);
    use(ret_uses, graph->correct);
}

int rb_graph_forward_end(const struct rb_graph *graph)
{
    int end = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_out; j++) {
            const struct rb_value *value = graph->nodes[i]->out[j];

            if (value && (value == graph->loss || value == graph->count || value == graph->correct))
                end = i + 1;
        }
    return end;
}

void rb_graph_weave(struct rb_graph *graph, int n, const int *before)
{
    struct rb_node **order = RB_ARENA_NEW(&graph->arena, struct rb_node *, graph->n_nodes);
    int placed = 0;

    for (int i = 0; i <= n; i++) {
        for (int j = before[i]; j < before[i + 1]; j++)
            order[placed++] = graph->nodes[j];
        if (i < n)
            order[placed++] = graph->nodes[i];
    }
    memcpy(graph->nodes, order, sizeof(*order) * (size_t)placed);
}

struct rb_value *rb_graph_int64s(struct rb_graph *graph, const char *name, const int64_t *data,
                                 int n)
{
    struct rb_tensor_type type = {.dtype = RB_I64, .rank = 1, .dim = {n}};

    return rb_graph_value(graph, RB_VALUE_CONST, name, &type,
                          rb_arena_copy(&graph->arena, data, sizeof *data * (size_t)n));
}

struct rb_value *rb_graph_scalar(struct rb_graph *graph, float x)
{
    struct rb_tensor_type type = {.dtype = RB_F32};

    return rb_graph_value(graph, RB_VALUE_CONST, NULL, &type,
                          rb_arena_copy(&graph->arena, &x, sizeof x));
}

struct rb_graph_attribute rb_attr_ints(const char *key, const int64_t *ints, int n)
{
    return (struct rb_graph_attribute){.key = key, .ints = (int64_t *)ints, .n_ints = n};
}

struct rb_graph_attribute rb_attr_float(const char *key, const float *value)
{
    return (struct rb_graph_attribute){.key = key, .floats = (float *)value, .n_floats = 1};
}

const struct rb_graph_attribute *rb_node_attribute(const struct rb_node *node, const char *key)
{
    for (int i = 0; i < node->n_attributes; i++)
        if (!strcmp(node->attributes[i].key, key))
            return &node->attributes[i];
    return NULL;
}

int64_t rb_node_int(const struct rb_node *node, const char *key, int64_t otherwise)
{
    const struct rb_graph_attribute *attribute = rb_node_attribute(node, key);

    return attribute && attribute->n_ints == 1 ? attribute->ints[0] : otherwise;
}

float rb_node_float(const struct rb_node *node, const char *key, float otherwise)
{
    const struct rb_graph_attribute *attribute = rb_node_attribute(node, key);

    return attribute && attribute->n_floats == 1 ? attribute->floats[0] : otherwise;
}
