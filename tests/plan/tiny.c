/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/tiny.h"

#include "graph/train.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void must(int err, const struct rb_why *why)
{
    if (err)
        fail_msg("%s", why->text);
}

struct tiny tiny_new(int64_t batch, bool train)
{
    struct tiny tiny = {.graph = rb_graph_new(), .seed = 1};

    tiny.graph->batch = batch;
    tiny.graph->train = train;
    return tiny;
}

struct rb_value *tiny_features(struct tiny *tiny, enum rb_dtype dtype, struct rb_tensor_type type)
{
    type.dtype = dtype;
    tiny->graph->features = rb_graph_value(tiny->graph, RB_VALUE_INPUT, "features", &type, NULL);
    return tiny->graph->features;
}

/* Uniform numbers in [-1, 1). */
static float next(struct tiny *tiny)
{
    tiny->seed = tiny->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(tiny->seed >> 40) / (double)(1 << 23) - 1.0);
}

static float *contents(struct tiny *tiny, const struct rb_tensor_type *type, float center,
                       float spread)
{
    int64_t n = rb_tensor_elements(type);
    float *data = RB_ARENA_NEW(&tiny->graph->arena, float, n);

    for (int64_t i = 0; i < n; i++)
        data[i] = center + spread * next(tiny);
    return data;
}

struct rb_value *tiny_weight(struct tiny *tiny, const char *name, struct rb_tensor_type type,
                             float center, float spread)
{
    return rb_graph_value(tiny->graph, RB_VALUE_WEIGHT, name, &type,
                          contents(tiny, &type, center, spread));
}

struct rb_value *tiny_buffer(struct tiny *tiny, const char *name, struct rb_tensor_type type,
                             float value)
{
    return rb_graph_value(tiny->graph, RB_VALUE_BUFFER, name, &type,
                          contents(tiny, &type, value, 0));
}

struct rb_value *tiny_constant(struct tiny *tiny, struct rb_tensor_type type, float center,
                               float spread)
{
    return rb_graph_value(tiny->graph, RB_VALUE_CONST, NULL, &type,
                          contents(tiny, &type, center, spread));
}

struct rb_node *tiny_node(struct tiny *tiny, enum rb_op op, const char *name, unsigned want,
                          const struct rb_tensor_type *given, int n_attributes,
                          const struct rb_graph_attribute *attributes, int n_in,
                          struct rb_value *const *in)
{
    struct rb_node *node;
    struct rb_why why;

    must(rb_graph_node(tiny->graph, op, name, n_in, in, n_attributes, attributes, want, given,
                       &node, &why),
         &why);
    return node;
}

struct rb_value *tiny_with(struct tiny *tiny, enum rb_op op, const char *name, int n_in,
                           struct rb_value *const *in, const char *key, const int64_t *ints, int n)
{
    struct rb_graph_attribute attribute = {0};

    if (key)
        attribute = rb_attr_ints(key, ints, n);
    return tiny_node(tiny, op, name, 1, NULL, key ? 1 : 0, &attribute, n_in, in)->out[0];
}

struct rb_value *tiny_one(struct tiny *tiny, enum rb_op op, const char *name, struct rb_value *x)
{
    return tiny_with(tiny, op, name, 1, &x, NULL, NULL, 0);
}

struct rb_value *tiny_two(struct tiny *tiny, enum rb_op op, const char *name, struct rb_value *a,
                          struct rb_value *b)
{
    return tiny_with(tiny, op, name, 2, (struct rb_value *[]){a, b}, NULL, NULL, 0);
}

struct rb_value *tiny_reshape(struct tiny *tiny, struct rb_value *x, struct rb_tensor_type type)
{
    type.dtype = x->type.dtype;
    return tiny_node(tiny, RB_OP_RESHAPE, "view", 1, &type, 0, NULL, 1, &x)->out[0];
}

void tiny_finish(struct tiny *tiny, struct rb_value *output, const char *loss,
                 struct rb_tensor_type sample_targets)
{
    struct rb_graph *graph = tiny->graph;
    struct rb_loss_options options = {
        .type = loss, .ignore_index = -100, .targets = sample_targets};
    struct rb_why why;

