/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/course.h"

#include "base/arena.h"
#include "plan/compile/makers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

/* While a program is taken apart. */
struct course {
    const Rb__Model *model;
    const Rb__Program *program;
    int *makers;
    uint32_t n, forward, stages;
    uint32_t *parts; /* by forward instruction: the stage whose run it is in */
    bool *loose;     /* by instruction: it runs wherever it is read */
    uint64_t *where; /* by instruction: the stages that run it */
    uint64_t *uses;  /* by variable: the stages whose run reads it */
    int *gives;      /* by instruction: a variable that it makes a gradient of; -1 */
    Rb__Course *made;
};

static int maker_of(const struct course *course, int32_t tensor, uint32_t before)
{
    return tensor < 0 ? -1 : rb_makers_of(course->program, course->makers, tensor, (int)before);
}

/* The variable that a tensor is; -1: it is none. */
static int variable_of(const struct course *course, int32_t tensor)
{
    const Rb__Tensor *one = tensor < 0 ? NULL : course->program->tensors[tensor];

    return one && one->space == RB__TENSOR__SPACE__VARIABLE &&
                   one->offset < course->model->n_variables
               ? (int)one->offset
               : -1;
}

/* The variable of a tensor in front of instruction `before`; what runs wherever it is read, such as
 * rounding a weight, stands for the variable that it reads. */
static int weight_of(const struct course *course, int32_t tensor, uint32_t before)
{
    int maker = maker_of(course, tensor, before);
    const Rb__Instruction *one = maker < 0 ? NULL : course->program->instructions[maker];

    if (!one || !course->loose[maker])
        return variable_of(course, tensor);
    return one->n_inputs ? variable_of(course, one->inputs[0]) : -1;
}

static uint32_t latest(uint64_t stages)
{
    return 63 - (uint32_t)__builtin_clzll(stages);
}

/* Stages 0 .. last. */
static uint64_t up_to(uint32_t last)
{
    return last >= 63 ? UINT64_MAX : (UINT64_C(1) << (last + 1)) - 1;
}

/* ---- The forward part ------------------------------------------------------------------------*/

static int find_parts(struct course *course, const uint32_t *cuts, struct rb_why *why)
{
    uint32_t stage = 0;

    for (uint32_t i = 0; i < course->forward; i++) {
        if (stage + 1 < course->stages && course->program->instructions[i]->id == cuts[stage + 1])
            stage++;
        course->parts[i] = stage;
    }
    if (stage + 1 != course->stages)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "program '%.80s' cannot be cut into %" PRIu32 " stages",
                          course->program->name, course->stages);
    return 0;
}

static bool reads_samples(const struct course *course, const Rb__Instruction *one)
{
    for (size_t k = 0; k < one->n_inputs; k++)
        if (one->inputs[k] >= 0 &&
            course->program->tensors[one->inputs[k]]->space == RB__TENSOR__SPACE__INPUT)
            return true;
    return false;
}

static bool reads_loose(const struct course *course, uint32_t i)
{
    const Rb__Instruction *one = course->program->instructions[i];

    for (size_t k = 0; k < one->n_inputs; k++) {
        int maker = maker_of(course, one->inputs[k], i);

        if (maker >= 0 && !course->loose[maker])
            return false;
    }
    return true;
}

/* Is instruction i a copy of a forward instruction with the same id? */
static bool is_again(const struct course *course, uint32_t i)
{
    for (uint32_t f = 0; i >= course->forward && f < course->forward; f++)
        if (course->program->instructions[f]->id == course->program->instructions[i]->id)
            return true;
    return false;
}

static void find_loose(struct course *course)
{
    for (uint32_t i = 0; i < course->n; i++)
        course->loose[i] =
            is_again(course, i) ||
            (!reads_samples(course, course->program->instructions[i]) && reads_loose(course, i));
}

static void place_forward(struct course *course)
{
    for (uint32_t i = 0; i < course->forward; i++) {
        const Rb__Instruction *one = course->program->instructions[i];

        if (course->loose[i])
            continue;
        course->where[i] = UINT64_C(1) << course->parts[i];
        for (size_t k = 0; k < one->n_inputs; k++) {
            int variable = weight_of(course, one->inputs[k], i);

            if (variable >= 0)
                course->uses[variable] |= course->where[i];
        }
    }
}

/* ---- The backward part -----------------------------------------------------------------------*/

static void find_gradients(struct course *course)
{
    for (uint32_t i = 0; i < course->n; i++)
        course->gives[i] = -1;
    for (size_t c = 0; c < course->program->n_contributions; c++) {
        const Rb__Contribution *one = course->program->contributions[c];

        if (one->after >= 1 && one->after <= course->n)
            course->gives[one->after - 1] = (int)one->variable;
    }
}

static void add_use(const struct course *course, int variable, uint32_t cap, int *want)
{
    uint64_t uses = variable < 0 ? 0 : course->uses[variable] & up_to(cap);

    if (uses && (int)latest(uses) > *want)
        *want = (int)latest(uses);
}

static void place_backward(struct course *course, uint32_t i)
{
    const Rb__Instruction *one = course->program->instructions[i];
    uint32_t cap = course->stages - 1;
    int want = -1;

    for (size_t k = 0; k < one->n_inputs; k++) {
        int maker = maker_of(course, one->inputs[k], i);

        if (maker >= (int)course->forward && !course->loose[maker] &&
            latest(course->where[maker]) < cap)
            cap = latest(course->where[maker]);
    }
    for (size_t k = 0; k < one->n_inputs; k++) {
        int maker = maker_of(course, one->inputs[k], i);

        add_use(course, weight_of(course, one->inputs[k], i), cap, &want);
        if (maker >= 0 && maker < (int)course->forward && !course->loose[maker] &&
            (int)latest(course->where[maker]) > want)
            want = (int)latest(course->where[maker]);
    }
    add_use(course, course->gives[i], cap, &want);
    course->where[i] = UINT64_C(1) << (want >= 0 && want < (int)cap ? (uint32_t)want : cap);
}

