/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/stage_inside.h"

#include "base/arena.h"
#include "proto/dtype.h"

#include <stdlib.h>

size_t rb_stage_tensor_bytes(const Rb__Tensor *tensor)
{
    size_t bytes = rb_dtype_size((enum rb_dtype)tensor->dtype);

    for (size_t i = 0; i < tensor->n_dims; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, (size_t)tensor->dims[i], &bytes))
            return 0;
    return bytes;
}

static int check_crossing(const struct rb_stage *stage, const Rb__Course *course,
                          const Rb__Program *program, const Rb__Crossing *one, struct rb_why *why)
{
    uint64_t from, to;
    bool goes = one->made < course->forward;

    if (one->tensor >= program->n_tensors || one->from >= stage->stages ||
        one->to >= stage->stages || one->from == one->to || one->made >= program->n_instructions ||
        one->read <= one->made || one->read > program->n_instructions ||
        program->tensors[one->tensor]->space != RB__TENSOR__SPACE__ARENA)
        return rb_why_set(why, RB_EINVAL,
                          "tensor %u crosses from stage %u to stage %u out of place", one->tensor,
                          one->from, one->to);
    from = course->stages[one->made] >> one->from & 1;
    to = one->read == program->n_instructions || (course->stages[one->read] >> one->to & 1);
    /* what is made backward does not go forward, and what is read forward does not come back */
    if (!from || !to || (one->from < one->to ? !goes : one->read < course->forward))
        return rb_why_set(why, RB_EINVAL, "tensor %u goes from stage %u to stage %u the wrong way",
                          one->tensor, one->from, one->to);
    return 0;
}

static int by_at(const void *a, const void *b)
{
    const struct rb_cargo *left = a, *right = b;

    if (left->at != right->at)
        return left->at < right->at ? -1 : 1;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Both sides go through all crossings in the plan's order, so offsets are the same. */
static int load(const struct rb_stage *stage, const Rb__Course *course, struct rb_part *part,
                struct rb_why *why)
{
    for (size_t c = 0; c < course->n_crossings; c++) {
        const Rb__Crossing *one = course->crossings[c];
        int err = check_crossing(stage, course, part->message, one, why);
        struct rb_cargo cargo = {.tensor = one->tensor};

        if (err)
            return err;
        cargo.bytes = rb_stage_tensor_bytes(part->message->tensors[one->tensor]);
        if (one->from == stage->mine) {
            cargo.at = one->made;
            cargo.peer = one->to;
            cargo.offset = part->out_bytes[one->to];
            part->out_bytes[one->to] += cargo.bytes;
            part->out[part->n_out++] = cargo;
        } else if (one->to == stage->mine) {
            cargo.at = one->read;
            cargo.peer = one->from;
            cargo.offset = part->in_bytes[one->from];
            part->in_bytes[one->from] += cargo.bytes;
            part->in[part->n_in++] = cargo;
        }
    }
    if (part->n_in)
        qsort(part->in, part->n_in, sizeof *part->in, by_at);
    if (part->n_out)
        qsort(part->out, part->n_out, sizeof *part->out, by_at);
    return 0;
}

/* Contributions of what several stages make are the first stage's. */
static void read_runs(const struct rb_stage *stage, const Rb__Course *course, struct rb_part *part)
{
    for (size_t i = 0; i < part->message->n_instructions; i++) {
        part->runs[i] = course->stages[i] >> stage->mine & 1;
        part->adds[i] =
            course->stages[i] && (uint32_t)__builtin_ctzll(course->stages[i]) == stage->mine;
    }
}

static int read_course(struct rb_stage *stage, const Rb__Course *course, const Rb__Model *model,
                       struct rb_why *why)
{
    const Rb__Program *program =
        course->program < model->n_programs ? model->programs[course->program] : NULL;
    struct rb_part *part;

    if (!program || !program->train || stage->parts[course->program].message ||
        course->n_stages != program->n_instructions || course->forward > program->n_instructions)
        return rb_why_set(why, RB_EINVAL, "plan: the course of program %u is none",
                          course->program);
    part = &stage->parts[course->program];
    part->message = program;
    part->forward = course->forward;
    part->runs = rb_alloc(program->n_instructions + 1);
    part->adds = rb_alloc(program->n_instructions + 1);
    part->in = rb_alloc((course->n_crossings + 1) * sizeof *part->in);
    part->out = rb_alloc((course->n_crossings + 1) * sizeof *part->out);
    part->in_bytes = rb_alloc(stage->stages * sizeof *part->in_bytes);
    part->out_bytes = rb_alloc(stage->stages * sizeof *part->out_bytes);
    read_runs(stage, course, part);
    return load(stage, course, part, why);
}

int rb_stage_read_courses(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model,
                          struct rb_why *why)
{
    int err = 0;

    stage->n_parts = model->n_programs;
    stage->parts = rb_alloc((model->n_programs + 1) * sizeof *stage->parts);
    for (size_t c = 0; !err && c < plan->n_courses; c++)
        err = read_course(stage, plan->courses[c], model, why);
    for (size_t p = 0; !err && p < model->n_programs; p++)
        if (model->programs[p]->train && !stage->parts[p].message)
            err = rb_why_set(why, RB_EINVAL, "plan: program %zu has no course", p);
    return err;
}