    graph->outputs = RB_ARENA_NEW(&graph->arena, struct rb_value *, 1);
    graph->outputs[0] = output;
    graph->n_outputs = 1;
    must(rb_loss_attach(graph, &options, &why), &why);
    must(rb_fuse(graph, &why), &why);
    if (graph->train)
        must(rb_autodiff(graph, &why), &why);
}

static struct rb_value *product(struct tiny *tiny, const char *name, struct rb_value *a,
                                struct rb_value *b, bool trans_b)
{
    const int64_t one = 1;

    return tiny_with(tiny, RB_OP_MATMUL, name, 2, (struct rb_value *[]){a, b},
                     trans_b ? "transB" : NULL, &one, 1);
}

struct rb_graph *tiny_mlp(int64_t batch, bool train)
{
    struct tiny tiny = tiny_new(batch, train);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(batch, 6));
    struct rb_value *w1 = tiny_weight(&tiny, "fc1.weight", TYPE(8, 6), 0, 0.6f);
    struct rb_value *b1 = tiny_weight(&tiny, "fc1.bias", TYPE(8), 0, 0.2f);
    struct rb_value *w2 = tiny_weight(&tiny, "fc2.weight", TYPE(3, 8), 0, 0.6f);
    struct rb_value *b2 = tiny_weight(&tiny, "fc2.bias", TYPE(3), 0, 0.2f);
    struct rb_tensor_type label = {.dtype = RB_I64};

    x = tiny_two(&tiny, RB_OP_ADD, "fc1.add", product(&tiny, "fc1", x, w1, true), b1);
    x = tiny_one(&tiny, RB_OP_RELU, "relu", x);
    x = tiny_two(&tiny, RB_OP_ADD, "fc2.add", product(&tiny, "fc2", x, w2, true), b2);
    tiny_finish(&tiny, x, "cross_entropy", label);
    return tiny.graph;
}

static struct rb_value *batch_norm(struct tiny *tiny, const char *name, struct rb_value *x,
                                   struct rb_value *const weights[4])
{
    const float epsilon = 1e-5f;
    struct rb_graph_attribute attribute = rb_attr_float("epsilon", &epsilon);
    struct rb_value *in[] = {x, weights[0], weights[1], weights[2], weights[3]};
    struct rb_node *node;

    for (int i = 2; i < 4; i++) {
        weights[i]->statistic = true;
        weights[i]->momentum = 0.9f;
    }
    if (!tiny->graph->train)
        return tiny_node(tiny, RB_OP_BATCH_NORM_EVAL, name, 1, NULL, 1, &attribute, 5, in)->out[0];
    node = tiny_node(tiny, RB_OP_BATCH_NORM, name, 7, NULL, 1, &attribute, 3, in);
    weights[2]->update = node->out[1];
    weights[3]->update = node->out[2];
    return node->out[0];
}

