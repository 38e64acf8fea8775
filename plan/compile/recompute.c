/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/recompute.h"

#include <stdlib.h>
#include <string.h>

static bool is_view(const struct rb_node *node)
{
    return rb_op_info(node->op)->kind == RB_KIND_VIEW;
}

static int64_t bytes_of(const struct rb_value *value)
{
    return rb_tensor_elements(&value->type) * (int64_t)rb_dtype_size(value->type.dtype);
}

/* ---- Cutting -------------------------------------------------------------------------------- */

/* For each value that a node makes: the node's place, the last reader in the forward part, and
 * whether the gradient reads it.  A view counts as the value that it views. */
struct lives {
    int *made, *last;
    bool *kept;
};

static const struct rb_value *root_of(const struct rb_value *value)
{
    while (value->maker && is_view(value->maker))
        value = value->maker->in[0];
    return value;
}

static void find_lives(const struct rb_graph *graph, int end, struct lives *lives)
{
    for (int i = 0; i < graph->n_values; i++)
        lives->made[i] = lives->last[i] = -1;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];

        for (int j = 0; j < node->n_out && i < end && !is_view(node); j++)
            if (node->out[j])
                lives->made[node->out[j]->id] = i;
        for (int j = 0; j < node->n_in; j++) {
            const struct rb_value *root = node->in[j] ? root_of(node->in[j]) : NULL;

            if (!root || is_view(node))
                continue;
            if (i < end)
                lives->last[root->id] = i;
            else
                lives->kept[root->id] = true;
        }
    }
}

/* Bytes that the gradient reads, by the place that makes them; bytes that cross, by cut. */
static void weigh(const struct rb_graph *graph, int end, int64_t *ret_stash, int64_t *ret_crossing)
{
    struct lives lives = {rb_alloc(sizeof(int) * (size_t)graph->n_values),
                          rb_alloc(sizeof(int) * (size_t)graph->n_values),
                          rb_alloc(sizeof(bool) * (size_t)graph->n_values)};

    find_lives(graph, end, &lives);
    for (int i = 0; i < graph->n_values; i++) {
        int64_t bytes = bytes_of(graph->values[i]);

        if (lives.made[i] < 0)
            continue;
        if (lives.kept[i])
            ret_stash[lives.made[i]] += bytes;
        if (lives.last[i] <= lives.made[i])
            continue;
        ret_crossing[lives.made[i]] += bytes;
        ret_crossing[lives.last[i]] -= bytes;
    }
    for (int i = 1; i < end; i++) {
        ret_stash[i] += ret_stash[i - 1];
        ret_crossing[i] += ret_crossing[i - 1];
    }
    free(lives.made);
    free(lives.last);
    free(lives.kept);
}

void rb_recompute_cut(const struct rb_graph *graph, int segments,
                      struct rb_recompute_cuts *ret_cuts)
{
    int end = rb_graph_forward_end(graph);
    int64_t *stash = rb_alloc(sizeof(*stash) * (size_t)(end + 1));
    int64_t *crossing = rb_alloc(sizeof(*crossing) * (size_t)(end + 1));
    int64_t whole, half;

    *ret_cuts = (struct rb_recompute_cuts){0};
    weigh(graph, end, stash, crossing);
    whole = end > 0 ? stash[end - 1] : 0;
    half = whole / segments / 2;
    for (int k = 1; k < segments && k < RB_RECOMPUTE_SEGMENTS; k++) {
        int64_t target = whole / segments * k;
        int best = -1;

        for (int i = 0; i + 1 < end; i++) {
            if (stash[i] < target - half || stash[i] > target + half)
                continue;
            if (best < 0 || crossing[i] < crossing[best] ||
                (crossing[i] == crossing[best] &&
                 llabs(stash[i] - target) < llabs(stash[best] - target)))
                best = i;
        }
        if (best >= 0 && (ret_cuts->n == 0 || best > ret_cuts->place[ret_cuts->n - 1]))
            ret_cuts->place[ret_cuts->n++] = best;
    }
    free(stash);
    free(crossing);
}

/* ---- Computing again ------------------------------------------------------------------------ */

struct recompute {
    struct rb_graph *graph;
    const struct rb_recompute_cuts *cuts;
    int end;
    int n_values;            /* that were there before */
    int *place;              /* by value: of the forward node that makes it, or -1 */
    bool *kept;              /* by value: need not be made again */
    bool *wanted;            /* by value: the gradient, or what is made again for it, reads it */
    struct rb_value **again; /* by value: made once more; NULL: not yet */
};

static int segment_of(const struct recompute *recompute, int place)
{
    int segment = 0;

    while (segment < recompute->cuts->n && place > recompute->cuts->place[segment])
        segment++;
    return segment;
}

/* Does the node read weights alone?  Those do not change within a step, so its result is at
 * hand. */
