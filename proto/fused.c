/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/fused.h"

#include <stddef.h>

int rb_fused_sources(unsigned op)
{
    const struct rb_op_info *info = rb_op_info(op);

    if (!info || info->kind != RB_KIND_POINT || op == RB_OP_MOD || op == RB_OP_FUSED)
        return 0;
    return info->inputs;
}