struct rb_graph *tiny_cnn(int64_t batch, bool train)
{
    const int64_t ones[] = {1, 1, 1, 1}, twos[] = {2, 2}, zeros[] = {0, 0, 0, 0};
    const float ratio = 0.25f;
    struct tiny tiny = tiny_new(batch, train);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(batch, 2, 6, 6));
    struct rb_value *wc = tiny_weight(&tiny, "conv.weight", TYPE(4, 2, 3, 3), 0, 0.4f);
    struct rb_value *bc = tiny_weight(&tiny, "conv.bias", TYPE(4), 0, 0.1f);
    struct rb_value *const norm[] = {tiny_weight(&tiny, "bn.weight", TYPE(4), 1, 0.2f),
                                     tiny_weight(&tiny, "bn.bias", TYPE(4), 0, 0.2f),
                                     tiny_buffer(&tiny, "bn.running_mean", TYPE(4), 0),
                                     tiny_buffer(&tiny, "bn.running_var", TYPE(4), 1)};
    struct rb_value *wf = tiny_weight(&tiny, "fc.weight", TYPE(3, 36), 0, 0.3f);
    struct rb_value *bf = tiny_weight(&tiny, "fc.bias", TYPE(3), 0, 0.1f);
    struct rb_tensor_type label = {.dtype = RB_I64};
    struct rb_graph_attribute conv[] = {
        rb_attr_ints("strides", ones, 2), rb_attr_ints("pads", ones, 4),
        rb_attr_ints("dilations", ones, 2), rb_attr_ints("group", ones, 1)};
    struct rb_graph_attribute pool[] = {
        rb_attr_ints("kernel", twos, 2), rb_attr_ints("strides", twos, 2),
        rb_attr_ints("pads", zeros, 4), rb_attr_ints("dilations", ones, 2),
        rb_attr_ints("ceil", zeros, 1)};
    struct rb_graph_attribute drop = rb_attr_float("ratio", &ratio);

    x = tiny_node(&tiny, RB_OP_CONV, "conv", 1, NULL, 4, conv, 3, (struct rb_value *[]){x, wc, bc})
            ->out[0];
    x = batch_norm(&tiny, "bn", x, norm);
    x = tiny_one(&tiny, RB_OP_RELU, "relu", x);
    x = tiny_node(&tiny, RB_OP_MAX_POOL, "pool", 1, NULL, 5, pool, 1, &x)->out[0];
    x = tiny_reshape(&tiny, x, TYPE(batch, 36));
    if (train)
        x = tiny_node(&tiny, RB_OP_DROPOUT, "drop", 1, NULL, 1, &drop, 1, &x)->out[0];
    x = tiny_two(&tiny, RB_OP_ADD, "fc.add", product(&tiny, "fc", x, wf, true), bf);
    tiny_finish(&tiny, x, "cross_entropy", label);
    return tiny.graph;
}

static struct rb_value *conv(struct tiny *tiny, const char *name, struct rb_value *x, int64_t out,
                             int64_t kernel, int64_t stride)
{
    const int64_t ones[] = {1, 1, 1, 1}, strides[] = {stride, stride};
    const int64_t pad = kernel / 2, pads[] = {pad, pad, pad, pad};
    struct rb_graph_attribute attributes[] = {
        rb_attr_ints("strides", strides, 2), rb_attr_ints("pads", pads, 4),
        rb_attr_ints("dilations", ones, 2), rb_attr_ints("group", ones, 1)};
    struct rb_arena *arena = &tiny->graph->arena;
    int64_t in = x->type.dim[1];
    struct rb_value *inputs[] = {
        x,
        tiny_weight(tiny, rb_arena_format(arena, "%s.weight", name), TYPE(out, in, kernel, kernel),
                    0, 0.4f),
        tiny_weight(tiny, rb_arena_format(arena, "%s.bias", name), TYPE(out), 0, 0.1f)};

    return tiny_node(tiny, RB_OP_CONV, name, 1, NULL, 4, attributes, 3, inputs)->out[0];
}

static struct rb_value *pool(struct tiny *tiny, enum rb_op op, const char *name, struct rb_value *x)
{
    const int64_t threes[] = {3, 3}, twos[] = {2, 2}, ones[] = {1, 1, 1, 1}, zero = 0;
    struct rb_graph_attribute attributes[] = {
        rb_attr_ints("kernel", threes, 2), rb_attr_ints("strides", twos, 2),
        rb_attr_ints("pads", ones, 4), rb_attr_ints("ceil", &zero, 1)};

    return tiny_node(tiny, op, name, 1, NULL, 4, attributes, 1, &x)->out[0];
}

