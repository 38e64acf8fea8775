/* SPDX-License-Identifier: Apache-2.0 */
/* A Program written by hand: a linear layer with a squared error, its gradient, and a dropout; then
 * the same with one thing wrong at a time. */
#include "worker/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* x [2,3] . w [3] -> y [2]; loss, valid = mse(y, t); dy = mse_grad(y, t); dw = x' dy. */
enum { X, T, W, Y, LOSS, VALID, DY, DW, C, MASKED, TENSORS };
enum { STEPS = 5, STATE = 32, ARENA = 512 };

struct model {
    Rb__Model model;
    Rb__Program program;
    Rb__Variable variable, *variables[1];
    Rb__Tensor tensor[TENSORS], *tensors[TENSORS];
    Rb__Instruction instruction[STEPS], *instructions[STEPS];
    Rb__Attribute transposed, *transposed_list[1], ratio, *ratio_list[1];
    Rb__Contribution contribution, *contributions[1];
    int64_t dims[TENSORS][3], one;
    int32_t in[STEPS][3], out[STEPS][3];
    float half;
    char *inputs[2];
    uint8_t constants[64];
};

static void tensor(struct model *m, int i, Rb__Tensor__Space space, uint64_t offset,
                   enum rb_dtype dtype, int rank, int64_t a, int64_t b)
{
    rb__tensor__init(&m->tensor[i]);
    m->dims[i][0] = a;
    m->dims[i][1] = b;
    m->tensor[i].space = space;
    m->tensor[i].offset = offset;
    m->tensor[i].dtype = (int32_t)dtype;
    m->tensor[i].n_dims = (size_t)rank;
    m->tensor[i].dims = m->dims[i];
    m->tensors[i] = &m->tensor[i];
}

static void instruction(struct model *m, int i, enum rb_op op, int n_in, const int *in, int n_out,
                        const int *out)
{
    rb__instruction__init(&m->instruction[i]);
    for (int k = 0; k < n_in; k++)
        m->in[i][k] = in[k];
    for (int k = 0; k < n_out; k++)
        m->out[i][k] = out[k];
    m->instruction[i].operator_ = (uint32_t)op;
    m->instruction[i].id = (uint32_t)i;
    m->instruction[i].n_inputs = (size_t)n_in;
    m->instruction[i].inputs = m->in[i];
    m->instruction[i].n_outputs = (size_t)n_out;
    m->instruction[i].outputs = m->out[i];
    m->instructions[i] = &m->instruction[i];
}

static void attribute(Rb__Attribute *attribute, char *key, Rb__Attribute **list,
                      Rb__Instruction *instruction)
{
    rb__attribute__init(attribute);
    attribute->key = key;
    list[0] = attribute;
    instruction->n_attributes = 1;
    instruction->attributes = list;
}

static void build_program(struct model *m)
{
    rb__program__init(&m->program);
    m->program.name = (char *)"train b=2";
    m->program.n_tensors = TENSORS;
    m->program.tensors = m->tensors;
    m->program.n_instructions = STEPS;
    m->program.instructions = m->instructions;
    m->program.arena_bytes = ARENA;
    m->inputs[0] = (char *)"features";
    m->inputs[1] = (char *)"targets";
    m->program.n_inputs = 2;
    m->program.inputs = m->inputs;
    m->program.loss = LOSS;
    m->program.count = VALID;
    m->program.correct = -1;
    rb__contribution__init(&m->contribution);
    m->contribution.variable = 0;
    m->contribution.tensor = DW;
    m->contribution.after = 4;
    m->contributions[0] = &m->contribution;
    m->program.n_contributions = 1;
    m->program.contributions = m->contributions;
}

