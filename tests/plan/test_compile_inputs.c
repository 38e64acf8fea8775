/* SPDX-License-Identifier: Apache-2.0 */
/* Models of several inputs: each has data of its own, by its name. */
#include "base/arena.h"
#include "graph/models/writer.h"
#include "tests/plan/jobs.h"

/* x with a mask, after a row of a table; where `own_loss`, the model has a loss of its own, whose
 * labels are one more input. */
static void save_masked(const char *file, int64_t rows_of_mask, bool own_loss)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    struct rb_writer w;
    const char *y, *mask;

    rb_writer_init(&w, "masked", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    rb_writer_input(&w, "mask", RB_BOOL, 2, (int64_t[]){rows_of_mask, 6});
    rb_writer_input(&w, "kind", RB_I32, 1, (int64_t[]){-1});
    if (own_loss)
        rb_writer_input(&w, "labels", RB_I64, 1, (int64_t[]){-1});
    mask = rb_writer_node(&w, "Cast", "mask.f", "mask", NULL);
    rb_writer_int(&w, "to", 1);
    y = rb_writer_node(&w, "Mul", "masked", "x", mask, NULL);
    y = rb_writer_node(
        &w, "Add", "sum", y,
        rb_writer_node(&w, "Gather", "row",
                       rb_writer_weight(&w, "table", 2, (int64_t[]){5, 6}, RB_INIT_NORMAL, 0.1),
                       "kind", NULL),
        NULL);
    y = rb_writer_node(&w, "MatMul", "logits", y,
                       rb_writer_weight(&w, "w", 2, (int64_t[]){6, 3}, RB_INIT_NORMAL, 0.1), NULL);
    if (own_loss) {
        rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "loss", y, "labels", NULL);
        rb_writer_output(&w, "loss", 0, NULL);
    } else {
        rb_writer_output(&w, "logits", 2, (int64_t[]){-1, 3});
    }
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(file, onnx.data, onnx.size);
}

static int open_jobs(void **state)
{
    uint8_t truth[50 * 6] = {1, 0, 1};
    int64_t kinds[50] = {4, 3};

    if (jobs_open(state))
        return -1;
    save_masked("masked.onnx", -1, false);
    save_masked("fixed.onnx", 1, false);
    save_masked("own.onnx", -1, true);
    jobs_save_npy("mask.npy", "|b1", "50, 6", truth, sizeof(truth));
    jobs_save_npy("few.npy", "|b1", "7, 6", truth, 7 * 6);
    jobs_save_npy("kind.npy", "<i8", "50,", kinds, sizeof(kinds));
    jobs_save_npy("kind7.npy", "<i8", "7,", kinds, 7 * sizeof(*kinds));
    kinds[49] = 5;
    jobs_save_npy("beyond.npy", "<i8", "50,", kinds, sizeof(kinds));
    kinds[49] = (1LL << 32) + 1; /* cut to 32 bits it would be 1 */
    jobs_save_npy("wide.npy", "<i8", "50,", kinds, sizeof(kinds));
    return 0;
}

#define MASK   "{name: mask, path: mask.npy}"
#define KIND   "{name: kind, path: kind.npy}"
#define MASKED "spec.model.onnx=masked.onnx", "spec.data.eval=null"
#define BOTH   "spec.data.train.inputs=[" MASK ", " KIND "]"

static const Rb__Tensor *input_of(const Rb__Program *program, const char *name)
{
    for (size_t slot = 0; slot < program->n_inputs; slot++)
        for (size_t i = 0; !strcmp(program->inputs[slot], name) && i < program->n_tensors; i++)
            if (program->tensors[i]->space == RB__TENSOR__SPACE__INPUT &&
                program->tensors[i]->offset == slot)
                return program->tensors[i];
    return NULL;
}

/* Data are int64, whatever integers the model takes, and go by the names of the model's inputs. */
static void by_name(void **state)
{
    struct rb_compiled compiled;
    const Rb__Source *source;
    uint64_t content;

    (void)state;
    MUST_COMPILE(jobs_rows, &compiled, MASKED, BOTH, NULL);
    assert_int_equal(input_of(compiled.model->programs[0], "mask")->dtype, RB_I64);
    assert_int_equal(input_of(compiled.model->programs[0], "kind")->dtype, RB_I64);
    assert_int_equal(input_of(compiled.model->programs[0], "features")->dtype, RB_F32);
    assert_non_null(input_of(compiled.model->programs[0], "targets"));
    source = compiled.model->train;
    content = source->content;
    assert_int_equal(source->n_inputs, 2);
    assert_int_equal(compiled.model->format, 2); /* a worker that does not know inputs refuses it */
    assert_string_equal(source->inputs[1]->name, "kind");
    assert_non_null(strstr(source->inputs[1]->path[0], "/kind.npy"));
    assert_int_equal(source->n_contents, 4);
    rb_compiled_done(&compiled);
    MUST_COMPILE(
        jobs_rows, &compiled, "spec.model.onnx=masked.onnx", BOTH,
        "spec.data.eval.inputs=[{name: kind, path: kind7.npy}, {name: mask, path: few.npy}]", NULL);
    assert_string_equal(compiled.model->eval->inputs[0]->name, "mask");
    rb_compiled_done(&compiled);
    MUST_COMPILE(jobs_rows, &compiled, MASKED, "spec.data.train.inputs=[" KIND ", " MASK "]", NULL);
    assert_true(compiled.model->train->content == content); /* in any order */
    rb_compiled_done(&compiled);
}

