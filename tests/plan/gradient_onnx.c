/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of every ONNX operator that is documented to have one: a table of cases;
 * test_gradient.c runs this. */
#include "base/buffer.h"
#include "graph/import/import.h"
#include "graph/train.h"
#include "tests/plan/gradient.h"
#include "tests/plan/gradient_onnx_write.h"
#include "tests/plan/gradient_tests.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct onnx_case cases[] = {
    {"Abs", 17, "f3,4@2", ""},
    {"Acos", 17, "f3,4*0.7", ""},
    {"Acosh", 17, "f3,4@3", ""},
    {"Add", 17, "f3,4 f4", ""},
    {"Asin", 17, "f3,4*0.7", ""},
    {"Asinh", 17, "f3,4*2", ""},
    {"Atan", 17, "f3,4*2", ""},
    {"Atanh", 17, "f3,4*0.7", ""},
    {"Attention", 23, "f2,4,3,6 f2,2,5,6 f2,2,5,4 b3,5=1,1,0,1,0,1,1,1,1,0,0,1,1,1,1", ""},
    {"Attention", 23, "f2,3,8 f2,3,4 f2,3,6", "q_num_heads=4 kv_num_heads=2 is_causal=1 scale=0.4"},
    {"AveragePool", 17, "f1,2,5,6", "kernel_shape=2,3 strides=2,1 pads=1,0,0,1"},
    {"AveragePool", 17, "f1,2,7", "kernel_shape=3 strides=2 ceil_mode=1 count_include_pad=1"},
    {"BatchNormalization", 17, "f3,2,4 f2 f2 f2 f2", "training_mode=1 out=3"},
    {"Cast", 17, "f3,4", "to=11"},
    {"Cast", 17, "f3,4", "to=1"},
    {"CastLike", 17, "f3,4 f1", ""},
    {"Celu", 17, "f3,4*2", "alpha=0.7"},
    {"Clip", 17, "f3,4*2 n-0.9 n1.1", ""},
    {"Clip", 17, "f3,4*2 f1@-0.9*0.1 f1@1.1*0.1", ""},
    {"Col2Im", 18, "f2,12,6 l2=3,5 l2=2,2", "strides=1,2 pads=0,0,0,1"},
    {"Col2Im", 18, "f1,6,4 l1=8 l1=3", "dilations=2"},
    {"Concat", 17, "f2,3 f2,1 f2,2", "axis=-1"},
    {"Conv", 17, "f2,4,7 f6,2,3 f6", "group=2 strides=2 pads=1,2 dilations=2"},
    {"Conv", 17, "f2,2,5,4 f3,2,3,2 f3", "auto_pad=SAME_UPPER"},
    {"Conv", 17, "f1,2,4,3,4 f2,2,2,2,2", ""},
    {"ConvTranspose", 17, "f2,4,5 f4,3,3 f6", "group=2 strides=2 pads=1,0 output_padding=1"},
    {"ConvTranspose", 17, "f1,2,3,4 f2,3,3,2 f3", "strides=2,1 dilations=1,2"},
    {"ConvTranspose", 17, "f1,2,3,3 f2,2,3,3", "strides=3,2 output_shape=10,8"},
    {"ConvTranspose", 17, "f1,2,4 f2,2,3 f2", "dilations=3 pads=0,1 output_padding=2"},
    {"Cos", 17, "x3,4*3", ""},
    {"Cosh", 17, "f3,4*2", ""},
    {"CumSum", 17, "f3,4 l1=1", ""},
    {"CumSum", 17, "f3,4,2 l1=1", "exclusive=1 reverse=1"},
    {"DFT", 17, "f2,5,3,1", "axis=1"},
    {"DFT", 17, "f2,5,2 l1=4", "inverse=1"},
    {"DFT", 17, "f2,4,2 l1=7", "inverse=1 onesided=1"},
    {"DFT", 17, "f2,5,2", "inverse=1 onesided=1"},
    {"DFT", 20, "f3,4,1 l1=6 l1=-2", "onesided=1"},
    {"DepthToSpace", 17, "f1,8,2,3", "blocksize=2 mode=CRD"},
    {"DepthToSpace", 17, "f1,8,2,3", "blocksize=2"},
    {"Div", 17, "f3,4 f3,1@2*0.5", ""},
    {"Dropout", 17, "f3,4 n0.4 b1=1", ""},
    {"Einsum", 17, "f2,3,4 f2,5,4", "equation=bij,bkj->bik"},
    {"Einsum", 17, "f3,3", "equation=ii->i"},
    {"Einsum", 17, "f2,3,4", "equation=...i->i..."},
    {"Einsum", 17, "f2,3 f3,4 f4,5", "equation=ij,jk,kl->il"},
    {"Einsum", 17, "f2,3,4 f4,3,2 f3", "equation=abc,cbd,b"},
    {"Elu", 17, "f3,4*2", "alpha=0.7"},
    {"Erf", 17, "f3,4*2", ""},
    {"Exp", 17, "f3,4", ""},
    {"Expand", 17, "f3,1 l3=2,3,4", ""},
    {"Flatten", 17, "f2,3,4", "axis=2"},
    {"GRU", 17, "f4,2,3 f2,15,3 f2,15,5 f2,30 - f2,2,5",
     "hidden_size=5 direction=bidirectional linear_before_reset=1 out=2"},
    {"GRU", 17, "f3,2,3 f1,15,3 f1,15,5 f1,30 l2=2,3", "hidden_size=5 out=2 use=1"},
    {"Gather", 17, "f4,3 l2,2=1,-1,0,1", ""},
    {"GatherElements", 17, "f4,3 l2,3=1,-1,0,1,3,2", ""},
    {"GatherND", 17, "f3,4,2 l3,2=1,-1,0,1,2,2", ""},
    {"GatherND", 17, "f2,3,4 l2,1=1,-1", "batch_dims=1"},
    {"Gelu", 20, "f3,4*2", ""},
    {"Gelu", 20, "f3,4*2", "approximate=tanh"},
    {"Gemm", 17, "f4,3 f5,4 f5", "transA=1 transB=1 alpha=0.5 beta=2.0"},
    {"Gemm", 17, "f3,4 f4,5 f3,1", ""},
    {"GlobalAveragePool", 17, "f2,3,4,2", ""},
    {"GlobalMaxPool", 17, "f2,3,4,2", ""},
    {"GridSample", 16, "f2,3,4,5 f2,3,2,2", ""},
    {"GridSample", 16, "f2,2,3,4 f2,2,2,2*1.6", "padding_mode=border align_corners=1"},
    {"GridSample", 16, "f1,2,4,5 f1,3,2,2*1.6", "mode=bicubic padding_mode=reflection"},
    {"GridSample", 20, "f1,2,2,3,4 f1,1,2,3,3", ""},
    {"GridSample", 20, "f1,2,5 f1,4,1", "mode=cubic align_corners=1"},
    {"GroupNormalization", 18, "f2,4,3 f2 f2", "num_groups=2"},
    {"GroupNormalization", 21, "f2,4,3,2 f4 f4", "num_groups=2"},
    {"HardSigmoid", 17, "f3,4*4", ""},
    {"HardSwish", 17, "f3,4*5", ""},
    {"Identity", 17, "f3,4", ""},
    {"InstanceNormalization", 17, "f2,3,4,2 f3 f3", ""},
    {"LRN", 17, "f1,5,2,2*2", "size=3 alpha=0.5 beta=0.6 bias=1.5"},
    {"LSTM", 17, "f4,2,3 f2,20,3 f2,20,5 f2,40 - f2,2,5 f2,2,5",
     "hidden_size=5 direction=bidirectional out=3"},
    {"LSTM", 17, "f3,2,3 f1,20,3 f1,20,5 f1,40 l2=2,3 - - f1,15", "hidden_size=5 out=3 use=2"},
    {"LayerNormalization", 17, "f2,3,4 f4@1 f4", ""},
    {"LayerNormalization", 17, "f2,3,4 f3,4", "axis=1 epsilon=0.1"},
    {"LayerNormalization", 17, "f2,3,4 f1@1 f3,1", ""},
    {"LeakyRelu", 17, "f3,4", "alpha=0.3"},
    {"Log", 17, "f3,4@2", ""},
    {"LogSoftmax", 17, "f2,3,4", "axis=1"},
    {"LogSoftmax", 12, "f2,3,4", "axis=1"},
    {"MatMul", 17, "f2,3,4 f4,5", ""},
    {"MatMul", 17, "f4 f2,4,5", ""},
    {"Max", 17, "f3,4 f4 f3,1", ""},
    {"MaxPool", 17, "f1,2,6,5*4", "kernel_shape=3,2 strides=2,1 pads=1,0,1,1"},
    {"MaxPool", 17, "f1,2,7*4", "kernel_shape=3 dilations=2"},
    {"Mean", 17, "f3,4 f4 f3,1", ""},
    {"MeanVarianceNormalization", 17, "f2,3,4,2", ""},
    {"Min", 17, "f3,4 f4", ""},
    {"Mish", 18, "f3,4*2", ""},
    {"Mod", 17, "f3,4@5 n3", "fmod=1"},
    {"Mul", 17, "f3,4 f4", ""},
    {"Neg", 17, "f3,4", ""},
    {"NegativeLogLikelihoodLoss", 17, "f4,3 l4=0,2,1,2", "reduction=sum"},
    {"NegativeLogLikelihoodLoss", 17, "f4,3 l4=0,2,1,2 f3@1*0.5", "ignore_index=1"},
    {"OneHot", 17, "l3=0,2,-1 l1=4 f2", "axis=0"},
    {"PRelu", 17, "f3,4 f4", ""},
    {"Pad", 17, "f3,4 l4=1,0,2,-1", ""},
    {"Pad", 17, "f3,4 l4=1,0,2,1 f", ""},
    {"Pad", 17, "f3,4 l4=1,2,2,1", "mode=reflect"},
    {"Pad", 17, "f3,4 l4=1,2,2,1", "mode=edge"},
    {"Pow", 17, "f3,4@2 n2.5", ""},
    {"Pow", 17, "f3,4@2 f4", ""},
    {"Resize", 17, "f1,2,3,4 - l4=1,1,2,2", "mode=cubic"},
    {"Resize", 17, "f1,2,3,4 - - l4=1,2,5,3",
     "mode=linear coordinate_transformation_mode=align_corners"},
    {"Resize", 18, "f1,2,5,6 - - l4=1,2,2,3", "mode=linear antialias=1"},
    {"RMSNormalization", 23, "f2,3,4 f4@1", ""},
    {"RNN", 17, "f4,2,3 f1,5,3 f1,5,5 f1,10", "hidden_size=5 direction=reverse out=2"},
    {"Reciprocal", 17, "f3,4@2", ""},
    {"ReduceL1", 17, "f2,3,4", "axes=0,2 keepdims=0"},
    {"ReduceL2", 18, "f2,3,4 l1=1", ""},
    {"ReduceLogSum", 17, "f2,3,4@2", "axes=1"},
    {"ReduceLogSumExp", 17, "f2,3,4", "axes=0,2 keepdims=0"},
    {"ReduceMax", 17, "f2,3,4", "axes=0,2"},
    {"ReduceMean", 18, "f2,3,4 l2=0,-1", ""},
    {"ReduceMin", 17, "f2,3,4", "axes=1 keepdims=0"},
    {"ReduceProd", 17, "f2,3,5", "axes=2,1"},
    {"ReduceSum", 17, "f2,3,4 l2=0,-1", "keepdims=0"},
    {"ReduceSumSquare", 17, "f2,3,4", "axes=0,2"},
    {"Relu", 17, "f3,4", ""},
    {"Reshape", 17, "f2,3,4 l2=0,-1", ""},
    {"RotaryEmbedding", 23, "f2,3,4,6 f5,2 f5,2 l2,4=0,1,2,3,1,2,3,4", "rotary_embedding_dim=4"},
    {"RotaryEmbedding", 23, "f2,3,12 f2,3,3 f2,3,3", "interleaved=1 num_heads=2"},
    {"STFT", 17, "f2,14,1 l1=4 f6", ""},
    {"STFT", 17, "f1,9,2 l1=3 - l1=5", "onesided=0"},
    {"Scatter", 10, "f4,3 l2,3=1,3,0,0,1,2 f2,3", ""},
    {"ScatterElements", 17, "f4,3 l2,3=1,3,0,0,1,2 f2,3", ""},
    {"ScatterElements", 17, "f4,3 l2,3=1,3,0,1,-1,0 f2,3", "reduction=add"},
    {"ScatterElements", 18, "f4,3 l4,3=1,3,0,1,2,0,2,0,1,1,3,1 f4,3", "reduction=max"},
    {"ScatterElements", 18, "f4,3 l2,3=1,3,0,1,-1,0 f2,3", "reduction=min"},
    {"ScatterND", 17, "f4,3,2 l2,1=1,-1 f2,3,2", ""},
    {"ScatterND", 17, "f4,3 l3,2=1,1,0,2,1,1 f3", "reduction=add"},
    {"ScatterND", 18, "f4,3 l3,2=1,1,0,2,1,1 f3", "reduction=max"},
    {"Selu", 17, "f3,4*2", ""},
    {"Shrink", 17, "f3,4*2", "lambd=0.7 bias=0.3"},
    {"Sigmoid", 17, "f3,4*2", ""},
    {"Sin", 17, "x3,4*3", ""},
    {"Sinh", 17, "f3,4*2", ""},
    {"Slice", 17, "f5,4 l2=4,0 l2=-9,3 l2=0,1 l2=-2,1", ""},
    {"Softmax", 17, "f2,3,4", "axis=1"},
    {"Softmax", 12, "f2,3,4", "axis=1"},
    {"SoftmaxCrossEntropyLoss", 17, "f4,3,2 f4,3,2@1*0.5 f3@1*0.5", "ignore_index=-100"},
    {"SoftmaxCrossEntropyLoss", 17, "f4,3 l4=0,2,1,2", ""},
    {"SoftmaxCrossEntropyLoss", 17, "f2,3,2 l2,2=0,2,1,2 f3@1*0.5", "ignore_index=1 out=2"},
    {"Softplus", 17, "f3,4*3", ""},
    {"Softsign", 17, "f3,4*2", ""},
    {"SpaceToDepth", 17, "f1,2,4,6", "blocksize=2"},
    {"Split", 17, "f2,6 l3=1,3,2", "axis=1 out=3 use=1"},
    {"Split", 18, "f2,7", "axis=1 num_outputs=3 out=3 use=2"},
    {"Sqrt", 17, "f3,4@2", ""},
    {"Squeeze", 17, "f2,1,3,1 l1=1", ""},
    {"Sub", 17, "f3,4 f4", ""},
    {"Sum", 17, "f3,4 f4 f3,1", ""},
    {"Tan", 17, "f3,4", ""},
    {"Tanh", 17, "f3,4*2", ""},
    {"ThresholdedRelu", 17, "f3,4*2", "alpha=0.5"},
    {"Tile", 17, "f2,3 l2=3,2", ""},
    {"TopK", 17, "f3,6 l1=2", "out=2"},
    {"TopK", 17, "f6,3 l1=4", "axis=0 largest=0 out=2"},
    {"Transpose", 17, "f2,3,4", "perm=2,0,1"},
    {"Trilu", 17, "f2,3,4 l1=-1", "upper=0"},
    {"Unsqueeze", 17, "f2,3 l2=0,-1", ""},
    {"Upsample", 9, "f1,2,3,4 l4=1,1,2,2", ""},
    {"Where", 17, "b3,1=1,0,1 f3,4 f4", ""},
};

