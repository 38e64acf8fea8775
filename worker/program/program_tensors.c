/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tensors of a program are: types and addresses, each of them checked; and which places
 * are free. */
#include "worker/program/program_inside.h"

#include "kernels/call.h"

enum { ALIGNMENT = 64 };

static int tensor_type(const struct rb_program_build *b, const Rb__Tensor *tensor, int i)
{
    struct rb_tensor_type *type = &b->types[i];

    if (tensor->space == RB__TENSOR__SPACE__ABSENT)
        return 0;
    if (tensor->n_dims > RB_MAX_RANK)
        return rb_why_set(b->why, RB_EINVAL, "tensor %d has %zu axes, at most %d are possible", i,
                          tensor->n_dims, RB_MAX_RANK);
    type->dtype = (enum rb_dtype)tensor->dtype;
    type->rank = (int)tensor->n_dims;
    for (int k = 0; k < type->rank; k++)
        type->dim[k] = tensor->dims[k];
    if (!rb_call_type_valid(type))
        return rb_why_set(b->why, RB_EINVAL, "tensor %d has a type or a size that none may have",
                          i);
    b->bytes[i] = (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype);
    return 0;
}

static int variable_address(const struct rb_program_build *b, int i, const Rb__Tensor *tensor,
                            void **ret)
{
    const Rb__Variable *variable;
    uint64_t index = tensor->offset, size = rb_dtype_size(b->types[i].dtype);
    bool fits;

    if (index >= b->model->n_variables)
        return rb_why_set(b->why, RB_EINVAL, "tensor %d is variable %llu of %zu", i,
                          (unsigned long long)index, b->model->n_variables);
    variable = b->model->variables[index];
    if ((int)b->types[i].dtype != variable->dtype)
        return rb_why_set(b->why, RB_EINVAL, "tensor %d has another type than variable '%s'", i,
                          variable->name);
    fits = rb_program_inside(tensor->first, b->bytes[i] / size, variable->elements);
    if (variable->role == RB__VARIABLE__ROLE__FIXED) {
        fits =
            fits &&
            rb_program_inside(variable->offset, variable->elements * size, b->model->fixed_bytes) &&
            variable->offset % size == 0;
        *ret = (char *)b->memory->fixed + (fits ? variable->offset + tensor->first * size : 0);
    } else {
        fits = fits && b->types[i].dtype == RB_F32 &&
               rb_program_inside(variable->offset, variable->elements, b->model->state_elements);
        *ret = b->memory->state + (fits ? variable->offset + tensor->first : 0);
    }
    return fits ? 0
                : rb_why_set(b->why, RB_EINVAL, "tensor %d leaves the memory of variable '%s'", i,
                             variable->name);
}

/* A tensor in the `size` bytes of memory at `base`. */
static int plain_address(const struct rb_program_build *b, int i, uint64_t offset, const void *base,
                         uint64_t size, const char *what, void **ret)
{
    if (offset % ALIGNMENT != 0 || !rb_program_inside(offset, b->bytes[i], size))
        return rb_why_set(b->why, RB_EINVAL,
                          "tensor %d at %llu with %zu bytes does not fit the %llu bytes of the %s",
                          i, (unsigned long long)offset, b->bytes[i], (unsigned long long)size,
                          what);
    *ret = base ? (char *)(uintptr_t)base + offset : NULL; /* none is needed for no bytes */
    return 0;
}

static int tensor_address(const struct rb_program_build *b, const Rb__Tensor *tensor, int i)
{
    void **ret = &b->program->addresses[i];

    switch (tensor->space) {
    case RB__TENSOR__SPACE__ABSENT:
        return 0;
    case RB__TENSOR__SPACE__ARENA:
        return plain_address(b, i, tensor->offset, b->memory->arena, b->from->arena_bytes, "arena",
                             ret);
    case RB__TENSOR__SPACE__CONSTANT:
        return plain_address(b, i, tensor->offset, b->memory->constants, b->model->constants.len,
                             "constants", ret);
    case RB__TENSOR__SPACE__VARIABLE:
        return variable_address(b, i, tensor, ret);
    case RB__TENSOR__SPACE__INPUT:
        if (tensor->offset >= b->from->n_inputs)
            break;
        *ret = b->program->inputs[tensor->offset];
        return 0;
    default:
        break;
    }
    return rb_why_set(b->why, RB_EINVAL, "tensor %d is in a place that is not known", i);
}

