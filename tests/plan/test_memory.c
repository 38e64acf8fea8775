/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets from lifetimes: tensors that live at the same time share no bytes. */
#include "base/arena.h"
#include "plan/compile/lower.h"
#include "plan/compile/memory.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 200 };

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static void check_disjoint(const struct rb_memory_life *lives, int n, uint64_t whole)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(lives[i].offset % RB_MEMORY_ALIGN, 0);
        assert_true(lives[i].offset + lives[i].bytes <= whole);
        for (int j = 0; j < i; j++) {
            bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
            bool overlap = lives[i].offset < lives[j].offset + lives[j].bytes &&
                           lives[j].offset < lives[i].offset + lives[i].bytes;

            assert_false(together && overlap);
        }
    }
}

static void random_lives(void **state)
{
    struct rb_memory_life lives[MOST], again[MOST];
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 200; round++) {
        int n = (int)draw(&seed, MOST);
        uint64_t whole;

        for (int i = 0; i < n; i++) {
            int first = (int)draw(&seed, 100);

            lives[i] = (struct rb_memory_life){draw(&seed, 10) ? draw(&seed, 5000) : 0, first,
                                               first + (int)draw(&seed, 20), 0};
        }
        memcpy(again, lives, sizeof(lives));
        whole = rb_memory_place(lives, n);
        check_disjoint(lives, n, whole);
        assert_int_equal(rb_memory_place(again, n), whole);
        for (int i = 0; i < n; i++)
            assert_int_equal(lives[i].offset, again[i].offset);
    }
}

static void reuse(void **state)
{
    struct rb_memory_life lives[] = {{100, 0, 1, 0}, {100, 2, 3, 0}, {64, 1, 2, 0}, {10, 3, 3, 0}};

    (void)state;
    /* Two of 128 one after the other, one of 64 beside them whose place is used again. */
    assert_int_equal(rb_memory_place(lives, 4), 192);
    assert_int_equal(lives[0].offset, 0);
    assert_int_equal(lives[1].offset, 0);
    assert_int_equal(lives[2].offset, 128);
    assert_int_equal(lives[3].offset, 128);
}

/* ---- Whole programs: run them on stamps instead of numbers ---- */

struct stamps {
    const Rb__Program *program;
    int *granule; /* by 64 bytes of the arena: stamp of the last write */
    int *written; /* by tensor: stamp of the write that its elements come from */
    int count;
};

static size_t granules(const Rb__Tensor *tensor)
{
    uint64_t bytes = rb_dtype_size((enum rb_dtype)tensor->dtype);

    for (size_t i = 0; i < tensor->n_dims; i++)
        bytes *= (uint64_t)tensor->dims[i];
    return (size_t)((bytes + RB_MEMORY_ALIGN - 1) / RB_MEMORY_ALIGN);
}

static void write_stamp(struct stamps *stamps, int32_t index)
{
    const Rb__Tensor *tensor;

    if (index < 0)
        return;
    tensor = stamps->program->tensors[index];
    assert_int_equal(tensor->space, RB__TENSOR__SPACE__ARENA);
    assert_true(tensor->offset + granules(tensor) * RB_MEMORY_ALIGN <=
                stamps->program->arena_bytes);
    stamps->written[index] = ++stamps->count;
    for (size_t g = 0; g < granules(tensor); g++)
        stamps->granule[tensor->offset / RB_MEMORY_ALIGN + g] = stamps->count;
}

/* All of the tensor must come from one write; if an instruction made the tensor, from that
 * write. */
static void read_stamp(struct stamps *stamps, int32_t index)
{
    const Rb__Tensor *tensor;
    int stamp;

    if (index < 0)
        return;
    tensor = stamps->program->tensors[index];
    if (tensor->space != RB__TENSOR__SPACE__ARENA || !granules(tensor))
        return;
    stamp = stamps->granule[tensor->offset / RB_MEMORY_ALIGN];
    assert_true(stamp > 0);
    if (!stamps->written[index]) /* a view: the first read tells which write */
        stamps->written[index] = stamp;
    for (size_t g = 0; g < granules(tensor); g++)
        assert_int_equal(stamps->granule[tensor->offset / RB_MEMORY_ALIGN + g],
                         stamps->written[index]);
}