static struct rb_graph *import(struct rb_writer *w, const char *output, int64_t opset,
                               const char *what)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    const struct rb_import_options options = {.train = true};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    int err;

    rb_writer_output(w, output, 0, NULL);
    err = rb_writer_finish(w, &onnx, &why);
    if (!err)
        err = rb_onnx_open_bytes(onnx.data, onnx.size, &model, &why);
    if (!err) {
        model->opset = opset;
        err = rb_onnx_import(model, &options, &graph, &why);
    }
    if (err)
        fail_msg("%s: %s", what, why.text);
    rb_onnx_close(model);
    return graph;
}

static void check(const char *what, struct rb_graph *graph)
{
    struct tiny tiny = {graph, 3};
    struct rb_value *y = graph->outputs[0];

    if (y->type.dtype != RB_F32) {
        struct rb_tensor_type type = y->type;

        type.dtype = RB_F32;
        y = tiny_node(&tiny, RB_OP_CAST, "back", 1, &type, 0, NULL, 1, &y)->out[0];
    }
    gradient_check_output(what, &tiny, y);
}

static void start(struct rb_writer *w)
{
    const int64_t one = 1;

    rb_writer_init(w, "case", 5);
    rb_writer_input(w, "x", RB_F32, 1, &one);
}

void gradient_onnx_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const struct onnx_case *c = &cases[i];
        char *what = rb_format("%s(%s) {%s}", c->op, c->inputs, c->attributes);
        struct rb_writer w;
        const char *output;

        start(&w);
        output = gradient_onnx_write(&w, c);
        check(what, import(&w, output, c->opset, what));
        rb_writer_done(&w);
        free(what);
    }
    for (size_t i = 0; i < ONNX_LARGER; i++) {
        struct rb_writer w;
        const char *output;

        start(&w);
        output = gradient_onnx_larger[i].write(&w);
        check(gradient_onnx_larger[i].ops, import(&w, output, 17, gradient_onnx_larger[i].ops));
        rb_writer_done(&w);
    }
}

static bool has_case(const char *op)
{
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (!strcmp(cases[i].op, op))
            return true;
    for (size_t i = 0; i < ONNX_LARGER; i++)
        if (strstr(gradient_onnx_larger[i].ops, op))
            return true;
    return false;
}

void gradient_onnx_all(void **state)
{
    int n;
    const struct rb_import_op *all = rb_import_all(&n);

    (void)state;
    for (int i = 0; i < n; i++)
        if (all[i].gradient == RB_GRADIENT_YES && all[i].since <= 23 && !has_case(all[i].name))
            fail_msg("no gradient test of %s", all[i].name);
}
