/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: a graph becomes one flat list of instructions with memory offsets.
 *
 * training graph > [lower] > Program
 *
 * Offsets come from liveness: first fit by decreasing size over the intervals in which values live.
 * Views share their input's memory.  Same graph, same program, to the byte.
 *
 * An instruction's id is its node's.  Gradients are appended behind the forward nodes, so a forward
 * node, and with it every random number, has the same id in the programs of all batch sizes;
 * rb_lower_program refuses a program whose dropouts have other numbers. */
#ifndef RB_PLAN_COMPILE_LOWER_H
#define RB_PLAN_COMPILE_LOWER_H

#include "base/error.h"
#include "graph/graph.h"
#include "plan.pb-c.h"

struct rb_buffer;

/* The variables of a graph, in the order of the model's initializers, with flat offsets, blocks and
 * buckets; the same for every batch size.  Written into `model`. */
int rb_lower_variables(const struct rb_graph *graph, Rb__Model *model, struct rb_why *why);

/* Append the program of `graph` to `model`; constants are shared between programs. */
int rb_lower_program(const struct rb_graph *graph, const char *name, Rb__Model *model,
                     struct rb_why *why);

/* The text forms that golden tests compare: a line an instruction, with offsets and lifetimes; and
 * the state with its blocks and buckets. */
void rb_model_print(const Rb__Model *model, struct rb_buffer *out);
void rb_program_print(const Rb__Model *model, const Rb__Program *program, struct rb_buffer *out);

#endif