static void run_on_stamps(const Rb__Program *program)
{
    struct stamps stamps = {
        .program = program,
        .granule = rb_alloc(sizeof(int) * (program->arena_bytes / RB_MEMORY_ALIGN + 1)),
        .written = rb_alloc(sizeof(int) * (program->n_tensors + 1)),
    };

    for (size_t i = 0; i < program->n_instructions; i++) {
        const Rb__Instruction *instruction = program->instructions[i];

        for (size_t j = 0; j < instruction->n_inputs; j++)
            read_stamp(&stamps, instruction->inputs[j]);
        for (size_t j = 0; j < instruction->n_outputs; j++)
            write_stamp(&stamps, instruction->outputs[j]);
        for (size_t j = 0; j < instruction->n_inputs; j++) /* not overwritten by its own outputs */
            read_stamp(&stamps, instruction->inputs[j]);
        for (size_t j = 0; j < program->n_contributions; j++)
            if (program->contributions[j]->after == i + 1)
                read_stamp(&stamps, (int32_t)program->contributions[j]->tensor);
    }
    read_stamp(&stamps, program->loss);
    read_stamp(&stamps, program->count);
    read_stamp(&stamps, program->correct);
    for (size_t i = 0; i < program->n_outputs; i++)
        read_stamp(&stamps, program->outputs[i]);
    free(stamps.granule);
    free(stamps.written);
}

static void programs(void **state)
{
    static struct rb_graph *(*const makes[])(int64_t, bool) = {tiny_mlp, tiny_cnn, tiny_gpt};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(makes); i++) {
        Rb__Model *model = rb_alloc(sizeof(*model));
        size_t constants = 0;

        rb__model__init(model);
        for (int64_t batch = 3; batch >= 1; batch--)
            for (int train = 1; train >= 0; train--) {
                struct rb_graph *graph = makes[i](batch, train);
                struct rb_why why = {0};

                if (!model->n_variables)
                    assert_int_equal(rb_lower_variables(graph, model, &why), 0);
                assert_int_equal(rb_lower_program(graph, "p", model, &why), 0);
                rb_graph_free(graph);
                run_on_stamps(model->programs[model->n_programs - 1]);
                if (batch < 3) /* shared with the programs before */
                    assert_int_equal(model->constants.len, constants);
                constants = model->constants.len;
            }
        rb__model__free_unpacked(model, NULL);
    }
}

/* A large embedding: blocks never cross variables, buckets cover the state once. */
static void state_is_covered(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 100));
    struct rb_value *small = tiny_weight(&tiny, "small", TYPE(100, 100), 0, 1);
    struct rb_value *large = tiny_weight(&tiny, "large", TYPE(100, 31003), 0, 1);
    struct rb_value *idle = tiny_weight(&tiny, "idle", TYPE(5), 0, 1);
    struct rb_value *bias = tiny_weight(&tiny, "bias", TYPE(31003), 0, 1);
    Rb__Model *model = rb_alloc(sizeof(*model));
    struct rb_why why = {0};
    uint8_t *seen;

    (void)state;
    (void)idle;
    x = tiny_two(&tiny, RB_OP_MATMUL, "a", x, small);
    x = tiny_two(&tiny, RB_OP_MATMUL, "b", x, large);
    x = tiny_two(&tiny, RB_OP_ADD, "c", x, bias);
    tiny_finish(&tiny, x, "cross_entropy", (struct rb_tensor_type){.dtype = RB_I64});
    rb__model__init(model);
    assert_int_equal(rb_lower_variables(tiny.graph, model, &why), 0);
    assert_int_equal(model->variables[2]->role, RB__VARIABLE__ROLE__FIXED); /* nothing reaches it */
    seen = rb_alloc(model->state_elements);
    for (size_t i = 0; i < model->n_buckets; i++)
        for (uint64_t j = 0; j < model->buckets[i]->count; j++)
            assert_int_equal(seen[model->buckets[i]->first + j]++, 0);
    for (uint64_t j = 0; j < model->state_elements; j++)
        assert_int_equal(seen[j], 1);
    for (size_t i = 0; i < model->n_blocks; i++) {
        const Rb__Block *block = model->blocks[i];
        const Rb__Variable *variable = model->variables[block->variable];

        assert_true(block->count > 0 && block->count <= 65536);
        assert_true(block->first >= variable->offset &&
                    block->first + block->count <= variable->offset + variable->elements);
        for (uint64_t j = 0; j < block->count; j++)
            assert_int_equal(seen[block->first + j]++, 1);
    }
    for (size_t i = 0; i < model->n_variables; i++)
        for (uint64_t j = 0; model->variables[i]->role != RB__VARIABLE__ROLE__FIXED &&
                             j < model->variables[i]->elements;
             j++)
            assert_int_equal(seen[model->variables[i]->offset + j], 2);
    /* The output layer is done first in the backward pass, the input layer last. */
    assert_true(model->buckets[0]->first >= model->variables[1]->offset);
    assert_int_equal(model->buckets[model->n_buckets - 1]->first, 0);
    free(seen);
    rb__model__free_unpacked(model, NULL);
    rb_graph_free(tiny.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives),
        cmocka_unit_test(reuse),
        cmocka_unit_test(programs),
        cmocka_unit_test(state_is_covered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
