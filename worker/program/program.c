/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/program/program_inside.h"

#include "base/arena.h"
#include "kernels/call.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 4096, MAX_NUMBERS = 4096 };

/* ---- Instructions -----------------------------------------------------------------------------*/

/* The tensors of a list of indices: types for the call, addresses for running. */
static int read_arguments(const struct rb_program_build *b, const int32_t *indices, size_t n,
                          const char *what, struct rb_tensor_type *types, void **addresses)
{
    for (size_t k = 0; k < n; k++) {
        int32_t i = indices[k];

        if (i < -1 || i >= b->program->n_tensors)
            return rb_why_set(b->why, RB_EINVAL, "%s %zu is tensor %d of %d", what, k, (int)i,
                              b->program->n_tensors);
        if (i < 0)
            continue;
        types[k] = b->types[i];
        addresses[k] = b->program->addresses[i];
    }
    return 0;
}

/* Outputs go to the arena, and neither onto an input nor onto each other. */
static int check_outputs(const struct rb_program_build *b, const Rb__Instruction *from)
{
    const struct rb_reads reads = rb_program_reads(b);

    for (size_t o = 0; o < from->n_outputs; o++) {
        int32_t out = from->outputs[o];

        if (out < 0 || b->types[out].dtype == RB_NONE)
            continue;
        if (b->from->tensors[out]->space != RB__TENSOR__SPACE__ARENA)
            return rb_why_set(b->why, RB_EINVAL, "output %zu is not in the arena", o);
        for (size_t k = 0; k < from->n_inputs; k++)
            if (rb_reads_overlap(&reads, out, from->inputs[k]))
                return rb_why_set(b->why, RB_EINVAL, "output %zu overlaps input %zu", o, k);
        for (size_t k = 0; k < o; k++)
            if (rb_reads_overlap(&reads, out, from->outputs[k]))
                return rb_why_set(b->why, RB_EINVAL, "outputs %zu and %zu overlap", k, o);
    }
    return 0;
}

static int read_attributes(const struct rb_program_build *b, const Rb__Instruction *from,
                           struct rb_attribute *attributes)
{
    for (size_t k = 0; k < from->n_attributes; k++) {
        const Rb__Attribute *attribute = from->attributes[k];

        if (attribute->n_ints > MAX_NUMBERS || attribute->n_floats > MAX_NUMBERS)
            return rb_why_set(b->why, RB_ELIMIT, "attribute '%.40s' has too many numbers",
                              attribute->key);
        attributes[k] = (struct rb_attribute){
            .key = attribute->key,
            .ints = attribute->ints,
            .n_ints = (int)attribute->n_ints,
            .floats = attribute->floats,
            .n_floats = (int)attribute->n_floats,
        };
    }
    return 0;
}

/* A part of the filters has rows of a weight (graph/split.h). */
static bool reads_slice(const struct rb_program_build *b, const Rb__Instruction *from)
{
    for (size_t i = 0; i < from->n_inputs; i++)
        if (from->inputs[i] >= 0 && b->from->tensors[from->inputs[i]]->first)
            return true;
    return false;
}

/* Passes the free part of the arena as an offset from the first output: in a twin's arena that
 * offset is the same. */
static void give_spare(const struct rb_program_build *b, const struct step *step,
                       struct rb_call *call)
{
    const struct rb_spare *spare = b->spares ? &b->spares[step - b->program->steps] : NULL;

    if (!spare || call->n_out < 1 || !step->out[0])
        return;
    call->spare_bytes = (size_t)spare->bytes;
    call->spare = (const char *)b->memory->arena + spare->first - (const char *)step->out[0];
}

static int make_step(const struct rb_program_build *b, const Rb__Instruction *from,
                     struct step *step)
{
    struct rb_arena *arena = &b->program->arena;
    struct rb_arena scratch = {0};
    size_t n_in = from->n_inputs, n_out = from->n_outputs;
    struct rb_tensor_type *in, *out;
    struct rb_attribute *attributes;
    struct rb_call call;
    int err;

