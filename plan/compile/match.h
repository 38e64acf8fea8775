/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor of a file of weights is which variable of the model, by name.
 *
 * pretrained, graph, Model > [match] > initial; what it says > submit */
#ifndef RB_PLAN_COMPILE_MATCH_H
#define RB_PLAN_COMPILE_MATCH_H

#include "base/buffer.h"
#include "graph/graph.h"
#include "graph/names.h"
#include "plan.pb-c.h"
#include "plan/compile/pretrained.h"

struct rb_match {
    const struct rb_graph *graph;
    const Rb__Model *model;
    const struct rb_pretrained *pretrained;
    struct rb_names variables; /* name -> its place, of places */
    size_t *places;
    int *from;  /* by variable: place among the file's tensors; -1: none */
    int *owner; /* by tensor of the file: the first such variable; -1: none */
};

/* A variable has the tensor of its name, of an alias in the graph, or of what the file's notes say
 * that either was kept as.  RB_EINVAL: not one has, a shape differs or a type that does not
 * become float32 with one rounding, or several tensors that are one variable differ. */
int rb_match_open(const struct rb_graph *graph, const Rb__Model *model,
                  const struct rb_pretrained *pretrained, struct rb_match *ret, struct rb_why *why);
void rb_match_done(struct rb_match *match);

/* Set model->aliases: of the graph, and of the notes of the file (NULL: there is none). */
void rb_match_aliases(const struct rb_graph *graph, const struct rb_match *match, Rb__Model *model);

/* What the model lacks of the file and the file of the model: a line each.  key: what the
 * user calls the weights. */
void rb_match_say(const struct rb_match *match, const char *key, struct rb_buffer *notes);

#endif
