/* SPDX-License-Identifier: Apache-2.0 */
/* The operator Fused: several elementwise operators in one, so that what is between them stays in
 * registers.
 *
 * graph/fuse_points > attribute "steps" > kernels/fused
 *
 * The attribute lists the steps, RB_FUSED_FIELDS numbers each:
 *
 *     operator, type of its result, tanh (of Gelu and GeluGrad), three sources
 *
 * A source is the number of an input, or of a step: step k is n_in + k, and only later steps read
 * it; -1: there is none.  Types are F32; BF16, which is computed in float32 and rounded; and BOOL.
 * The last step makes the output, to whose shape all inputs broadcast.  The bits are those of the
 * separate operators. */
#ifndef RB_PROTO_FUSED_H
#define RB_PROTO_FUSED_H

#include "proto/operators.h"

enum { RB_FUSED_INPUTS = 8, RB_FUSED_STEPS = 16, RB_FUSED_SOURCES = 3, RB_FUSED_FIELDS = 6 };

/* How many sources a step with this operator has; 0: there is no such step. */
int rb_fused_sources(unsigned op);

#endif
