/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/work.h"

#include "proto/dtype.h"
#include "proto/operators.h"

#include <inttypes.h>
#include <string.h>

double rb_work_elements(const Rb__Tensor *tensor)
{
    double n = 1;

    for (size_t i = 0; i < tensor->n_dims; i++)
        n *= (double)tensor->dims[i];
    return n;
}

double rb_work_tensor_bytes(const Rb__Tensor *tensor)
{
    return rb_work_elements(tensor) * (double)rb_dtype_size((enum rb_dtype)tensor->dtype);
}

static double bytes_of(const Rb__Program *program, const int32_t *tensors, size_t n)
{
    double bytes = 0;

    for (size_t i = 0; i < n; i++)
        if (tensors[i] >= 0 && program->tensors[tensors[i]]->space != RB__TENSOR__SPACE__ABSENT)
            bytes += rb_work_tensor_bytes(program->tensors[tensors[i]]);
    return bytes;
}

double rb_work_bytes(const Rb__Program *program, size_t instruction)
{
    const Rb__Instruction *one = program->instructions[instruction];

    return bytes_of(program, one->inputs, one->n_inputs) +
           bytes_of(program, one->outputs, one->n_outputs);
}

static bool has_flag(const Rb__Instruction *one, const char *key)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (strcmp(one->attributes[i]->key, key) == 0 && one->attributes[i]->n_ints)
            return one->attributes[i]->ints[0] != 0;
    return false;
}

/* Two products of all queries with all keys, or the five of the gradient; half of that where later
 * keys are hidden. */
static double attention_flops(const Rb__Program *program, const Rb__Instruction *one)
{
    bool grad = one->operator_ == RB_OP_ATTENTION_GRAD;
    const Rb__Tensor *q = program->tensors[one->inputs[grad]];
    const Rb__Tensor *v = program->tensors[one->inputs[grad + 2]];
    double keys = (double)v->dims[v->n_dims - 2], depth = (double)q->dims[q->n_dims - 1];
    double width = (double)v->dims[v->n_dims - 1], pairs = rb_work_elements(q) / depth * keys;
    double flops = pairs * (grad ? 6 * depth + 4 * width : 2 * depth + 2 * width);

    return has_flag(one, "causal") ? flops / 2 : flops;
}

/* Every output element of a product is a sum over the elements of one factor that belong to it. */
double rb_work_flops(const Rb__Program *program, size_t instruction)
{
    const Rb__Instruction *one = program->instructions[instruction];
    const Rb__Tensor *a, *b, *y;
    size_t inner;

    if (one->operator_ == RB_OP_ATTENTION || one->operator_ == RB_OP_ATTENTION_GRAD)
        return attention_flops(program, one);
    if (one->operator_ != RB_OP_MATMUL && one->operator_ != RB_OP_CONV &&
        one->operator_ != RB_OP_CONV_GRAD_X && one->operator_ != RB_OP_CONV_GRAD_W)
        return 0;
    a = program->tensors[one->inputs[0]];
    b = program->tensors[one->inputs[1]];
    y = program->tensors[one->outputs[0]];
    switch (one->operator_) {
    case RB_OP_MATMUL:
        inner = a->n_dims - 1;
        for (size_t i = 0; i < one->n_attributes; i++)
            if (strcmp(one->attributes[i]->key, "transA") == 0 && one->attributes[i]->ints[0] &&
                a->n_dims > 1)
                inner = a->n_dims - 2;
        return 2 * rb_work_elements(y) * (double)a->dims[inner];
    case RB_OP_CONV:
        return 2 * rb_work_elements(y) * rb_work_elements(b) / (double)b->dims[0];
    case RB_OP_CONV_GRAD_X: /* (dy, w) */
        return 2 * rb_work_elements(a) * rb_work_elements(b) / (double)b->dims[0];
    default: /* (dy, x) > dw */
        return 2 * rb_work_elements(a) * rb_work_elements(y) / (double)y->dims[0];
    }
}

static void add_tensors(const Rb__Program *program, const int32_t *tensors, size_t n,
                        struct rb_buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        const Rb__Tensor *tensor = tensors[i] < 0 ? NULL : program->tensors[tensors[i]];

        if (!tensor || tensor->space == RB__TENSOR__SPACE__ABSENT) {
            rb_buffer_text(out, " -");
            continue;
        }
        rb_buffer_format(out, " %s[", rb_dtype_text((enum rb_dtype)tensor->dtype));
        for (size_t k = 0; k < tensor->n_dims; k++)
            rb_buffer_format(out, "%s%" PRId64, k ? "," : "", tensor->dims[k]);
        rb_buffer_text(out, "]");
    }
}

void rb_work_text(const Rb__Program *program, size_t instruction, struct rb_buffer *out)
{
    const Rb__Instruction *one = program->instructions[instruction];

    rb_buffer_text(out, rb_op_info(one->operator_)->name);
    add_tensors(program, one->inputs, one->n_inputs, out);
    rb_buffer_text(out, " >");
    add_tensors(program, one->outputs, one->n_outputs, out);
    for (size_t i = 0; i < one->n_attributes; i++) {
        rb_buffer_format(out, " %s=", one->attributes[i]->key);
        for (size_t k = 0; k < one->attributes[i]->n_ints; k++)
            rb_buffer_format(out, "%s%" PRId64, k ? "," : "", one->attributes[i]->ints[k]);
    }
}