/* From the last to the first, each loose instruction in all stages that read it; in stage 0 where
 * none does. */
static void place_loose(struct course *course)
{
    for (uint32_t j = course->n; j-- > 0;) {
        const Rb__Instruction *one = course->program->instructions[j];

        if (!course->where[j])
            course->where[j] = 1;
        for (size_t k = 0; k < one->n_inputs; k++) {
            int maker = maker_of(course, one->inputs[k], j);

            if (maker >= 0 && course->loose[maker])
                course->where[maker] |= course->where[j];
        }
    }
}

/* ---- What crosses ----------------------------------------------------------------------------*/

/* The output of `maker` that shares its memory with `tensor`. */
static uint32_t made_as(const struct course *course, int maker, int32_t tensor)
{
    const Rb__Instruction *one = course->program->instructions[maker];

    for (size_t k = 0; k < one->n_outputs; k++)
        if (one->outputs[k] >= 0 && course->program->tensors[one->outputs[k]]->offset ==
                                        course->program->tensors[tensor]->offset)
            return (uint32_t)one->outputs[k];
    return (uint32_t)tensor;
}

static bool crosses_already(const struct course *course, uint32_t tensor, uint32_t made,
                            uint32_t to)
{
    for (size_t c = 0; c < course->made->n_crossings; c++) {
        const Rb__Crossing *one = course->made->crossings[c];

        if (one->tensor == tensor && one->made == made && one->to == to)
            return true;
    }
    return false;
}

static void add_crossing(struct course *course, int maker, int32_t tensor, uint32_t to,
                         uint32_t read)
{
    uint32_t as = made_as(course, maker, tensor);
    Rb__Crossing *crossing;

    if (crosses_already(course, as, (uint32_t)maker, to))
        return;
    crossing = rb_alloc(sizeof *crossing);
    rb__crossing__init(crossing);
    crossing->tensor = as;
    crossing->from = latest(course->where[maker]);
    crossing->to = to;
    crossing->made = (uint32_t)maker;
    crossing->read = read;
    course->made->crossings = rb_realloc(course->made->crossings,
                                         (course->made->n_crossings + 1) * sizeof(Rb__Crossing *));
    course->made->crossings[course->made->n_crossings++] = crossing;
}

/* Note that these stages read `tensor` in front of instruction `read`. */
static void add_reader(struct course *course, int32_t tensor, uint32_t read, uint64_t stages)
{
    int maker = maker_of(course, tensor, read);

    for (uint32_t s = 0; maker >= 0 && s < course->stages; s++)
        if (stages >> s & 1 && !(course->where[maker] >> s & 1))
            add_crossing(course, maker, tensor, s, read);
}

static void find_crossings(struct course *course)
{
    const Rb__Program *program = course->program;
    uint64_t last = UINT64_C(1) << (course->stages - 1);

    for (uint32_t i = 0; i < course->n; i++)
        for (size_t k = 0; k < program->instructions[i]->n_inputs; k++)
            add_reader(course, program->instructions[i]->inputs[k], i, course->where[i]);
    add_reader(course, program->loss, course->n, last);
    add_reader(course, program->count, course->n, last);
    add_reader(course, program->correct, course->n, last);
}

/* ---- The whole -------------------------------------------------------------------------------*/

static int make(struct course *course, const uint32_t *cuts, struct rb_why *why)
{
    int err = find_parts(course, cuts, why);

    if (err)
        return err;
    find_loose(course);
    place_forward(course);
    find_gradients(course);
    for (uint32_t i = course->forward; i < course->n; i++)
        if (!course->loose[i])
            place_backward(course, i);
    place_loose(course);
    find_crossings(course);
    return 0;
}

int rb_course_make(const Rb__Model *model, uint32_t program, const uint32_t *cuts, uint32_t stages,
                   Rb__Course **ret_course, struct rb_why *why)
{
    const Rb__Program *one = model->programs[program];
    size_t n = one->n_instructions;
    struct course course = {.model = model, .program = one, .n = (uint32_t)n, .stages = stages};
    RB_CLEANUP(rb_freep) int *makers = course.makers = rb_makers_find(one);
    RB_CLEANUP(rb_freep) uint32_t *parts = course.parts = rb_alloc((n + 1) * sizeof *parts);
    RB_CLEANUP(rb_freep) bool *loose = course.loose = rb_alloc((n + 1) * sizeof *loose);
    RB_CLEANUP(rb_freep)
    uint64_t *uses = course.uses = rb_alloc((model->n_variables + 1) * sizeof *uses);
    RB_CLEANUP(rb_freep) int *gives = course.gives = rb_alloc((n + 1) * sizeof *gives);
    int err;

    if (stages < 1 || stages > RB_COURSE_STAGES)
        return rb_why_set(why, RB_EINVAL, "%" PRIu32 " stages: 1 to %d are possible", stages,
                          RB_COURSE_STAGES);
    course.forward = rb_makers_forward(one, makers);
    course.where = rb_alloc((n + 1) * sizeof *course.where);
    course.made = rb_alloc(sizeof *course.made);
    rb__course__init(course.made);
    course.made->program = program;
    course.made->forward = course.forward;
    course.made->stages = course.where;
    course.made->n_stages = n;
    err = make(&course, cuts, why);
    if (err) {
        rb__course__free_unpacked(course.made, NULL);
        return err;
    }
    *ret_course = course.made;
    return 0;
}