/* Memory for the input slots: as large as the largest tensor that reads it. */
static int make_inputs(const struct rb_program_build *b)
{
    struct rb_program *program = b->program;

    for (int slot = 0; slot < program->n_inputs; slot++) {
        size_t bytes = 0;

        for (int i = 0; i < program->n_tensors; i++) {
            const Rb__Tensor *tensor = b->from->tensors[i];

            if (tensor->space == RB__TENSOR__SPACE__INPUT && tensor->offset == (uint64_t)slot &&
                b->bytes[i] > bytes)
                bytes = b->bytes[i];
        }
        program->input_bytes[slot] = bytes;
        program->inputs[slot] = rb_device_alloc(program->device, bytes);
        if (!program->inputs[slot])
            return rb_why_set(b->why, RB_ENOMEM, "no memory for %zu bytes of '%s'", bytes,
                              b->from->inputs[slot]);
    }
    return 0;
}

static bool lies_in(const Rb__Tensor *tensor, const Rb__Tensor *other, size_t bytes)
{
    return tensor->space == RB__TENSOR__SPACE__ARENA && other->space == tensor->space &&
           tensor->offset >= other->offset && tensor->offset - other->offset < bytes;
}

/* `output`, and every view of it, lies where the twin has it. */
static void share_output(const struct rb_program_build *b, int32_t output)
{
    if (output < 0 || output >= b->program->n_tensors)
        return;
    for (int i = 0; i < b->program->n_tensors; i++)
        if (lies_in(b->from->tensors[i], b->from->tensors[output], b->bytes[output]))
            b->program->addresses[i] = b->memory->twin->addresses[i];
}

/* Instructions that run once a step are run by one program for all twins. */
static void share_once(const struct rb_program_build *b)
{
    for (int i = 0; i < b->program->once; i++)
        for (size_t o = 0; o < b->from->instructions[i]->n_outputs; o++)
            share_output(b, b->from->instructions[i]->outputs[o]);
}

int rb_program_make_tensors(const struct rb_program_build *b)
{
    int err = 0;

    for (int i = 0; !err && i < b->program->n_tensors; i++)
        err = tensor_type(b, b->from->tensors[i], i);
    err = err ? err : make_inputs(b);
    for (int i = 0; !err && i < b->program->n_tensors; i++)
        err = tensor_address(b, b->from->tensors[i], i);
    if (!err && b->memory->twin)
        share_once(b);
    return err;
}

/* ---- What is free meanwhile -------------------------------------------------------------------*/

static bool all_there(const struct rb_program_build *b, const int32_t *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i] < -1 || tensors[i] >= b->program->n_tensors)
            return false;
    return true;
}

/* Returns false for a faulty program: preparing the instructions then reports what is wrong. */
static bool may_be_looked_at(const struct rb_program_build *b)
{
    const Rb__Program *from = b->from;
    const int32_t results[] = {from->loss, from->count, from->correct};
    bool sound =
        all_there(b, results, RB_COUNT(results)) && all_there(b, from->outputs, from->n_outputs);

    for (size_t i = 0; sound && i < from->n_contributions; i++)
        sound = from->contributions[i]->tensor < from->n_tensors;
    for (size_t i = 0; sound && i < from->n_instructions; i++)
        sound = all_there(b, from->instructions[i]->inputs, from->instructions[i]->n_inputs) &&
                all_there(b, from->instructions[i]->outputs, from->instructions[i]->n_outputs);
    return sound;
}

/* Only convolutions need much: their tensors once more, in other layouts. */
static bool has_convolutions(const Rb__Program *program)
{
    for (size_t i = 0; i < program->n_instructions; i++)
        switch (program->instructions[i]->operator_) {
        case RB_OP_CONV:
        case RB_OP_CONV_GRAD_X:
        case RB_OP_CONV_GRAD_W:
            return true;
        default:
            break;
        }
    return false;
}

const struct rb_spare *rb_program_find_spares(const struct rb_program_build *b,
                                              struct rb_arena *scratch)
{
    const struct rb_reads reads = rb_program_reads(b);
    struct rb_spare *spares;

    if (!b->memory->spares || b->memory->twin || !rb_device_sparse(b->program->device) ||
        !has_convolutions(b->from) || !may_be_looked_at(b))
        return NULL;
    spares = RB_ARENA_NEW(scratch, struct rb_spare, b->from->n_instructions);
    rb_spare_find(&reads, b->memory->arena, spares);
    return spares;
}
