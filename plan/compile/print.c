/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of models and programs. */
#include "base/arena.h"
#include "base/buffer.h"
#include "plan/compile/lower.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *role_text(Rb__Variable__Role role)
{
    switch (role) {
    case RB__VARIABLE__ROLE__TRAINED:
        return "trained";
    case RB__VARIABLE__ROLE__STATISTIC:
        return "statistic";
    default:
        return "fixed";
    }
}

static void print_dims(enum rb_dtype dtype, const int64_t *dims, size_t n, struct rb_buffer *out)
{
    rb_buffer_format(out, "%s[", rb_dtype_text(dtype));
    for (size_t i = 0; i < n; i++)
        rb_buffer_format(out, "%s%" PRId64, i ? "," : "", dims[i]);
    rb_buffer_text(out, "]");
}

void rb_model_print(const Rb__Model *model, struct rb_buffer *out)
{
    rb_buffer_format(out,
                     "state %" PRIu64 " elements, %" PRIu64 " trained; fixed %" PRIu64 " bytes\n",
                     model->state_elements, model->trained_elements, model->fixed_bytes);
    for (size_t i = 0; i < model->n_variables; i++) {
        const Rb__Variable *variable = model->variables[i];

        rb_buffer_format(out, "variable %zu %s %s ", i, role_text(variable->role), variable->name);
        print_dims((enum rb_dtype)variable->dtype, variable->dims, variable->n_dims, out);
        rb_buffer_format(out, " @%" PRIu64, variable->offset);
        if (variable->role != RB__VARIABLE__ROLE__FIXED)
            rb_buffer_format(out, " uses %" PRIu32, variable->uses);
        if (variable->decay)
            rb_buffer_text(out, " decay");
        if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
            rb_buffer_format(out, " momentum %g", (double)variable->momentum);
        rb_buffer_text(out, "\n");
    }
    for (size_t i = 0; i < model->n_blocks; i++)
        rb_buffer_format(out, "block %zu variable %" PRIu32 " [%" PRIu64 " +%" PRIu64 "]\n", i,
                         model->blocks[i]->variable, model->blocks[i]->first,
                         model->blocks[i]->count);
    for (size_t i = 0; i < model->n_buckets; i++)
        rb_buffer_format(out, "bucket %zu [%" PRIu64 " +%" PRIu64 "]\n", i,
                         model->buckets[i]->first, model->buckets[i]->count);
}

/* "%7" of the arena, "in:features", "v:fc1.weight", "c:128". */
static void print_use(const Rb__Model *model, const Rb__Program *program, int32_t index,
                      struct rb_buffer *out)
{
    const Rb__Tensor *tensor;

    if (index < 0 || (size_t)index >= program->n_tensors) {
        rb_buffer_text(out, "-");
        return;
    }
    tensor = program->tensors[index];
    switch (tensor->space) {
    case RB__TENSOR__SPACE__VARIABLE:
        rb_buffer_format(out, "v:%s", model->variables[tensor->offset]->name);
        break;
    case RB__TENSOR__SPACE__CONSTANT:
        rb_buffer_format(out, "c:%" PRIu64, tensor->offset);
        break;
    case RB__TENSOR__SPACE__INPUT:
        rb_buffer_format(out, "in:%s", program->inputs[tensor->offset]);
        break;
    default:
        rb_buffer_format(out, "%%%" PRId32, index);
    }
}

/* A tensor that no instruction makes is a view of what lies at its offset. */
static void print_input(const Rb__Model *model, const Rb__Program *program, const int *made,
                        int32_t index, struct rb_buffer *out)
{
    print_use(model, program, index, out);
    if (index < 0 || (size_t)index >= program->n_tensors || made[index] >= 0)
        return;
    if (program->tensors[index]->space == RB__TENSOR__SPACE__ARENA) {
        const Rb__Tensor *tensor = program->tensors[index];

        rb_buffer_format(out, "@%" PRIu64, tensor->offset);
        rb_buffer_text(out, ":");
        print_dims((enum rb_dtype)tensor->dtype, tensor->dims, tensor->n_dims, out);
    }
}

struct lives {
    int *made, *last; /* by tensor */
};

/* The tensor made last at an offset owns it. */
static void read_by(const Rb__Program *program, struct lives *lives, int32_t index, int at)
{
    int owner = -1;

    if (index < 0 || program->tensors[index]->space != RB__TENSOR__SPACE__ARENA)
        return;
    for (size_t i = 0; i < program->n_tensors; i++)
        if (lives->made[i] >= 0 && lives->made[i] <= at &&
            program->tensors[i]->space == RB__TENSOR__SPACE__ARENA &&
            program->tensors[i]->offset == program->tensors[index]->offset &&
            (owner < 0 || lives->made[i] > lives->made[owner]))
            owner = (int)i;
    if (owner >= 0 && lives->last[owner] < at)
        lives->last[owner] = at;
}

static struct lives find_lives(const Rb__Program *program)
{
    struct lives lives = {rb_alloc(sizeof(int) * (program->n_tensors + 1)),
                          rb_alloc(sizeof(int) * (program->n_tensors + 1))};
    const int32_t results[] = {program->loss, program->count, program->correct};
    int end = (int)program->n_instructions;