static void build(struct model *m)
{
    memset(m, 0, sizeof(*m));
    tensor(m, X, RB__TENSOR__SPACE__INPUT, 0, RB_F32, 2, 2, 3);
    tensor(m, T, RB__TENSOR__SPACE__INPUT, 1, RB_F32, 1, 2, 0);
    tensor(m, W, RB__TENSOR__SPACE__VARIABLE, 0, RB_F32, 1, 3, 0);
    tensor(m, Y, RB__TENSOR__SPACE__ARENA, 0, RB_F32, 1, 2, 0);
    tensor(m, LOSS, RB__TENSOR__SPACE__ARENA, 64, RB_F64, 1, 1, 0);
    tensor(m, VALID, RB__TENSOR__SPACE__ARENA, 128, RB_I64, 1, 1, 0);
    tensor(m, DY, RB__TENSOR__SPACE__ARENA, 192, RB_F32, 1, 2, 0);
    tensor(m, DW, RB__TENSOR__SPACE__ARENA, 256, RB_F32, 1, 3, 0);
    tensor(m, C, RB__TENSOR__SPACE__CONSTANT, 0, RB_F32, 1, 16, 0);
    tensor(m, MASKED, RB__TENSOR__SPACE__ARENA, 320, RB_F32, 1, 16, 0);
    instruction(m, 0, RB_OP_MATMUL, 3, (int[]){X, W, -1}, 1, (int[]){Y});
    instruction(m, 1, RB_OP_MSE, 2, (int[]){Y, T}, 2, (int[]){LOSS, VALID});
    instruction(m, 2, RB_OP_MSE_GRAD, 2, (int[]){Y, T}, 1, (int[]){DY});
    instruction(m, 3, RB_OP_MATMUL, 2, (int[]){X, DY}, 1, (int[]){DW});
    instruction(m, 4, RB_OP_DROPOUT, 1, (int[]){C}, 1, (int[]){MASKED});
    attribute(&m->transposed, (char *)"transA", m->transposed_list, &m->instruction[3]);
    m->one = 1;
    m->transposed.n_ints = 1;
    m->transposed.ints = &m->one;
    attribute(&m->ratio, (char *)"ratio", m->ratio_list, &m->instruction[4]);
    m->half = 0.5f;
    m->ratio.n_floats = 1;
    m->ratio.floats = &m->half;
    rb__variable__init(&m->variable);
    m->variable.name = (char *)"w";
    m->variable.role = RB__VARIABLE__ROLE__TRAINED;
    m->variable.dtype = RB_F32;
    m->variable.offset = 16;
    m->variable.elements = 3;
    m->variables[0] = &m->variable;
    build_program(m);
    rb__model__init(&m->model);
    m->model.n_variables = 1;
    m->model.variables = m->variables;
    m->model.state_elements = STATE;
    m->model.fixed_bytes = 16;
    m->model.constants.len = sizeof(m->constants);
    for (int i = 0; i < 16; i++)
        memcpy(m->constants + 4 * i, &(float){1.0f}, sizeof(float));
}

struct fixture {
    struct rb_device *device;
    struct rb_program_memory memory;
};

static struct fixture fixture;

static int setup(void **state)
{
    (void)state;
    if (rb_device_open("cpu", 0, &fixture.device, NULL) != 0)
        return -1;
    fixture.memory.state = rb_device_alloc(fixture.device, STATE * sizeof(float));
    fixture.memory.fixed = rb_device_alloc(fixture.device, 16);
    fixture.memory.arena = rb_device_alloc(fixture.device, ARENA);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rb_device_free(fixture.device, fixture.memory.state);
    rb_device_free(fixture.device, fixture.memory.fixed);
    rb_device_free(fixture.device, fixture.memory.arena);
    rb_device_close(fixture.device);
    return 0;
}

static int prepare(struct model *m, struct rb_program **ret, struct rb_why *why)
{
    fixture.memory.constants = m->constants;
    return rb_program_prepare(fixture.device, &m->model, &m->program, &fixture.memory, ret, why);
}

static void count(int step, void *context)
{
    int *steps = context;

    assert_int_equal(step, *steps);
    ++*steps;
}

static void fill(struct rb_program *program)
{
    const float x[6] = {1, 2, 3, -1, 0, 1}, t[2] = {1, 5}, w[3] = {0.5f, -1, 2};

    memcpy(rb_program_input(program, 0), x, sizeof(x));
    memcpy(rb_program_input(program, 1), t, sizeof(t));
    memcpy(fixture.memory.state + 16, w, sizeof(w));
}

