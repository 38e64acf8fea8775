/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor of a file of weights is which variable of the model, by name.
 *
 * pretrained, graph, Model > [match] > initial; its notes > submit */
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
    int *owner; /* by tensor of the file: the first variable that has it; -1: none */
};

/* A variable has the tensor of its name, of an alias in the graph, or of the name that either was
 * kept as according to the file's notes.  RB_EINVAL: no variable has a tensor, a shape differs, a
 * type does not become float32 with one rounding, or several tensors that are one variable
 * differ. */
int rb_match_open(const struct rb_graph *graph, const Rb__Model *model,
                  const struct rb_pretrained *pretrained, struct rb_match *ret, struct rb_why *why);
void rb_match_done(struct rb_match *match);

/* Set model->aliases: those of the graph, and those in the notes of the file (match NULL: there is
 * none). */
void rb_match_aliases(const struct rb_graph *graph, const struct rb_match *match, Rb__Model *model);

/* A line for each thing that the file has and the model lacks, and the reverse.  key: what the user
 * calls the weights. */
void rb_match_say(const struct rb_match *match, const char *key, struct rb_buffer *notes);

#endif
