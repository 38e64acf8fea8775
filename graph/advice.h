/* SPDX-License-Identifier: Apache-2.0 */
/* Common mistakes in exporting a model from PyTorch, found in the exported file.
 *
 * model.onnx > [advice] > model check, submit */
#ifndef RB_GRAPH_ADVICE_H
#define RB_GRAPH_ADVICE_H

#include "graph/onnx/onnx.h"

/* One mistake, and what in the export call avoids it. */
struct rb_advice {
    const char *mistake, *remedy; /* sentences in the arena */
    bool call;                    /* rb_advice_call has the remedy; else the module must change */
    bool harms;                   /* what is trained is not the module, or cannot go back into it */
};

enum { RB_ADVICE_MOST = 16 };

/* Fills at most RB_ADVICE_MOST; returns how many. */
int rb_advice_find(const struct rb_onnx *model, struct rb_arena *arena,
                   struct rb_advice ret_advice[RB_ADVICE_MOST]);

/* The call that avoids every mistake that a call can avoid, with this model's inputs by name. */
const char *rb_advice_call(const struct rb_onnx *model, struct rb_arena *arena);

#endif