    if (n_in > MAX_ARGUMENTS || n_out > MAX_ARGUMENTS || from->n_attributes > MAX_ARGUMENTS)
        return rb_why_set(b->why, RB_ELIMIT, "too many inputs, outputs or attributes");
    in = RB_ARENA_NEW(&scratch, struct rb_tensor_type, n_in + 1);
    out = RB_ARENA_NEW(&scratch, struct rb_tensor_type, n_out + 1);
    attributes = RB_ARENA_NEW(&scratch, struct rb_attribute, from->n_attributes + 1);
    step->in = RB_ARENA_NEW(arena, const void *, n_in + 1);
    step->out = RB_ARENA_NEW(arena, void *, n_out + 1);
    call = (struct rb_call){
        .op = (enum rb_op)from->operator_,
        .id = from->id,
        .n_in = (int)n_in,
        .n_out = (int)n_out,
        .in = in,
        .out = out,
        .attributes = attributes,
        .n_attributes = (int)from->n_attributes,
    };
    err = read_arguments(b, from->inputs, n_in, "input", in, (void **)step->in);
    err = err ? err : read_arguments(b, from->outputs, n_out, "output", out, step->out);
    call.slices = !err && reads_slice(b, from);
    err = err ? err : check_outputs(b, from);
    if (!err)
        give_spare(b, step, &call);
    if (!err && b->memory->twin) {
        step->kernel = b->memory->twin->steps[step - b->program->steps].kernel;
    } else if (!err && !rb_program_exchanges(from)) {
        err = read_attributes(b, from, attributes);
        err = err ? err : rb_kernel_prepare(b->program->device, &call, &step->kernel, b->why);
    }
    rb_arena_done(&scratch);
    return err;
}

static int make_steps(const struct rb_program_build *b)
{
    for (int i = 0; i < b->program->n_steps; i++) {
        const Rb__Instruction *from = b->from->instructions[i];
        int err = make_step(b, from, &b->program->steps[i]);

        if (err)
            return rb_why_add(b->why, err, "instruction %d%s%.80s%s", i, from->name ? " '" : "",
                              from->name ? from->name : "", from->name ? "'" : "");
    }
    return 0;
}

/* ---- What the program promises ----------------------------------------------------------------*/

/* -1 (no such thing), or one element of this type. */
static int check_scalar(const struct rb_program_build *b, int32_t i, enum rb_dtype dtype,
                        const char *what)
{
    if (i == -1)
        return 0;
    if (i < -1 || i >= b->program->n_tensors || b->types[i].dtype != dtype ||
        rb_tensor_elements(&b->types[i]) != 1)
        return rb_why_set(b->why, RB_EINVAL, "the %s must be one %s", what, rb_dtype_text(dtype));
    return 0;
}

static int check_contributions(const struct rb_program_build *b)
{
    for (size_t k = 0; k < b->from->n_contributions; k++) {
        const Rb__Contribution *c = b->from->contributions[k];
        const Rb__Variable *variable;
        uint64_t elements;

        if (c->variable >= b->model->n_variables || c->tensor >= b->from->n_tensors ||
            c->after > b->from->n_instructions)
            return rb_why_set(b->why, RB_EINVAL, "contribution %zu points outside", k);
        variable = b->model->variables[c->variable];
        elements = (uint64_t)rb_tensor_elements(&b->types[c->tensor]);
        if (variable->role == RB__VARIABLE__ROLE__FIXED || b->types[c->tensor].dtype != RB_F32 ||
            !rb_program_inside(c->first, elements, variable->elements) ||
            (!b->from->parts && elements != variable->elements) ||
            !rb_program_inside(variable->offset, variable->elements, b->model->state_elements))
            return rb_why_set(b->why, RB_EINVAL, "contribution %zu does not fit variable '%s'", k,
                              variable->name);
    }
    return 0;
}

static int check_results(const struct rb_program_build *b)
{
    int err = check_scalar(b, b->from->loss, RB_F64, "loss");

    err = err ? err : check_scalar(b, b->from->count, RB_I64, "count");
    err = err ? err : check_scalar(b, b->from->correct, RB_I64, "number of correct ones");
    for (size_t i = 0; !err && i < b->from->n_outputs; i++)
        if (b->from->outputs[i] < 0 || b->from->outputs[i] >= b->program->n_tensors)
            err = rb_why_set(b->why, RB_EINVAL, "an output is no tensor of the program");
    return err ? err : check_contributions(b);
}