static bool of_weights(const struct rb_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] &&
            (node->in[i]->role == RB_VALUE_TEMP || node->in[i]->role == RB_VALUE_INPUT))
            return false;
    return true;
}

static void keep(struct recompute *recompute, const struct rb_value *value)
{
    recompute->kept[value->id] = true;
}

/* Kept are the values that cross a cut, the last segment, and values that the forward part does not
 * make. */
static void find_kept(struct recompute *recompute)
{
    const struct rb_graph *graph = recompute->graph;

    for (int i = 0; i < graph->n_values; i++)
        recompute->place[i] = -1;
    for (int i = 0; i < recompute->end; i++) {
        const struct rb_node *node = graph->nodes[i];
        int segment = segment_of(recompute, i);

        for (int j = 0; j < node->n_out; j++) {
            if (!node->out[j])
                continue;
            recompute->place[node->out[j]->id] = i;
            if (segment == recompute->cuts->n || of_weights(node))
                keep(recompute, node->out[j]);
        }
        for (int j = 0; j < node->n_in; j++)
            for (struct rb_value *value = node->in[j];
                 value && recompute->place[value->id] >= 0 &&
                 segment_of(recompute, recompute->place[value->id]) < segment;
                 value = is_view(value->maker) ? value->maker->in[0] : NULL)
                keep(recompute, value);
    }
    for (int i = 0; i < graph->n_values; i++)
        if (recompute->place[i] < 0)
            recompute->kept[i] = true;
}

static void want(struct recompute *recompute, const struct rb_value *value)
{
    if (value && !recompute->kept[value->id])
        recompute->wanted[value->id] = true;
}

static bool is_wanted(const struct recompute *recompute, const struct rb_node *node)
{
    for (int j = 0; j < node->n_out; j++)
        if (node->out[j] && recompute->wanted[node->out[j]->id])
            return true;
    return false;
}

static void find_wanted(struct recompute *recompute)
{
    const struct rb_graph *graph = recompute->graph;

    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];

        if (i >= recompute->end || is_wanted(recompute, node))
            for (int j = 0; j < node->n_in; j++)
                want(recompute, node->in[j]);
    }
}

static struct rb_value *now(const struct recompute *recompute, struct rb_value *value)
{
    struct rb_value *again =
        value && value->id < recompute->n_values ? recompute->again[value->id] : NULL;

    return again ? again : value;
}

static void make_again(struct recompute *recompute, const struct rb_node *node)
{
    struct rb_value **in = RB_ARENA_NEW(&recompute->graph->arena, struct rb_value *, node->n_in);
    struct rb_node *copy;

    for (int j = 0; j < node->n_in; j++)
        in[j] = now(recompute, node->in[j]);
    copy = rb_graph_copy(recompute->graph, node, in);
    for (int j = 0; j < node->n_out; j++)
        if (node->out[j] && !recompute->kept[node->out[j]->id])
            recompute->again[node->out[j]->id] = copy->out[j];
}

/* Make again all wanted values of the segment, now that the first of them is wanted. */
static void make_segment(struct recompute *recompute, int segment)
{
    int first = segment > 0 ? recompute->cuts->place[segment - 1] + 1 : 0;

    for (int i = first; i <= recompute->cuts->place[segment]; i++)
        if (is_wanted(recompute, recompute->graph->nodes[i]))
            make_again(recompute, recompute->graph->nodes[i]);
}

static void serve(struct recompute *recompute, struct rb_node *node)
{
    for (int j = 0; j < node->n_in; j++) {
        struct rb_value *value = node->in[j];

        if (!value || recompute->kept[value->id])
            continue;
        if (!recompute->again[value->id])
            make_segment(recompute, segment_of(recompute, recompute->place[value->id]));
        node->in[j] = now(recompute, value);
    }
}

void rb_recompute(struct rb_graph *graph, const struct rb_recompute_cuts *cuts)
{
    struct rb_arena *arena = &graph->arena;
    struct recompute recompute = {
        .graph = graph,
        .cuts = cuts,
        .end = rb_graph_forward_end(graph),
        .n_values = graph->n_values,
        .place = RB_ARENA_NEW(arena, int, graph->n_values),
        .kept = RB_ARENA_NEW(arena, bool, graph->n_values),
        .wanted = RB_ARENA_NEW(arena, bool, graph->n_values),
        .again = RB_ARENA_NEW(arena, struct rb_value *, graph->n_values),
    };
    int n = graph->n_nodes, *before = RB_ARENA_NEW(arena, int, n + 2);

    find_kept(&recompute);
    find_wanted(&recompute);
    before[0] = n;
    for (int i = 0; i < n; i++) {
        if (i >= recompute.end)
            serve(&recompute, graph->nodes[i]);
        before[i + 1] = graph->n_nodes;
    }
    before[n + 1] = graph->n_nodes;
    rb_graph_weave(graph, n, before);
}
