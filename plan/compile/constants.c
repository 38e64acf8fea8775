/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/constants.h"

#include "base/arena.h"
#include "plan/compile/memory.h"
#include "proto/dtype.h"

#include <stdbool.h>
#include <string.h>

static uint64_t bytes_of(const Rb__Tensor *tensor)
{
    uint64_t bytes = rb_dtype_size((enum rb_dtype)tensor->dtype);

    for (size_t i = 0; i < tensor->n_dims; i++)
        bytes *= (uint64_t)tensor->dims[i];
    return bytes;
}

static bool find(const Rb__Model *model, const Rb__Program *program, const void *data,
                 uint64_t bytes, uint64_t *ret_offset)
{
    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];

        if (tensor->space == RB__TENSOR__SPACE__CONSTANT && bytes_of(tensor) == bytes &&
            !memcmp(model->constants.data + tensor->offset, data, bytes)) {
            *ret_offset = tensor->offset;
            return true;
        }
    }
    return false;
}

uint64_t rb_constants_place(Rb__Model *model, const Rb__Program *making, const void *data,
                            uint64_t bytes)
{
    uint64_t offset = 0, end;

    if (!bytes || find(model, making, data, bytes, &offset))
        return offset;
    for (size_t i = 0; i < model->n_programs; i++)
        if (find(model, model->programs[i], data, bytes, &offset))
            return offset;
    offset = (model->constants.len + RB_MEMORY_ALIGN - 1) / RB_MEMORY_ALIGN * RB_MEMORY_ALIGN;
    end = offset + bytes;
    model->constants.data = rb_realloc(model->constants.data, end);
    memset(model->constants.data + model->constants.len, 0, offset - model->constants.len);
    memcpy(model->constants.data + offset, data, bytes);
    model->constants.len = end;
    model->has_constants = 1;
    return offset;
}
