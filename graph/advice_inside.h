/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the search for mistakes: for advice*.c alone. */
#ifndef RB_GRAPH_ADVICE_INSIDE_H
#define RB_GRAPH_ADVICE_INSIDE_H

#include "graph/advice.h"
#include "graph/onnx/model.h"

struct rb_advice_search {
    const struct rb_onnx *model;
    struct rb_arena *arena;
    struct rb_advice *found;
    int n;
};

void rb_advice_say(struct rb_advice_search *search, const char *mistake, const char *remedy);
/* The same for a mistake that no call of the exporter avoids. */
void rb_advice_say_module(struct rb_advice_search *search, const char *mistake, const char *remedy);

/* The exporter behind dynamo=True has other switches than the one before it, which never wrote
 * IR 10. */
bool rb_advice_is_new_exporter(const Onnx__ModelProto *proto);

/* How to call the exporter so that it exports for training. */
const char *rb_advice_train_remedy(const Onnx__ModelProto *proto);

/* Weights of several modules that became one.  True: a scale or bias is among them, so nobody meant
 * it; a matrix may be shared on purpose. */
bool rb_advice_check_shared(struct rb_advice_search *search);

/* A gradient that was to pass around a detach(). */
void rb_advice_check_detached(struct rb_advice_search *search);

/* Buffers that the module changes, and that stay unchanged here. */
void rb_advice_check_changed(struct rb_advice_search *search);

#endif
