/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny models built by hand, for tests of what happens after import. */
#ifndef RB_TESTS_PLAN_TINY_H
#define RB_TESTS_PLAN_TINY_H

#include "graph/graph.h"

/* A builder that ends the test at the first error. */
struct tiny {
    struct rb_graph *graph;
    uint64_t seed;
};

#define TYPE(...)                                                                                  \
    ((struct rb_tensor_type){.dtype = RB_F32,                                                      \
                             .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),           \
                             .dim = {__VA_ARGS__}})

struct tiny tiny_new(int64_t batch, bool train);
struct rb_value *tiny_features(struct tiny *tiny, enum rb_dtype dtype, struct rb_tensor_type type);

/* A weight around `center`, with contents from the seed. */
struct rb_value *tiny_weight(struct tiny *tiny, const char *name, struct rb_tensor_type type,
                             float center, float spread);
struct rb_value *tiny_buffer(struct tiny *tiny, const char *name, struct rb_tensor_type type,
                             float value);
struct rb_value *tiny_constant(struct tiny *tiny, struct rb_tensor_type type, float center,
                               float spread);

struct rb_node *tiny_node(struct tiny *tiny, enum rb_op op, const char *name, unsigned want,
                          const struct rb_tensor_type *given, int n_attributes,
                          const struct rb_graph_attribute *attributes, int n_in,
                          struct rb_value *const *in);
/* One output, no attributes. */
struct rb_value *tiny_one(struct tiny *tiny, enum rb_op op, const char *name, struct rb_value *x);
struct rb_value *tiny_two(struct tiny *tiny, enum rb_op op, const char *name, struct rb_value *a,
                          struct rb_value *b);
/* One output, up to three inputs, one attribute of integers (key may be NULL). */
struct rb_value *tiny_with(struct tiny *tiny, enum rb_op op, const char *name, int n_in,
                           struct rb_value *const *in, const char *key, const int64_t *ints, int n);
struct rb_value *tiny_reshape(struct tiny *tiny, struct rb_value *x, struct rb_tensor_type type);

/* Whole models with a cross-entropy loss, fused; differentiated where they train.  mlp: two layers
 * on 6 numbers.  cnn: conv, batch norm, pool, dropout on 2 x 6 x 6.  gpt: one block of width 8 with
 * two heads over 5 tokens of 11, the embedding tied to the output.  residual: the shapes that
 * layouts deal with: 3 x 8 x 8 to 16 and 32 channels in blocks, two ways that join, both pools, a
 * batch norm, gates, and 20 channels that make no blocks. */
struct rb_graph *tiny_mlp(int64_t batch, bool train);
struct rb_graph *tiny_cnn(int64_t batch, bool train);
struct rb_graph *tiny_gpt(int64_t batch, bool train);
struct rb_graph *tiny_residual(int64_t batch, bool train);

/* Checks that every value is made before it is read. */
void tiny_check_order(const struct rb_graph *graph);

/* Adds the loss, fuses and, where it trains, adds the gradient. */
void tiny_finish(struct tiny *tiny, struct rb_value *output, const char *loss,
                 struct rb_tensor_type sample_targets);

#endif
