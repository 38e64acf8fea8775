/* SPDX-License-Identifier: Apache-2.0 */
/* What the data decide: element types, labels that are no classes, sizes that a model leaves
 * open. */
#include "base/arena.h"
#include "graph/models/writer.h"
#include "tests/plan/jobs.h"

#include <math.h>
#include <stdbool.h>

/* A row of bytes is a row of numbers where the model takes floats, and of tokens where it does
 * not. */
static void bytes_as_features(void **state)
{
    uint8_t rows[50 * 6] = {1, 2, 3};
    struct rb_compiled compiled;

    (void)state;
    jobs_save_npy("bytes.npy", "|u1", "50, 6", rows, sizeof(rows));
    MUST_COMPILE(jobs_rows, &compiled, "spec.data.train.path=bytes.npy", NULL);
    rb_compiled_done(&compiled);
    jobs_save_npy("shorts.npy", "<u2", "50, 3", rows, sizeof(rows));
    MUST_REFUSE(RB_EINVAL, "a sample is int64[3]", jobs_rows, "spec.data.train.path=shorts.npy",
                NULL);
}

/* Indices below 0 count from the end in ONNX; for an embedding they are a mistake. */
static void tokens_below_0(void **state)
{
    int64_t tokens[50 * 8] = {0};

    (void)state;
    jobs_save_npy("tokens.npy", "<i8", "50, 8", tokens, sizeof(tokens));
    tokens[77] = -2;
    jobs_save_npy("below.npy", "<i8", "50, 8", tokens, sizeof(tokens));
    MUST_REFUSE(RB_EINVAL,
                "token -2 is in the data, and the rows of the embedding 'wte.weight' are 0 to 255",
                jobs_text, "spec.data.train.path=below.npy", "spec.data.train.targets=tokens.npy",
                "spec.data.train.format=npy", NULL);
}

/* Truth values and numbers between them, as floats or as integers. */
static void targets_that_are_no_probabilities(void **state)
{
    static const struct {
        float odd;
        const char *says; /* NULL: fine */
    } cases[] = {
        {0.5f, NULL},
        {1.0000001f, NULL},
        {-0.25f, "target -0.25 is in the data, and bce_with_logits takes probabilities, 0 to 1"},
        {255, "target 255 is in the data"},
        {NAN, "nan is in the data"},
    };
    int64_t numbers[50 * 3] = {0, 1};
    struct rb_compiled compiled;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        float targets[50 * 3] = {0, 1, 1};

        targets[50 * 3 - 1] = cases[i].odd;
        jobs_save_npy("odds.npy", "<f4", "50, 3", targets, sizeof(targets));
        if (cases[i].says)
            MUST_REFUSE(RB_EINVAL, cases[i].says, jobs_rows, "spec.loss.type=bce_with_logits",
                        "spec.data.train.targets=odds.npy", "spec.data.eval=null", NULL);
        else
            MUST_COMPILE(jobs_rows, &compiled, "spec.loss.type=bce_with_logits",
                         "spec.data.train.targets=odds.npy", "spec.data.eval=null", NULL);
        if (!cases[i].says)
            rb_compiled_done(&compiled);
        MUST_COMPILE(jobs_rows, &compiled, "spec.loss.type=mse", "spec.data.train.targets=odds.npy",
                     "spec.data.eval=null", NULL);
        rb_compiled_done(&compiled);
    }
    jobs_save_npy("numbers.npy", "<i8", "50, 3", numbers, sizeof(numbers));
    MUST_COMPILE(jobs_rows, &compiled, "spec.loss.type=bce_with_logits",
                 "spec.data.train.targets=numbers.npy", "spec.data.eval=null", NULL);
    rb_compiled_done(&compiled);
    numbers[7] = -1;
    jobs_save_npy("numbers.npy", "<i8", "50, 3", numbers, sizeof(numbers));
    MUST_REFUSE(RB_EINVAL, "target -1 is in the data", jobs_rows, "spec.loss.type=bce_with_logits",
                "spec.data.train.targets=numbers.npy", "spec.data.eval=null", NULL);
}