    for (size_t i = 0; i < program->n_tensors; i++)
        lives.made[i] = lives.last[i] = -1;
    for (int i = 0; i < end; i++) {
        const Rb__Instruction *instruction = program->instructions[i];

        for (size_t j = 0; j < instruction->n_outputs; j++)
            if (instruction->outputs[j] >= 0)
                lives.made[instruction->outputs[j]] = lives.last[instruction->outputs[j]] = i;
    }
    for (int i = 0; i < end; i++)
        for (size_t j = 0; j < program->instructions[i]->n_inputs; j++)
            read_by(program, &lives, program->instructions[i]->inputs[j], i);
    for (size_t i = 0; i < program->once; i++)
        read_by(program, &lives, program->instructions[i]->outputs[0], end);
    for (size_t i = 0; i < RB_COUNT(results); i++)
        read_by(program, &lives, results[i], end);
    for (size_t i = 0; i < program->n_outputs; i++)
        read_by(program, &lives, program->outputs[i], end);
    return lives;
}

static void print_attributes(const Rb__Instruction *instruction, struct rb_buffer *out)
{
    if (!instruction->n_attributes)
        return;
    rb_buffer_text(out, " {");
    for (size_t i = 0; i < instruction->n_attributes; i++) {
        const Rb__Attribute *attribute = instruction->attributes[i];

        rb_buffer_format(out, "%s%s", i ? ", " : "", attribute->key);
        for (size_t j = 0; j < attribute->n_ints; j++)
            rb_buffer_format(out, " %" PRId64, attribute->ints[j]);
        for (size_t j = 0; j < attribute->n_floats; j++)
            rb_buffer_format(out, " %.9g", (double)attribute->floats[j]);
    }
    rb_buffer_text(out, "}");
}

/* "%4:float32[2,8] @128 lives 3-9" */
static void print_output(const Rb__Program *program, const struct lives *lives, int32_t index,
                         struct rb_buffer *out)
{
    const Rb__Tensor *tensor;

    if (index < 0) {
        rb_buffer_text(out, "-");
        return;
    }
    tensor = program->tensors[index];
    rb_buffer_format(out, "%%%" PRId32 " ", index);
    print_dims((enum rb_dtype)tensor->dtype, tensor->dims, tensor->n_dims, out);
    rb_buffer_format(out, " @%" PRIu64 " lives %d-%d", tensor->offset, lives->made[index],
                     lives->last[index]);
}

static void print_instruction(const Rb__Model *model, const Rb__Program *program,
                              const struct lives *lives, size_t at, struct rb_buffer *out)
{
    const Rb__Instruction *instruction = program->instructions[at];
    const struct rb_op_info *info = rb_op_info(instruction->operator_);

    rb_buffer_format(out, "%3zu #%" PRIu32 " %s(", at, instruction->id, info ? info->name : "?");
    for (size_t i = 0; i < instruction->n_inputs; i++) {
        rb_buffer_text(out, i ? ", " : "");
        print_input(model, program, lives->made, instruction->inputs[i], out);
    }
    rb_buffer_text(out, ")");
    print_attributes(instruction, out);
    for (size_t i = 0; i < instruction->n_outputs; i++) {
        rb_buffer_text(out, i ? "; " : " -> ");
        print_output(program, lives, instruction->outputs[i], out);
    }
    rb_buffer_text(out, "\n");
}

void rb_program_print(const Rb__Model *model, const Rb__Program *program, struct rb_buffer *out)
{
    struct lives lives = find_lives(program);
    const struct {
        const char *name;
        int32_t tensor;
    } results[] = {
        {"loss", program->loss}, {"count", program->count}, {"correct", program->correct}};

    rb_buffer_format(out, "program '%s'%s, %" PRIu32 " samples, arena %" PRIu64 " bytes\n",
                     program->name, program->train ? " (trains)" : "", program->batch,
                     program->arena_bytes);
    for (size_t i = 0; i < program->n_instructions; i++)
        print_instruction(model, program, &lives, i, out);
    for (size_t i = 0; i < program->n_contributions; i++) {
        const Rb__Contribution *contribution = program->contributions[i];

        rb_buffer_format(out,
                         "contribute v:%s += ", model->variables[contribution->variable]->name);
        print_use(model, program, (int32_t)contribution->tensor, out);
        rb_buffer_format(out, " after %" PRIu32 "\n", contribution->after);
    }
    for (size_t i = 0; i < RB_COUNT(results); i++)
        if (results[i].tensor >= 0) {
            rb_buffer_format(out, "%s ", results[i].name);
            print_use(model, program, results[i].tensor, out);
            rb_buffer_text(out, "\n");
        }
    for (size_t i = 0; i < program->n_outputs; i++) {
        rb_buffer_text(out, "output ");
        print_use(model, program, program->outputs[i], out);
        rb_buffer_text(out, "\n");
    }
    free(lives.made);
    free(lives.last);
}
