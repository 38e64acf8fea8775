/* SPDX-License-Identifier: Apache-2.0 */
/* What a tensor's numbers look like, where nothing else says what it is for.
 *
 * initial contents > [looks] > hints */
#ifndef RB_GRAPH_LOOKS_H
#define RB_GRAPH_LOOKS_H

#include "graph/graph.h"

enum rb_look {
    RB_LOOK_PLAIN,  /* like weights; or one number throughout, as some weights start; or with an
                       infinity or a NaN */
    RB_LOOK_NUMBER, /* one number */
    RB_LOOK_MASK,   /* zeros and large negative numbers: added to scores */
    RB_LOOK_BITS,   /* zeros and ones */
    RB_LOOK_STEPS,  /* a row of numbers, with one difference or one quotient */
    RB_LOOK_WAVES,  /* sines or cosines, a frequency a column */
};

enum rb_look rb_look_at(const struct rb_value *value); /* float32 */
const char *rb_look_text(enum rb_look look);

#endif