static void it_runs(void **state)
{
    const struct rb_key key = {1, 2, 3};
    static struct model m;
    struct rb_program *program = NULL;
    struct rb_why why = {{0}};
    const float *dw, *masked;
    int steps = 0, kept = 0;

    (void)state;
    build(&m);
    if (prepare(&m, &program, &why) != 0)
        fail_msg("%s", why.text);
    fill(program);
    assert_int_equal(rb_program_run(program, &key, NULL, count, &steps), 0);
    assert_int_equal(steps, STEPS);
    /* y = (4.5, 1.5); y - t = (3.5, -3.5) */
    assert_true(*(double *)rb_program_tensor(program, LOSS) == 24.5);
    assert_int_equal(*(int64_t *)rb_program_tensor(program, VALID), 2);
    dw = rb_program_tensor(program, DW);
    assert_true(dw[0] == 14 && dw[1] == 14 && dw[2] == 14);
    masked = rb_program_tensor(program, MASKED);
    for (int i = 0; i < 16; i++)
        kept += masked[i] == 2.0f;
    assert_true(kept > 0 && kept < 16);
    assert_null(rb_program_tensor(program, TENSORS));
    assert_null(rb_program_tensor(program, -1));
    assert_null(rb_program_input(program, 2));
    rb_program_free(program);
}

/* Kept results are not those of the next run. */
static void it_keeps_results(void **state)
{
    const struct rb_key key = {1, 2, 3};
    double *kept = rb_device_alloc(fixture.device, 3 * sizeof *kept);
    static struct model m;
    struct rb_program *program = NULL;

    (void)state;
    build(&m);
    assert_int_equal(prepare(&m, &program, NULL), 0);
    fill(program);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(rb_program_run(program, &key, NULL, NULL, NULL), 0);
        rb_program_keep_result(program, LOSS, &kept[k]);
        memset(rb_program_input(program, 0), 0, 6 * sizeof(float));
    }
    rb_program_keep_result(program, -1, &kept[2]);
    rb_device_pull(fixture.device, kept, 3 * sizeof *kept);
    assert_true(kept[0] == 24.5 && kept[1] == 26 && kept[2] == 0);
    rb_program_free(program);
    rb_device_free(fixture.device, kept);
}

static void stop_at_two(int step, void *context)
{
    if (step == 1)
        atomic_store((atomic_bool *)context, true);
    assert_true(step <= 1);
}

static void it_stops_between_instructions(void **state)
{
    const struct rb_key key = {1, 2, 3};
    static struct model m;
    struct rb_program *program = NULL;
    atomic_bool stop = false;

    (void)state;
    build(&m);
    assert_int_equal(prepare(&m, &program, NULL), 0);
    fill(program);
    assert_int_equal(rb_program_run(program, &key, &stop, stop_at_two, &stop), RB_ECANCELED);
    rb_program_free(program);
}

/* ---- One thing wrong --------------------------------------------------------------------------*/