/* With a loss in the model the labels are the targets, or an input like the others. */
static void own_loss(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    MUST_COMPILE(jobs_rows, &compiled, "spec.model.onnx=own.onnx", "spec.data.eval=null", BOTH,
                 "spec.loss.type=graph", NULL);
    assert_non_null(input_of(compiled.model->programs[0], "targets"));
    assert_null(input_of(compiled.model->programs[0], "labels"));
    rb_compiled_done(&compiled);
    MUST_COMPILE(jobs_rows, &compiled, "spec.model.onnx=own.onnx", "spec.data.eval=null",
                 "spec.data.train.inputs=[" MASK ", " KIND
                 ", {name: labels, path: rows-labels.npy}]",
                 "spec.data.train.targets=null", "spec.loss.type=graph", NULL);
    assert_non_null(input_of(compiled.model->programs[0], "labels"));
    assert_null(input_of(compiled.model->programs[0], "targets"));
    rb_compiled_done(&compiled);
    MUST_NOTE("spec.data.train.targets is ignored", jobs_rows, "spec.model.onnx=own.onnx",
              "spec.data.eval=null", "spec.loss.type=graph",
              "spec.data.train.inputs=[" MASK ", " KIND ", {name: labels, path: rows-labels.npy}]",
              NULL);
    MUST_REFUSE(RB_EINVAL, "target 4 is in the data, but the model's loss has 3 classes", jobs_rows,
                "spec.model.onnx=own.onnx", "spec.data.eval=null",
                "spec.data.train.inputs=[" MASK ", " KIND ", {name: labels, path: kind.npy}]",
                "spec.data.train.targets=null", "spec.loss.type=graph", NULL);
}

/* Lists that each may be so long, and together are more files than a process can keep open. */
static void too_many_files(void **state)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer list = {0}, path = {0}, targets = {0}, inputs = {0};

    (void)state;
    rb_buffer_text(&list, "[0");
    for (int i = 1; i < 8192; i++)
        rb_buffer_format(&list, ",%d", i);
    rb_buffer_text(&list, "]");
    rb_buffer_format(&path, "spec.data.train.path=%s", (const char *)list.data);
    rb_buffer_format(&targets, "spec.data.train.targets=%s", (const char *)list.data);
    rb_buffer_format(&inputs,
                     "spec.data.train.inputs=[{name: kind, path: %s}, {name: mask, path: %s}, "
                     "{name: labels, path: rows-labels.npy}]",
                     (const char *)list.data, (const char *)list.data);
    MUST_REFUSE(RB_ELIMIT,
                "spec.data.train: with it the job's data are 32769 files in all; the most is 32768",
                jobs_rows, "spec.model.onnx=own.onnx", "spec.data.eval=null",
                (const char *)path.data, (const char *)targets.data, (const char *)inputs.data,
                NULL);
}

static void refused(void **state)
{
    static const struct {
        const char *inputs, *says;
    } cases[] = {
        {"[" MASK "]", "the model has a further input 'kind' that nothing fills: say inputs: "
                       "[{name: kind, path: FILE}] beside path"},
        {"[" MASK ", {name: kind, path: mask.npy}]",
         "a sample is int64[6] and the model's input 'kind' takes int32[] a sample"},
        {"[" MASK ", {name: kind, path: beyond.npy}]",
         "token 5 is in the data, but the embedding 'table' has 5 rows"},
        {"[" MASK ", {name: kind, path: wide.npy}]",
         "4294967297 is in the data, and the model's input 'kind' is int32"},
        {"[" KIND ", {name: mask, path: rows.npy}]",
         "the data are float32 and the model's input 'mask' is bool"},
        {"[" KIND ", {name: mask, path: few.npy}]", "has 7 rows; expected 50"},
        {"[" KIND ", {name: mask, path: none.npy}]", "input 'mask': cannot open"},
        {"[" KIND ", {name: musk, path: mask.npy}]",
         "the model has no input 'musk'; beside the first there are 'mask' and others"},
        {"[{name: x, path: rows.npy}]", "'x' is the model's first input, and path is its data"},
        {"[" KIND ", " KIND "]", "'kind' is there twice"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_freep)
        char *inputs = rb_format("spec.data.train.inputs=%s", cases[i].inputs);
        struct rb_compiled none = {0};
        struct rb_why why = {0};

        assert_int_not_equal(jobs_compile(jobs_rows, "test", &none, &why, MASKED, inputs, NULL), 0);
        if (!strstr(why.text, cases[i].says) || !strstr(why.text, "spec.data.train"))
            fail_msg("'%s' does not say '%s'", why.text, cases[i].says);
    }
    MUST_REFUSE(RB_EINVAL, "spec.data.eval: the model's input 'mask' has no data here", jobs_rows,
                "spec.model.onnx=masked.onnx", BOTH, NULL);
    MUST_REFUSE(RB_EUNSUPPORTED,
                "the first axis of the model's input 'mask' is 1 long for a batch of 4: it must",
                jobs_rows, "spec.model.onnx=fixed.onnx", "spec.data.eval=null", BOTH, NULL);
    MUST_REFUSE(RB_EINVAL, "the model has one input alone, 'features'", jobs_rows,
                "spec.data.eval=null", "spec.data.train.inputs=[" MASK "]", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_name),
        cmocka_unit_test(own_loss),
        cmocka_unit_test(too_many_files),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, open_jobs, jobs_close);
}
