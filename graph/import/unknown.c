/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that are not imported, or not where the data decide their inputs: why, and what to
 * write instead. */
#include "graph/import/import.h"

#include <string.h>

static const char by_data[] = "the size of what it gives depends on the data (as that of x[mask] "
                              "does): keep all elements and "
                              "weigh them by 0 and 1, with torch.where or a product";
static const char loop[] = "write the steps out before the export";
static const char integers[] =
    "models are trained in floats: export the model before it is quantized";

static const char bits[] = "what is computed of the bits of whole numbers (a hash, say) can be an "
                           "input of the model, or a buffer";
static const char sampled[] = "F.grid_sample at the places that it reads gives the same";

static const struct {
    const char *op, *reason;
} known[] = {
    {"BitShift", bits},
    {"BitwiseAnd", bits},
    {"BitwiseNot", bits},
    {"BitwiseOr", bits},
    {"BitwiseXor", bits},
    {"Compress", by_data},
    {"ConvInteger", integers},
    {"DeformConv", sampled},
    {"DequantizeLinear", integers},
    {"Det", "of a triangular matrix, as of a flow's, it is the product of the diagonal"},
    {"DynamicQuantizeLinear", integers},
    {"MatMulInteger", integers},
    {"NonMaxSuppression", by_data},
    {"NonZero", by_data},
    {"QLinearConv", integers},
    {"QLinearMatMul", integers},
    {"QuantizeLinear", integers},
    {"RoiAlign", sampled},
    {"Scan", loop},
    {"Unique", by_data},
};

int rb_import_unknown(struct rb_import *import)
{
    const char *op = import->node->op_type ? import->node->op_type : "";
    const char *what =
        import->op ? "its input is computed from the data" : "this operator is not supported";

    for (size_t i = 0; i < RB_COUNT(known); i++)
        if (!strcmp(op, known[i].op))
            return RB_IMPORT_NO(import, "%s; %s", what, known[i].reason);
    return RB_IMPORT_NO(import, "%s; docs/operators.md has those that are", what);
}