static void tensor_beyond_arena(struct model *m)
{
    m->tensor[MASKED].offset = ARENA;
}
static void tensor_offset_wraps(struct model *m)
{
    m->tensor[Y].offset = UINT64_MAX - 63;
}
static void tensor_not_aligned(struct model *m)
{
    m->tensor[Y].offset = 4;
}
static void tensor_beyond_constants(struct model *m)
{
    m->tensor[C].offset = 64;
}
static void tensor_of_unknown_space(struct model *m)
{
    m->tensor[Y].space = (Rb__Tensor__Space)77;
}
static void tensor_of_no_variable(struct model *m)
{
    m->tensor[W].offset = 1;
}
static void tensor_of_no_slot(struct model *m)
{
    m->tensor[T].offset = 2;
}
static void tensor_of_unknown_type(struct model *m)
{
    m->tensor[Y].dtype = 99;
}
static void tensor_with_too_many_axes(struct model *m)
{
    m->tensor[Y].n_dims = 9;
}
static void tensor_with_negative_size(struct model *m)
{
    m->dims[Y][0] = -2;
}
static void tensor_too_large(struct model *m)
{
    m->dims[X][0] = INT64_MAX / 2;
}
static void variable_of_other_type(struct model *m)
{
    m->variable.dtype = RB_I32;
}
static void variable_beyond_state(struct model *m)
{
    m->variable.offset = STATE - 2;
}
static void variable_offset_wraps(struct model *m)
{
    m->variable.offset = UINT64_MAX - 1;
}
static void fixed_variable_beyond(struct model *m)
{
    m->variable.role = RB__VARIABLE__ROLE__FIXED;
    m->variable.offset = 8;
    m->program.n_contributions = 0;
}
static void unknown_operator(struct model *m)
{
    m->instruction[1].operator_ = 4000000000u;
}
static void unknown_attribute(struct model *m)
{
    m->ratio.key = (char *)"chance";
}
static void input_of_no_tensor(struct model *m)
{
    m->in[0][0] = TENSORS;
}
static void input_below_absent(struct model *m)
{
    m->in[0][0] = -2;
}
static void output_into_a_weight(struct model *m)
{
    m->out[3][0] = W;
}
static void output_into_a_constant(struct model *m)
{
    m->out[4][0] = C;
}
static void output_onto_an_input(struct model *m)
{
    m->tensor[DY].offset = 0;
}
static void outputs_onto_each_other(struct model *m)
{
    m->tensor[VALID].offset = 64;
}
static void shapes_do_not_fit(struct model *m)
{
    m->dims[W][0] = 2;
}
static void loss_of_other_type(struct model *m)
{
    m->program.loss = VALID;
}
static void count_of_no_tensor(struct model *m)
{
    m->program.count = TENSORS;
}
static void output_of_no_tensor(struct model *m)
{
    static int32_t beyond[] = {TENSORS};

    m->program.outputs = beyond;
    m->program.n_outputs = 1;
}
static void contribution_of_no_variable(struct model *m)
{
    m->contribution.variable = 1;
}
static void contribution_of_no_tensor(struct model *m)
{
    m->contribution.tensor = TENSORS;
}
static void contribution_of_other_size(struct model *m)
{
    m->contribution.tensor = DY;
}
static void contribution_after_the_end(struct model *m)
{
    m->contribution.after = STEPS + 1;
}

static const struct {
    const char *name;
    void (*spoil)(struct model *m);
} wrongs[] = {
#define WRONG(name)                                                                                \
    {                                                                                              \
#name, name                                                                                \
    }
    WRONG(tensor_beyond_arena),        WRONG(tensor_offset_wraps),
    WRONG(tensor_not_aligned),         WRONG(tensor_beyond_constants),
    WRONG(tensor_of_unknown_space),    WRONG(tensor_of_no_variable),
    WRONG(tensor_of_no_slot),          WRONG(tensor_of_unknown_type),
    WRONG(tensor_with_too_many_axes),  WRONG(tensor_with_negative_size),
    WRONG(tensor_too_large),           WRONG(variable_of_other_type),
    WRONG(variable_beyond_state),      WRONG(variable_offset_wraps),
    WRONG(fixed_variable_beyond),      WRONG(unknown_operator),
    WRONG(unknown_attribute),          WRONG(input_of_no_tensor),
    WRONG(input_below_absent),         WRONG(output_into_a_weight),
    WRONG(output_into_a_constant),     WRONG(output_onto_an_input),
    WRONG(outputs_onto_each_other),    WRONG(shapes_do_not_fit),
    WRONG(loss_of_other_type),         WRONG(count_of_no_tensor),
    WRONG(output_of_no_tensor),        WRONG(contribution_of_no_variable),
    WRONG(contribution_of_no_tensor),  WRONG(contribution_of_other_size),
    WRONG(contribution_after_the_end),
#undef WRONG
};

static void malformed_programs_are_refused(void **state)
{
    static struct model m;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(wrongs); i++) {
        struct rb_program *program = NULL;
        struct rb_why why = {{0}};

        build(&m);
        wrongs[i].spoil(&m);
        if (prepare(&m, &program, &why) == 0)
            fail_msg("%s is accepted", wrongs[i].name);
        assert_null(program);
        if (strncmp(why.text, "program 'train b=2': ", 21) != 0 || strlen(why.text) < 30)
            fail_msg("%s: the sentence is '%s'", wrongs[i].name, why.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_runs),
        cmocka_unit_test(it_keeps_results),
        cmocka_unit_test(it_stops_between_instructions),
        cmocka_unit_test(malformed_programs_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