struct rb_graph *tiny_residual(int64_t batch, bool train)
{
    struct tiny tiny = tiny_new(batch, train);
    const int64_t places[] = {2, 3};
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(batch, 3, 8, 8)), *way, *gate;
    struct rb_value *const norm[] = {tiny_weight(&tiny, "bn.weight", TYPE(16), 1, 0.2f),
                                     tiny_weight(&tiny, "bn.bias", TYPE(16), 0, 0.2f),
                                     tiny_buffer(&tiny, "bn.running_mean", TYPE(16), 0),
                                     tiny_buffer(&tiny, "bn.running_var", TYPE(16), 1)};
    struct rb_tensor_type label = {.dtype = RB_I64};

    x = batch_norm(&tiny, "bn", conv(&tiny, "stem", x, 16, 3, 1), norm);
    x = pool(&tiny, RB_OP_MAX_POOL, "pool", tiny_one(&tiny, RB_OP_RELU, "relu", x));
    way = conv(&tiny, "way", x, 32, 1, 1);
    x = tiny_one(&tiny, RB_OP_TANH, "bend", conv(&tiny, "main", x, 32, 3, 1));
    x = tiny_two(&tiny, RB_OP_ADD, "join", x, way);
    x = tiny_two(&tiny, RB_OP_MUL, "scale", x,
                 tiny_weight(&tiny, "scale", TYPE(32, 1, 1), 1, 0.2f));
    x = pool(&tiny, RB_OP_AVERAGE_POOL, "average", x);
    gate = tiny_with(&tiny, RB_OP_REDUCE_MEAN, "squeeze", 1, &x, "axes", places, 2);
    x = tiny_two(&tiny, RB_OP_MUL, "gated", x, tiny_one(&tiny, RB_OP_SIGMOID, "gate", gate));
    x = conv(&tiny, "odd", x, 20, 1, 1); /* 20 channels are no blocks */
    x = tiny_with(&tiny, RB_OP_REDUCE_MEAN, "mean", 1, &x, "axes", places, 2);
    x = product(&tiny, "fc", tiny_reshape(&tiny, x, TYPE(batch, 20)),
                tiny_weight(&tiny, "fc.weight", TYPE(3, 20), 0, 0.5f), true);
    tiny_finish(&tiny, x, "cross_entropy", label);
    return tiny.graph;
}

static struct rb_value *layer_norm(struct tiny *tiny, const char *name, struct rb_value *x)
{
    const float epsilon = 1e-5f;
    const int64_t axis = x->type.rank - 1;
    struct rb_graph_attribute attributes[] = {rb_attr_ints("axis", &axis, 1),
                                              rb_attr_float("epsilon", &epsilon)};
    struct rb_arena *arena = &tiny->graph->arena;
    struct rb_value *in[] = {x,
                             tiny_weight(tiny, rb_arena_format(arena, "%s.weight", name),
                                         TYPE(x->type.dim[axis]), 1, 0.2f),
                             tiny_weight(tiny, rb_arena_format(arena, "%s.bias", name),
                                         TYPE(x->type.dim[axis]), 0, 0.2f)};

    return tiny_node(tiny, RB_OP_LAYER_NORM, name, 1, NULL, 2, attributes, 3, in)->out[0];
}

static struct rb_value *linear(struct tiny *tiny, const char *name, struct rb_value *x,
                               int64_t width)
{
    struct rb_arena *arena = &tiny->graph->arena;
    struct rb_value *w = tiny_weight(tiny, rb_arena_format(arena, "%s.weight", name),
                                     TYPE(x->type.dim[x->type.rank - 1], width), 0, 0.5f);
    struct rb_value *b =
        tiny_weight(tiny, rb_arena_format(arena, "%s.bias", name), TYPE(width), 0, 0.1f);

    return tiny_two(tiny, RB_OP_ADD, name, product(tiny, name, x, w, false), b);
}

enum { T = 5, D = 8, HEADS = 2, VOCAB = 11 };

/* -inf where a token would look ahead of itself. */
static struct rb_value *causal_mask(struct tiny *tiny)
{
    float *data = RB_ARENA_NEW(&tiny->graph->arena, float, T *T);
    struct rb_tensor_type type = TYPE(1, 1, T, T);

    for (int i = 0; i < T; i++)
        for (int j = i + 1; j < T; j++)
            data[i * T + j] = -INFINITY;
    return rb_graph_value(tiny->graph, RB_VALUE_CONST, NULL, &type, data);
}

