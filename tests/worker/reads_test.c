/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient that only its contribution reads is not written; any other is. */
#include "worker/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* dw [8,16] = a' b for a [4,8] and b [4,16] from outside; then y = relu(x), elsewhere. */
enum { A, B, DW, X, Y, ALIAS, TENSORS };
enum { SAMPLES = 4, ROWS = 8, COLUMNS = 16, ELEMENTS = ROWS * COLUMNS, BYTES = 4 * ELEMENTS };
enum { ARENA = 4 * BYTES, SPARE = 3 * BYTES };

struct model {
    Rb__Model model;
    Rb__Program program;
    Rb__Variable variable, *variables[1];
    Rb__Tensor tensor[TENSORS], *tensors[TENSORS];
    Rb__Instruction instruction[2], *instructions[2];
    Rb__Attribute turned, *turned_list[1];
    Rb__Contribution contribution[2], *contributions[2];
    int64_t dims[TENSORS][2], one;
    int32_t in[2][2], out[2][1], outputs[1];
    char *inputs[2];
};

static void tensor(struct model *m, int i, Rb__Tensor__Space space, uint64_t offset, int64_t rows,
                   int64_t columns)
{
    rb__tensor__init(&m->tensor[i]);
    m->dims[i][0] = rows;
    m->dims[i][1] = columns;
    m->tensor[i].space = space;
    m->tensor[i].offset = offset;
    m->tensor[i].dtype = RB_F32;
    m->tensor[i].n_dims = 2;
    m->tensor[i].dims = m->dims[i];
    m->tensors[i] = &m->tensor[i];
}

static void instruction(struct model *m, int i, enum rb_op op, int n_in, int first, int second,
                        int out)
{
    rb__instruction__init(&m->instruction[i]);
    m->in[i][0] = first;
    m->in[i][1] = second;
    m->out[i][0] = out;
    m->instruction[i].operator_ = (uint32_t)op;
    m->instruction[i].id = (uint32_t)i;
    m->instruction[i].n_inputs = (size_t)n_in;
    m->instruction[i].inputs = m->in[i];
    m->instruction[i].n_outputs = 1;
    m->instruction[i].outputs = m->out[i];
    m->instructions[i] = &m->instruction[i];
}

static void build_program(struct model *m)
{
    rb__program__init(&m->program);
    m->program.name = (char *)"train b=4";
    m->program.n_tensors = TENSORS;
    m->program.tensors = m->tensors;
    m->program.n_instructions = 2;
    m->program.instructions = m->instructions;
    m->program.arena_bytes = ARENA;
    m->inputs[0] = (char *)"features";
    m->inputs[1] = (char *)"targets";
    m->program.n_inputs = 2;
    m->program.inputs = m->inputs;
    m->program.loss = m->program.count = m->program.correct = -1;
    for (int i = 0; i < 2; i++) {
        rb__contribution__init(&m->contribution[i]);
        m->contribution[i].tensor = DW;
        m->contribution[i].after = 1;
        m->contributions[i] = &m->contribution[i];
    }
    m->program.n_contributions = 1;
    m->program.contributions = m->contributions;
    m->program.outputs = m->outputs;
}

static void build(struct model *m)
{
    memset(m, 0, sizeof *m);
    tensor(m, A, RB__TENSOR__SPACE__INPUT, 0, SAMPLES, ROWS);
    tensor(m, B, RB__TENSOR__SPACE__INPUT, 1, SAMPLES, COLUMNS);
    tensor(m, DW, RB__TENSOR__SPACE__ARENA, 0, ROWS, COLUMNS);
    tensor(m, X, RB__TENSOR__SPACE__ARENA, SPARE, ROWS, COLUMNS);
    tensor(m, Y, RB__TENSOR__SPACE__ARENA, BYTES, ROWS, COLUMNS);
    tensor(m, ALIAS, RB__TENSOR__SPACE__ARENA, 0, COLUMNS, ROWS);
    instruction(m, 0, RB_OP_MATMUL, 2, A, B, DW);
    instruction(m, 1, RB_OP_RELU, 1, X, -1, Y);
    rb__attribute__init(&m->turned);
    m->turned.key = (char *)"transA";
    m->one = 1;
    m->turned.n_ints = 1;
    m->turned.ints = &m->one;
    m->turned_list[0] = &m->turned;
    m->instruction[0].n_attributes = 1;
    m->instruction[0].attributes = m->turned_list;
    rb__variable__init(&m->variable);
    m->variable.name = (char *)"w";
    m->variable.role = RB__VARIABLE__ROLE__TRAINED;
    m->variable.dtype = RB_F32;
    m->variable.elements = ELEMENTS;
    m->variables[0] = &m->variable;
    build_program(m);
    rb__model__init(&m->model);
    m->model.n_variables = 1;
    m->model.variables = m->variables;
    m->model.state_elements = ELEMENTS;
}