/* Finds the steps whose gradients may be left to rb_program_add. */
static void find_gradients(const struct rb_program_build *b)
{
    struct rb_program *program = b->program;
    const struct rb_reads reads = rb_program_reads(b);

    for (int i = 0; i < program->n_tensors; i++)
        program->makers[i] = -1;
    for (int i = 0; i < program->n_steps; i++) {
        struct step *step = &program->steps[i];

        step->gradient =
            step->kernel && rb_kernel_sums(step->kernel) && rb_reads_gradient(&reads, (size_t)i);
        for (size_t k = 0; step->gradient && k < b->from->n_contributions; k++)
            if (b->from->contributions[k]->after == (uint32_t)i + 1 &&
                rb_reads_overlap(&reads, (int32_t)b->from->contributions[k]->tensor,
                                 b->from->instructions[i]->outputs[0]))
                program->makers[b->from->contributions[k]->tensor] = i;
    }
}

int rb_program_prepare(struct rb_device *device, const Rb__Model *model, const Rb__Program *program,
                       const struct rb_program_memory *memory, struct rb_program **ret_program,
                       struct rb_why *why)
{
    struct rb_program *made;
    struct rb_arena scratch = {0};
    struct rb_program_build b = {.model = model, .from = program, .memory = memory, .why = why};
    int err;

    if (program->n_tensors > INT32_MAX / 2 || program->n_instructions > INT32_MAX / 2 ||
        program->n_inputs > 64)
        return rb_why_set(why, RB_ELIMIT, "program '%.80s' is too large", program->name);
    made = rb_alloc(sizeof(*made));
    made->device = device;
    made->borrows = memory->twin != NULL;
    made->n_tensors = (int)program->n_tensors;
    made->n_steps = (int)program->n_instructions;
    made->once = program->once < program->n_instructions ? (int)program->once : 0;
    made->n_inputs = (int)program->n_inputs;
    made->addresses = RB_ARENA_NEW(&made->arena, void *, program->n_tensors + 1);
    made->steps = RB_ARENA_NEW(&made->arena, struct step, program->n_instructions + 1);
    made->inputs = RB_ARENA_NEW(&made->arena, void *, program->n_inputs + 1);
    made->input_bytes = RB_ARENA_NEW(&made->arena, size_t, program->n_inputs + 1);
    made->bytes = RB_ARENA_NEW(&made->arena, size_t, program->n_tensors + 1);
    made->most_sums = program->n_contributions;
    made->sums = RB_ARENA_NEW(&made->arena, struct sum, program->n_contributions + 1);
    made->into = RB_ARENA_NEW(&made->arena, struct rb_fixed, program->n_contributions + 1);
    made->makers = RB_ARENA_NEW(&made->arena, int, program->n_tensors + 1);
    b.program = made;
    b.types = RB_ARENA_NEW(&scratch, struct rb_tensor_type, program->n_tensors + 1);
    b.bytes = made->bytes;
    err = rb_program_make_tensors(&b);
    if (!err)
        b.spares = rb_program_find_spares(&b, &scratch);
    err = err ? err : make_steps(&b);
    err = err ? err : check_results(&b);
    if (!err) {
        find_gradients(&b);
        rb_program_find_written(&b, &scratch);
    }
    rb_arena_done(&scratch);
    if (err) {
        rb_program_free(made);
        return rb_why_add(why, err, "program '%.80s'", program->name);
    }
    *ret_program = made;
    return 0;
}

void rb_program_free(struct rb_program *program)
{
    if (!program)
        return;
    for (int i = 0; i < program->n_steps && !program->borrows; i++)
        if (program->steps[i].kernel)
            rb_kernel_free(program->steps[i].kernel);
    for (int i = 0; i < program->n_inputs; i++)
        rb_device_free(program->device, program->inputs[i]);
    rb_program_forget(program);
    rb_arena_done(&program->arena);
    free(program);
}

bool rb_program_exchanges(const Rb__Instruction *instruction)
{
    const struct rb_op_info *info = rb_op_info(instruction->operator_);

    return info && info->kind == RB_KIND_EXCHANGE;
}
