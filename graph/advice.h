/* SPDX-License-Identifier: Apache-2.0 */
/* What often goes wrong when a model is exported from PyTorch, found in the file that came of it.
 *
 * model.onnx > [advice] > model check, submit */
#ifndef RB_GRAPH_ADVICE_H
#define RB_GRAPH_ADVICE_H

#include "graph/onnx/onnx.h"

/* One mistake, and what of the export call avoids it. */
struct rb_advice {
    const char *mistake, *remedy; /* sentences in the arena */
    bool call;                    /* rb_advice_call has the remedy; else the module needs another */
    bool harms;                   /* what is trained is not the module, or cannot go back into it */
};

enum { RB_ADVICE_MOST = 16 };

/* Fills at most RB_ADVICE_MOST; returns how many. */
int rb_advice_find(const struct rb_onnx *model, struct rb_arena *arena,
                   struct rb_advice ret_advice[RB_ADVICE_MOST]);

/* The call that avoids all that a call can, with this model's inputs by their names. */
const char *rb_advice_call(const struct rb_onnx *model, struct rb_arena *arena);

#endif