static struct rb_device *device;
static struct rb_program_memory memory;

static int setup(void **state)
{
    (void)state;
    if (rb_device_open("cpu", 0, &device, NULL) != 0)
        return -1;
    memory.state = rb_device_alloc(device, BYTES);
    memory.arena = rb_device_alloc(device, ARENA);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rb_device_free(device, memory.state);
    rb_device_free(device, memory.arena);
    rb_device_close(device);
    return 0;
}

struct run {
    struct rb_program *program;
    int tensor, after;
    int32_t sums[ELEMENTS];
    uint32_t largest;
    bool overflow;
};

static void take(int step, void *context)
{
    struct run *run = context;
    const struct rb_fixed into = {.sum = run->sums,
                                  .weight = 1,
                                  .exponent = 16,
                                  .limit = INT32_MAX,
                                  .largest = &run->largest,
                                  .overflow = &run->overflow};

    if (step + 1 == run->after)
        rb_program_add(run->program, run->tensor, &into);
}

/* Does running write the gradient?  The sums are the same if it does not. */
static bool writes(struct model *m)
{
    const struct rb_key key = {0};
    struct run plain = {.tensor = (int)m->contribution[0].tensor,
                        .after = (int)m->contribution[0].after};
    struct run deferred = plain;
    struct rb_program *program = NULL;
    struct rb_why why = {{0}};
    float *dw;
    bool written;

    if (rb_program_prepare(device, &m->model, &m->program, &memory, &program, &why) != 0)
        fail_msg("%s", why.text);
    plain.program = deferred.program = program;
    for (int i = 0; i < SAMPLES * ROWS; i++)
        ((float *)rb_program_input(program, 0))[i] = (float)(i % 7 - 3) * 0.25f;
    for (int i = 0; i < SAMPLES * COLUMNS; i++)
        ((float *)rb_program_input(program, 1))[i] = (float)(i % 5 - 1) * 0.5f;
    assert_int_equal(rb_program_run(program, &key, NULL, take, &plain), 0);
    dw = memory.arena;
    dw[3] = 1234;
    rb_program_defer(program, true);
    assert_int_equal(rb_program_run(program, &key, NULL, take, &deferred), 0);
    written = dw[3] != 1234;
    assert_memory_equal(plain.sums, deferred.sums, sizeof plain.sums);
    assert_int_equal(plain.largest, deferred.largest);
    assert_true(plain.largest > 0);
    rb_program_free(program);
    return written;
}

static void only_its_contribution_reads_it(void **state)
{
    static struct model m;

    (void)state;
    build(&m);
    if (writes(&m))
        skip(); /* this processor has no shorter way */
    build(&m);
    m.program.n_contributions = 2; /* a weight that is used twice, in one place */
    assert_false(writes(&m));
    build(&m);
    m.contribution[0].tensor = ALIAS; /* a reshape lies between */
    assert_false(writes(&m));
}

static void others_read_it(void **state)
{
    static struct model m;

    (void)state;
    build(&m);
    m.in[1][0] = DW;
    assert_true(writes(&m));
    build(&m);
    m.in[1][0] = ALIAS;
    tensor(&m, Y, RB__TENSOR__SPACE__ARENA, BYTES, COLUMNS, ROWS);
    assert_true(writes(&m));
    build(&m);
    m.program.n_outputs = 1;
    m.outputs[0] = DW;
    assert_true(writes(&m));
    build(&m);
    m.contribution[0].after = 2; /* its factors may be gone by then */
    assert_true(writes(&m));
    build(&m);
    m.contribution[1].after = 2;
    m.program.n_contributions = 2;
    assert_true(writes(&m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_contribution_reads_it),
        cmocka_unit_test(others_read_it),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