/* A label that is no class is found, whether or not an ignored label lies beyond it. */
static void labels_that_are_no_classes(void **state)
{
    static const struct {
        int64_t odd[2];
        const char *ignore, *says; /* NULL: fine */
    } cases[] = {
        {{0, 1}, "spec.loss.ignoreIndex=-100", NULL},
        {{-100, 1}, "spec.loss.ignoreIndex=-100", NULL},
        {{-1, 1}, "spec.loss.ignoreIndex=-1", NULL},
        {{-1, 1}, "spec.loss.ignoreIndex=-100", "target -1 is in the data, and classes are 0 to 2"},
        {{-100, -1}, "spec.loss.ignoreIndex=-100", "say spec.loss.ignoreIndex: -1"},
        {{255, 1}, "spec.loss.ignoreIndex=255", NULL},
        {{255, 3}, "spec.loss.ignoreIndex=255", "target 3 is in the data"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        int64_t labels[50] = {0, 2, 1};
        struct rb_compiled compiled;

        labels[20] = cases[i].odd[0];
        labels[30] = cases[i].odd[1];
        jobs_save_npy("odd.npy", "<i8", "50,", labels, sizeof(labels));
        if (cases[i].says) {
            MUST_REFUSE(RB_EINVAL, cases[i].says, jobs_rows, "spec.data.train.targets=odd.npy",
                        cases[i].ignore, NULL);
            continue;
        }
        MUST_COMPILE(jobs_rows, &compiled, "spec.data.train.targets=odd.npy", cases[i].ignore,
                     NULL);
        rb_compiled_done(&compiled);
    }
    jobs_save_npy("odd.npy", "<i8", "50,", (int64_t[50]){0}, 50 * sizeof(int64_t));
    MUST_REFUSE(RB_EINVAL,
                "spec.data.train: every target in the data is 0, which spec.loss.ignoreIndex",
                jobs_rows, "spec.data.train.targets=odd.npy", "spec.loss.ignoreIndex=0", NULL);
}

/* A model of images of any size, with one more input where `more`. */
static void save_sides(const char *file, enum rb_dtype dtype, bool more)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    struct rb_writer w;
    const char *x = "x";

    rb_writer_init(&w, "sides", 3);
    rb_writer_input(&w, "x", dtype, 4, (int64_t[]){-1, 1, 0, 0});
    for (int axis = 2; axis < 4; axis++) {
        Onnx__TensorShapeProto__Dimension *dim =
            w.graph.input[0]->type->tensor_type->shape->dim[axis];

        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        dim->dim_param = rb_arena_string(&w.arena, axis == 2 ? "high" : "wide");
    }
    if (more)
        rb_writer_input(&w, "more", RB_F32, 2, (int64_t[]){-1, 1});
    x = rb_writer_node(&w, "GlobalAveragePool", "pooled", x, NULL);
    x = rb_writer_node(&w, "Flatten", "flat", x, NULL);
    if (more)
        x = rb_writer_node(&w, "Mul", "times", x, "more", NULL);
    rb_writer_node(&w, "MatMul", "logits", x,
                   rb_writer_weight(&w, "w", 2, (int64_t[]){1, 3}, RB_INIT_NORMAL, 0.1), NULL);
    rb_writer_output(&w, "logits", 2, (int64_t[]){-1, 3});
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(file, onnx.data, onnx.size);
}

/* Axes of no size are as long as in the data. */
static void sizes_of_the_data(void **state)
{
    static const float images[50 * 8 * 8 * 3];
    struct rb_compiled compiled;
    const Rb__Program *program;
    bool found = false;

    (void)state;
    save_sides("sides.onnx", RB_F32, false);
    MUST_COMPILE(jobs_rows, &compiled, "spec.model.onnx=sides.onnx",
                 "spec.data.train.path=images.npy", "spec.data.train.targets=images-labels.npy",
                 "spec.data.eval=null", NULL);
    program = compiled.model->programs[0];
    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];

        if (tensor->space == RB__TENSOR__SPACE__INPUT && tensor->offset == 0 &&
            tensor->n_dims == 4) {
            assert_int_equal(tensor->dims[2], 8);
            assert_int_equal(tensor->dims[3], 8);
            found = true;
        }
    }
    assert_true(found);
    rb_compiled_done(&compiled);
    jobs_save_npy("turned.npy", "<f4", "50, 8, 8, 3", images, sizeof(images));
    MUST_REFUSE(RB_EINVAL,
                "spec.data.train: a sample is float32[8,8,3] and the model's input 'x' takes "
                "float32[1,any,any]",
                jobs_rows, "spec.model.onnx=sides.onnx", "spec.data.train.path=turned.npy",
                "spec.data.train.targets=images-labels.npy", "spec.data.eval=null", NULL);
    save_sides("more.onnx", RB_F32, true);
    MUST_REFUSE(RB_EINVAL, "a further input 'more' that nothing fills", jobs_rows,
                "spec.model.onnx=more.onnx", "spec.data.train.path=images.npy",
                "spec.data.train.targets=images-labels.npy", "spec.data.eval=null", NULL);
    save_sides("half.onnx", RB_F16, false);
    MUST_REFUSE(RB_EUNSUPPORTED, "'x' is float16, and only float32", jobs_rows,
                "spec.model.onnx=half.onnx", "spec.data.train.path=images.npy",
                "spec.data.train.targets=images-labels.npy", "spec.data.eval=null", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_as_features),
        cmocka_unit_test(tokens_below_0),
        cmocka_unit_test(targets_that_are_no_probabilities),
        cmocka_unit_test(labels_that_are_no_classes),
        cmocka_unit_test(sizes_of_the_data),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
