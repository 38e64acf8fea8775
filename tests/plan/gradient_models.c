/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of whole models: built by hand with each loss, and imported from a file;
 * test_gradient.c runs this. */
#include "base/buffer.h"
#include "graph/autodiff/autodiff.h"
#include "graph/models/models.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_tests.h"
#include "tests/plan/precise.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

void losses(void **state)
{
    static const char *const names[] = {"mse", "bce_with_logits", "cross_entropy", "cross_entropy"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 4));
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(4, 12), 0, 1);
        struct rb_tensor_type targets = {
            .dtype = i < 2 ? RB_F32 : RB_I64, .rank = 2, .dim = {3, 4}};
        struct rb_value *y = tiny_two(&tiny, RB_OP_MATMUL, "fc", x, w);

        if (i == 2) /* classes last */
            targets = (struct rb_tensor_type){.dtype = RB_I64, .rank = 1, .dim = {3}};
        if (i == 3) /* classes second, as PyTorch wants them */
            targets = (struct rb_tensor_type){.dtype = RB_I64, .rank = 1, .dim = {4}};
        tiny_finish(&tiny, tiny_reshape(&tiny, y, TYPE(2, 3, 4)), names[i], targets);
        precise_check(names[i], tiny.graph, gradient_seen);
        gradient_check(names[i], tiny.graph, 4e-3f);
    }
}

void whole_models(void **state)
{
    struct rb_graph *graphs[] = {tiny_mlp(4, true), tiny_mlp(1, true), tiny_cnn(4, true),
                                 tiny_gpt(3, true)};
    static const char *const names[] = {"mlp", "mlp of one sample", "cnn", "gpt"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(graphs); i++) {
        precise_check(names[i], graphs[i], gradient_seen);
        gradient_check(names[i], graphs[i], 4e-3f);
    }
}

/* The same model, plain and in blocks of channels. */
void layouts(void **state)
{
    struct rb_graph *graph = tiny_residual(3, true);
    struct rb_why why = {0};
    double plain, blocked;

    (void)state;
    plain = gradient_check("plain", tiny_residual(3, true), 4e-3f);
    if (rb_layout(graph, &why))
        fail_msg("%s", why.text);
    blocked = gradient_check("in blocks", graph, 4e-3f);
    assert_true(fabs(plain - blocked) <= 1e-5 * fabs(plain));
}

/* A model from a file: generated, imported, fused. */
static struct rb_graph *imported(const char *kind, const char *const *settings, int n,
                                 const struct rb_loss_options *loss)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    const struct rb_import_options options = {.batch = 3, .train = true};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    int err = rb_models_new(kind, settings, n, &onnx, &why);

    if (!err)
        err = rb_onnx_open_bytes(onnx.data, onnx.size, &model, &why);
    if (!err)
        err = rb_onnx_import(model, &options, &graph, &why);
    if (!err)
        err = rb_loss_attach(graph, loss, &why);
    if (!err)
        err = rb_fuse(graph, &why);
    if (!err)
        err = rb_autodiff(graph, &why);
    rb_onnx_close(model);
    if (err)
        fail_msg("%s: %s", kind, why.text);
    return graph;
}

void generated_models(void **state)
{
    static const char *const mlp[] = {"inputs=6", "hidden=8", "depth=2", "classes=3"};
    static const char *const cnn[] = {"image=8", "channels=2", "classes=3", "batchnorm=1",
                                      "dropout=0.2"};
    static const char *const gpt[] = {"vocab=11", "layers=2", "width=8",
                                      "heads=2",  "seq=6",    "dropout=0.1"};
    const struct rb_loss_options label = {
        .type = "cross_entropy", .ignore_index = -100, .targets = {.dtype = RB_I64}};
    const struct rb_loss_options tokens = {.type = "cross_entropy",
                                           .ignore_index = -100,
                                           .label_smoothing = 0.1,
                                           .targets = {RB_I64, 1, {6}}};

    (void)state;
    gradient_check("generated mlp", imported("mlp", mlp, 4, &label), 4e-3f);
    gradient_check("generated cnn", imported("cnn", cnn, 5, &label), 4e-3f);
    gradient_check("generated gpt", imported("gpt", gpt, 6, &tokens), 4e-3f);
}
