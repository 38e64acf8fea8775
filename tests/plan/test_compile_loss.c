/* SPDX-License-Identifier: Apache-2.0 */
/* Losses that the model makes itself: labels that are refused, and means that are noted. */
#include "base/buffer.h"
#include "graph/models/writer.h"
#include "tests/plan/jobs.h"

#include <string.h>

/* The model's own loss of this many classes, whose labels are looked at flat. */
static void save_own_classes(const char *name, int64_t classes, int64_t ignored)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x, *labels;

    rb_writer_init(&w, "own", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    rb_writer_input(&w, "labels", RB_I64, 1, (int64_t[]){-1});
    x = rb_writer_weight(&w, "w.weight", 2, (int64_t[]){6, classes}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "MatMul", "scores", "x", x, NULL);
    labels = rb_writer_constant_ints(&w, "flat", 1, (int64_t[]){-1});
    labels = rb_writer_node(&w, "Reshape", "all", "labels", labels, NULL);
    rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "loss", x, labels, NULL);
    if (ignored)
        rb_writer_int(&w, "ignore_index", ignored);
    rb_writer_output(&w, "loss", 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

/* Labels of the model's own loss are checked like those of the job file's. */
static void own_labels(void **state)
{
    int64_t labels[50] = {0};

    (void)state;
#define OWN_LABELS(name, path)                                                                     \
    "spec.loss.type=graph", "spec.data.eval=null", "spec.model.onnx=" name,                        \
        "spec.data.train.targets=" path, "spec.train.microBatch=10"
    labels[7] = -1;
    jobs_save_npy("some-labels.npy", "<i8", "50,", labels, sizeof labels);
    for (int i = 0; i < 50; i++)
        labels[i] = -1;
    jobs_save_npy("no-labels.npy", "<i8", "50,", labels, sizeof labels);
    save_own_classes("two.onnx", 2, 0);
    save_own_classes("three.onnx", 3, 0);
    save_own_classes("ignoring.onnx", 2, -1);
    MUST_REFUSE(RB_EINVAL, "target 2 is in the data, but the model's loss has 2 classes (0 to 1)",
                jobs_rows, OWN_LABELS("two.onnx", "rows-labels.npy"), NULL);
    MUST_REFUSE(RB_EINVAL, "export the model's loss with ignore_index=-1", jobs_rows,
                OWN_LABELS("three.onnx", "some-labels.npy"), NULL);
    MUST_REFUSE(RB_EINVAL, "every target in the data is -1, which the model's loss leaves out",
                jobs_rows, OWN_LABELS("ignoring.onnx", "no-labels.npy"), NULL);
    MUST_NOT_NOTE(jobs_rows, OWN_LABELS("three.onnx", "rows-labels.npy"), NULL);
    MUST_NOT_NOTE(jobs_rows, OWN_LABELS("ignoring.onnx", "some-labels.npy"), NULL);
}

/* A mean over the labels that count is a plain mean where all of them do. */
static void labels_that_count(void **state)
{
    int64_t labels[50] = {[7] = -1};

    (void)state;
    jobs_save_npy("some-labels.npy", "<i8", "50,", labels, sizeof labels);
    save_own_classes("may-ignore.onnx", 3, -1);
    MUST_NOT_NOTE(jobs_rows, OWN_LABELS("may-ignore.onnx", "rows-labels.npy"),
                  "spec.train.microBatch=4", NULL);
    MUST_NOTE("the model's own loss is no plain mean", jobs_rows,
              OWN_LABELS("may-ignore.onnx", "some-labels.npy"), "spec.train.microBatch=4", NULL);
}

/* The mean of products of each row with every other, where all sizes are those of a microbatch. */
static void save_pairs(const char *name)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x;

    rb_writer_init(&w, "pairs", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    x = rb_writer_weight(&w, "w.weight", 2, (int64_t[]){6, 4}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "MatMul", "rows", "x", x, NULL);
    x = rb_writer_node(&w, "MatMul", "pairs", x,
                       rb_writer_node(&w, "Transpose", "columns", x, NULL), NULL);
    rb_writer_node(&w, "ReduceMean", "loss", x, NULL);
    rb_writer_int(&w, "keepdims", 0);
    rb_writer_output(&w, "loss", 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

static void means_of_pairs(void **state)
{
#define PAIRS                                                                                      \
    "spec.loss.type=graph", "spec.model.onnx=pairs.onnx", "spec.data.train.targets=null",          \
        "spec.data.eval=null"
    (void)state;
    save_pairs("pairs.onnx");
    MUST_NOTE("the model's own loss is no plain mean", jobs_rows, PAIRS, NULL);
    MUST_NOTE("the model's own loss is no plain mean", jobs_rows, PAIRS, "spec.train.microBatch=1",
              NULL);
    MUST_NOT_NOTE(jobs_rows, PAIRS, "spec.train.microBatch=10", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_labels),
        cmocka_unit_test(labels_that_count),
        cmocka_unit_test(means_of_pairs),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
