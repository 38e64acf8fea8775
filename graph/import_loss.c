/* SPDX-License-Identifier: Apache-2.0 */
/* A loss inside the model. */
#include "graph/import.h"

int rb_import_op_own_loss(struct rb_import *import)
{
    return RB_IMPORT_NO(import, "a loss inside the model: export the model without it and name it "
                                "in spec.loss.type");
}