static struct rb_value *attention(struct tiny *tiny, struct rb_value *x, int64_t batch)
{
    const int64_t swap[] = {0, 2, 1, 3}, last = 2, row = 3;
    const struct rb_tensor_type parts[] = {TYPE(batch, T, D), TYPE(batch, T, D), TYPE(batch, T, D)};
    struct rb_graph_attribute axis = rb_attr_ints("axis", &last, 1);
    struct rb_value *qkv = linear(tiny, "attn.qkv", x, 3 * D), *heads[3], *scores;
    struct rb_node *split = tiny_node(tiny, RB_OP_SPLIT, "split", 7, parts, 1, &axis, 1, &qkv);

    for (int i = 0; i < 3; i++) {
        struct rb_value *part = tiny_reshape(tiny, split->out[i], TYPE(batch, T, HEADS, D / HEADS));

        heads[i] = tiny_with(tiny, RB_OP_TRANSPOSE, "heads", 1, &part, "perm", swap, 4);
    }
    scores = product(tiny, "scores", heads[0], heads[1], true);
    scores = tiny_two(tiny, RB_OP_MUL, "scale", scores, rb_graph_scalar(tiny->graph, 0.5f));
    scores = tiny_two(tiny, RB_OP_ADD, "mask", scores, causal_mask(tiny));
    scores = tiny_with(tiny, RB_OP_SOFTMAX, "softmax", 1, &scores, "axis", &row, 1);
    x = product(tiny, "mix", scores, heads[2], false);
    x = tiny_with(tiny, RB_OP_TRANSPOSE, "join", 1, &x, "perm", swap, 4);
    return linear(tiny, "attn.proj", tiny_reshape(tiny, x, TYPE(batch, T, D)), D);
}

struct rb_graph *tiny_gpt(int64_t batch, bool train)
{
    const int64_t zero = 0, places[] = {0, 1, 2, 3, 4};
    struct tiny tiny = tiny_new(batch, train);
    struct rb_value *tokens = tiny_features(&tiny, RB_I64, TYPE(batch, T)), *x, *y;
    struct rb_value *wte = tiny_weight(&tiny, "wte.weight", TYPE(VOCAB, D), 0, 0.5f);
    struct rb_value *wpe = tiny_weight(&tiny, "wpe.weight", TYPE(T, D), 0, 0.5f);
    struct rb_tensor_type targets = {.dtype = RB_I64, .rank = 1, .dim = {T}};

    x = tiny_with(&tiny, RB_OP_GATHER, "wte", 2, (struct rb_value *[]){wte, tokens}, "axis", &zero,
                  1);
    y = tiny_with(&tiny, RB_OP_GATHER, "wpe", 2,
                  (struct rb_value *[]){wpe, rb_graph_int64s(tiny.graph, NULL, places, T)}, "axis",
                  &zero, 1);
    x = tiny_two(&tiny, RB_OP_ADD, "embed", x, y);
    x = tiny_two(&tiny, RB_OP_ADD, "residual1", x,
                 attention(&tiny, layer_norm(&tiny, "ln1", x), batch));
    y = linear(&tiny, "fc1", layer_norm(&tiny, "ln2", x), 2 * D);
    y = tiny_one(&tiny, RB_OP_GELU, "gelu", y);
    x = tiny_two(&tiny, RB_OP_ADD, "residual2", x, linear(&tiny, "fc2", y, D));
    x = product(&tiny, "head", layer_norm(&tiny, "lnf", x), wte, true);
    tiny_finish(&tiny, x, "cross_entropy", targets);
    return tiny.graph;
}

void tiny_check_order(const struct rb_graph *graph)
{
    bool *made = calloc((size_t)graph->n_values, sizeof(*made));

    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];

        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && node->in[j]->role == RB_VALUE_TEMP)
                assert_true(made[node->in[j]->id]);
        for (int j = 0; j < node->n_out; j++)
            if (node->out[j])
                made[node->out[j]->id] = true;
    }
    free(made);
}
