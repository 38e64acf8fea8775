/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/operators.h"

#include <stddef.h>

static const struct rb_op_info operators[RB_OP_COUNT] = {
#define X(name, text, inputs, outputs, kind, attributes, meaning)                                  \
    [RB_OP_##name] = {text, inputs, outputs, RB_KIND_##kind, attributes, meaning},
    RB_OPERATORS(X)
#undef X
};

const struct rb_op_info *rb_op_info(unsigned op)
{
    if (op == RB_OP_NONE || op >= RB_OP_COUNT)
        return NULL;
    return &operators[op];
}
