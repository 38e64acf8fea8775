/* SPDX-License-Identifier: Apache-2.0 */
/* The operator table: every computation that an instruction list may ask for.
 *
 * graph (import, autodiff) > [operators] > kernels
 *
 * One line an operator: X(NAME, "Name", inputs, outputs, kind, "attributes", "meaning").  Inputs
 * and outputs are the largest counts (-1: any).  Kinds: VIEW moves no bytes (lowering makes it an
 * alias, no kernel sees it); POINT is elementwise with NumPy broadcasting; the others are their
 * own.  EXCHANGE goes between devices: no kernel sees it either (worker/stages/exchange.h).  Models
 * of jobs that train name operators by their place here, so new lines come last.
 *
 * Conventions.  All tensors are row-major and dense.  Axes are counted from 0 (import normalises
 * negative ones).  A grad operator's dy has the type of the forward output, its result that of the
 * forward input.  Trailing inputs may be absent.  Arithmetic is F32; shape-like data is I64;
 * conditions are BOOL.  A product also takes factors of BF16, and may round its result to BF16; so
 * may elementwise operators, which read BF16 too (graph/narrow.c).  Sums are F32 all the same.
 * Convolutions, pools and batch norms also take and make activations in blocks of channels
 * (proto/blocked.h). */
#ifndef RB_PROTO_OPERATORS_H
#define RB_PROTO_OPERATORS_H

#define RB_OPERATORS(X)                                                                            \
    /* views */                                                                                    \
    X(RESHAPE, "Reshape", 1, 1, VIEW, "",                                                          \
      "same elements, other shape (also Flatten, Squeeze, Unsqueeze, Identity)")                   \
    /* elementwise */                                                                              \
    X(ADD, "Add", 2, 1, POINT, "", "a + b")                                                        \
    X(SUB, "Sub", 2, 1, POINT, "", "a - b")                                                        \
    X(MUL, "Mul", 2, 1, POINT, "", "a * b")                                                        \
    X(DIV, "Div", 2, 1, POINT, "", "a / b; integers truncate")                                     \
    X(POW, "Pow", 2, 1, POINT, "", "a to the b")                                                   \
    X(MAX, "Max", 2, 1, POINT, "", "the larger; NaN if either is")                                 \
    X(MIN, "Min", 2, 1, POINT, "", "the smaller; NaN if either is")                                \
    X(MOD, "Mod", 2, 1, POINT, "fmod",                                                             \
      "what is left of a by b, with the sign of b; fmod=1: with that of a; by an integer 0: 0")    \
    X(EQUAL, "Equal", 2, 1, POINT, "", "a == b, BOOL")                                             \
    X(LESS, "Less", 2, 1, POINT, "", "a < b, BOOL")                                                \
    X(GREATER, "Greater", 2, 1, POINT, "", "a > b, BOOL")                                          \
    X(WHERE, "Where", 3, 1, POINT, "", "c ? a : b")                                                \
    X(NEG, "Neg", 1, 1, POINT, "", "-x")                                                           \
    X(ABS, "Abs", 1, 1, POINT, "", "|x|")                                                          \
    X(SIGN, "Sign", 1, 1, POINT, "", "-1, 0 or 1")                                                 \
    X(EXP, "Exp", 1, 1, POINT, "", "e to the x")                                                   \
    X(LOG, "Log", 1, 1, POINT, "", "natural logarithm")                                            \
    X(SQRT, "Sqrt", 1, 1, POINT, "", "square root")                                                \
    X(RECIPROCAL, "Reciprocal", 1, 1, POINT, "", "1 / x")                                          \
    X(FLOOR, "Floor", 1, 1, POINT, "", "largest whole number not above")                           \
    X(CEIL, "Ceil", 1, 1, POINT, "", "smallest whole number not below")                            \
    X(ROUND, "Round", 1, 1, POINT, "", "nearest whole number, halves to the even one")             \
    X(SIN, "Sin", 1, 1, POINT, "", "")                                                             \
    X(COS, "Cos", 1, 1, POINT, "", "")                                                             \
    X(TAN, "Tan", 1, 1, POINT, "", "")                                                             \
    X(ASIN, "Asin", 1, 1, POINT, "", "")                                                           \
    X(ACOS, "Acos", 1, 1, POINT, "", "")                                                           \
    X(ATAN, "Atan", 1, 1, POINT, "", "")                                                           \
    X(SINH, "Sinh", 1, 1, POINT, "", "")                                                           \
    X(COSH, "Cosh", 1, 1, POINT, "", "")                                                           \
    X(ASINH, "Asinh", 1, 1, POINT, "", "")                                                         \
    X(ACOSH, "Acosh", 1, 1, POINT, "", "")                                                         \
    X(ATANH, "Atanh", 1, 1, POINT, "", "")                                                         \
    X(SOFTPLUS, "Softplus", 1, 1, POINT, "", "log(1 + e to the x)")                                \
    X(TANH, "Tanh", 1, 1, POINT, "", "hyperbolic tangent")                                         \
    X(SIGMOID, "Sigmoid", 1, 1, POINT, "", "1 / (1 + e to the -x)")                                \
    X(ERF, "Erf", 1, 1, POINT, "", "error function")                                               \
    X(RELU, "Relu", 1, 1, POINT, "", "max(x, 0)")                                                  \
    X(GELU, "Gelu", 1, 1, POINT, "tanh", "x Phi(x); tanh=1: the tanh approximation")               \
    X(CAST, "Cast", 1, 1, POINT, "", "to the output's type; to BOOL: x != 0")                      \
    X(RELU_GRAD, "ReluGrad", 2, 1, POINT, "", "(dy, y): dy where y > 0, else 0")                   \
    X(GELU_GRAD, "GeluGrad", 2, 1, POINT, "tanh", "(dy, x)")                                       \
    X(TANH_GRAD, "TanhGrad", 2, 1, POINT, "", "(dy, y): dy (1 - y y)")                             \
    X(SIGMOID_GRAD, "SigmoidGrad", 2, 1, POINT, "", "(dy, y): dy y (1 - y)")                       \
    X(ERF_GRAD, "ErfGrad", 2, 1, POINT, "", "(dy, x): dy 2/sqrt(pi) e to the -x x")                \
    /* movement */                                                                                 \
    X(TRANSPOSE, "Transpose", 1, 1, MOVE, "perm", "output axis i is input axis perm[i]")           \
    X(EXPAND, "Expand", 1, 1, MOVE, "", "broadcast to the output's shape")                         \
    X(CONCAT, "Concat", -1, 1, MOVE, "axis", "inputs one after the other along the axis")          \
    X(SPLIT, "Split", 1, -1, MOVE, "axis", "the outputs' sizes along the axis say where to cut")   \
    X(SLICE, "Slice", 1, 1, MOVE, "starts steps",                                                  \
      "a start and a step for every axis (step may be negative)")                                  \
    X(SLICE_GRAD, "SliceGrad", 1, 1, MOVE, "starts steps", "(dy): zeros but for the slice")        \
    X(TRILU, "Trilu", 1, 1, MOVE, "upper k", "zeros below (upper=1) or above the k-th diagonal")   \
    X(GATHER, "Gather", 2, 1, MOVE, "axis padding",                                                \
      "(x, indices I64 or I32, negative ones from the end); padding: see its gradient")            \
    X(GATHER_GRAD, "GatherGrad", 2, 1, MOVE, "axis padding",                                       \
      "(dy, indices): sums into zeros, in index order; padding: an index whose row gets none")     \
    X(GATHER_ELEMENTS, "GatherElements", 2, 1, MOVE, "axis",                                       \
      "(x, indices I64 or I32 of x's rank, not longer on the other axes): x[i][indices[i][j]]")    \
    X(SCATTER, "Scatter", 3, 1, MOVE, "axis reduction",                                            \
      "(x, indices, updates of their shape): x with updates at their places, in index order; "     \
      "reduction: enum rb_scatter")                                                                \
    /* sums */                                                                                     \
    X(REDUCE_SUM, "ReduceSum", 1, 1, REDUCE, "axes",                                               \
      "sum over the axes; the output's shape says whether they stay as 1")                         \
    X(REDUCE_MEAN, "ReduceMean", 1, 1, REDUCE, "axes", "mean over the axes")                       \
    X(REDUCE_MAX, "ReduceMax", 1, 1, REDUCE, "axes", "largest over the axes")                      \
    X(ARG_MAX, "ArgMax", 1, 1, REDUCE, "axis smallest last",                                       \
      "I64 position of the largest (smallest=1) along the axis, of equal ones the first "          \
      "(last=1); the output's shape says whether the axis stays as 1")                             \
    X(CUM_SUM, "CumSum", 1, 1, ROW, "axis exclusive reverse",                                      \
      "running sum along the axis; exclusive=1: without the element itself; reverse=1: from the "  \
      "end")                                                                                       \
    X(TOP_K, "TopK", 1, 2, ROW, "axis smallest",                                                   \
      "the largest (smallest=1) in falling (rising) order, of equal ones the first; their I64 "    \
      "positions; how many, the output's shape says")                                              \
    X(SOFTMAX, "Softmax", 1, 1, ROW, "axis", "along one axis")                                     \
    X(SOFTMAX_GRAD, "SoftmaxGrad", 2, 1, ROW, "axis", "(dy, y)")                                   \
    X(LOG_SOFTMAX, "LogSoftmax", 1, 1, ROW, "axis", "along one axis")                              \
    X(LOG_SOFTMAX_GRAD, "LogSoftmaxGrad", 2, 1, ROW, "axis", "(dy, y)")                            \
    /* products */                                                                                 \
    X(MATMUL, "MatMul", 3, 1, PRODUCT, "transA transB relu",                                       \
      "batched, NumPy broadcasting of leading axes; trans: the last two axes of that input are "   \
      "swapped; third input: a bias [N] for every row; relu=1: max(., 0) of all that")             \
    X(ATTENTION, "FusedAttention", 3, 2, ROW, "scale causal ratio",                                \
      "(q [.. S D], k [.. T D], v [.. T E]): softmax of scale q k' (causal=1: of the keys up to "  \
      "the query), dropped out, times v; F32 log-sum-exp of each row")                             \
    X(ATTENTION_GRAD, "FusedAttentionGrad", 6, 3, ROW, "scale causal ratio key",                   \
      "(dy, q, k, v, y, log-sum-exp): dq, dk, dv; key: the forward instruction's id")              \
    X(CONV, "Conv", 3, 1, PRODUCT, "strides pads dilations group",                                 \
      "(x N C spatial, w M C/group k, b M?); pads: begins then ends")                              \
    X(CONV_GRAD_X, "ConvGradX", 2, 1, PRODUCT, "strides pads dilations group", "(dy, w)")          \
    X(CONV_GRAD_W, "ConvGradW", 2, 1, PRODUCT, "strides pads dilations group", "(dy, x)")          \
    /* norms */                                                                                    \
    X(LAYER_NORM, "LayerNormalization", 3, 3, NORM, "axis epsilon",                                \
      "(x, scale, bias?): y, mean, 1/sqrt(var + epsilon); the last two F32, one a row")            \
    X(LAYER_NORM_GRAD, "LayerNormGrad", 5, 3, NORM, "axis epsilon",                                \
      "(dy, x, scale, mean, inverse deviation): dx, dscale, dbias (absent outputs are not "        \
      "computed)")                                                                                 \
    X(BATCH_NORM, "BatchNormalization", 3, 4, NORM, "epsilon",                                     \
      "training: (x, scale, bias): y, mean, variance (of this microbatch, divided by the count), " \
      "inverse deviation")                                                                         \
    X(BATCH_NORM_EVAL, "BatchNormEval", 5, 1, NORM, "epsilon", "(x, scale, bias, mean, variance)") \
    X(BATCH_NORM_GRAD, "BatchNormGrad", 5, 3, NORM, "epsilon",                                     \
      "(dy, x, scale, mean, inverse deviation): dx, dscale, dbias")                                \
    /* pooling */                                                                                  \
    X(MAX_POOL, "MaxPool", 1, 2, POOL, "kernel strides pads dilations ceil",                       \
      "y and I32 positions in the input's plane (first largest); the second may be absent")        \
    X(MAX_POOL_GRAD, "MaxPoolGrad", 2, 1, POOL, "kernel strides pads dilations ceil",              \
      "(dy, positions)")                                                                           \
    X(AVERAGE_POOL, "AveragePool", 1, 1, POOL, "kernel strides pads ceil countPad",                \
      "mean over the window; countPad=1 counts padding")                                           \
    X(AVERAGE_POOL_GRAD, "AveragePoolGrad", 1, 1, POOL, "kernel strides pads ceil countPad",       \
      "(dy)")                                                                                      \
    /* randomness: keyed by (seed, step, microbatch, instruction id), see kernels/random.h */      \
    X(DROPOUT, "Dropout", 1, 1, RANDOM, "ratio", "x / (1 - ratio) where kept, else 0")             \
    X(DROPOUT_GRAD, "DropoutGrad", 1, 1, RANDOM, "ratio key",                                      \
      "(dy): the mask again; key: the forward instruction's id")                                   \
    /* losses: sums, never means */                                                                \
    X(CROSS_ENTROPY, "CrossEntropy", 2, 4, LOSS, "axis ignoreIndex labelSmoothing",                \
      "(logits, targets I64 or I32 or U8, shaped as logits without the axis): loss F64 [1], "      \
      "valid I64 [1], correct I64 [1], log-sum-exp F64 of each row (shaped as targets)")           \
    X(CROSS_ENTROPY_GRAD, "CrossEntropyGrad", 3, 1, LOSS, "axis ignoreIndex labelSmoothing",       \
      "(logits, targets, log-sum-exp): dlogits of the sum")                                        \
    X(MSE, "MeanSquaredError", 2, 2, LOSS, "",                                                     \
      "(y, targets F32): loss F64 [1] sum of squares, valid I64 [1] elements")                     \
    X(MSE_GRAD, "MeanSquaredErrorGrad", 2, 1, LOSS, "", "2 (y - t)")                               \
    X(BCE_LOGITS, "BceWithLogits", 2, 3, LOSS, "",                                                 \
      "(logits, targets F32): loss F64 [1] sum, valid I64 [1] elements, correct I64 [1] ((logit "  \
      "> 0) == (target > 0.5))")                                                                   \
    X(BCE_LOGITS_GRAD, "BceWithLogitsGrad", 2, 1, LOSS, "", "sigmoid(x) - t")                      \
    X(GRAPH_LOSS, "GraphLoss", 1, 2, LOSS, "samples",                                              \
      "(mean loss F32, one element): loss F64 [1] times samples, valid I64 [1] samples")           \
    /* between devices that have a part of the filters each: axis 1 is that of the filters */      \
    X(SPREAD, "Spread", 1, 1, EXCHANGE, "net sends receives keeps",                                \
      "what this device's filters give, to who reads it; what it reads itself comes out.  sends: " \
      "(part, first, count) of x, receives: (part, first, count) of y, keeps: (first of x, first " \
      "of y, count); either may be absent")                                                        \
    X(FOLD, "Fold", 1, 1, EXCHANGE, "net sends receives keeps",                                    \
      "(dy): the gradient of Spread, with its attributes: what was received goes back, and is "    \
      "added up where it came from: what it kept, then parts in their order")                      \
    /* several of the elementwise ones, see proto/fused.h */                                       \
    X(FUSED, "Fused", 8, 1, POINT, "steps", "elementwise operators, one on what the others make")  \
    /* randomness that no tensor gives its shape, keyed as a dropout is */                         \
    X(UNIFORM, "Uniform", 1, 1, RANDOM, "", "(x, one F32): as much as 24 bits say of [0, x)")      \
    /* a view that ends the way of gradients */                                                    \
    X(DETACH, "Detach", 1, 1, VIEW, "", "the same; no gradient goes through it")                   \
    /* elementwise: keeps the digits that 1 would take from a small x */                           \
    X(EXPM1, "Expm1", 1, 1, POINT, "", "e to the x, less 1")

enum rb_op {
    RB_OP_NONE = 0,
#define X(name, text, inputs, outputs, kind, attributes, meaning) RB_OP_##name,
    RB_OPERATORS(X)
#undef X
        RB_OP_COUNT
};

enum rb_op_kind {
    RB_KIND_VIEW,
    RB_KIND_POINT,
    RB_KIND_MOVE,
    RB_KIND_REDUCE,
    RB_KIND_ROW,
    RB_KIND_PRODUCT,
    RB_KIND_NORM,
    RB_KIND_POOL,
    RB_KIND_RANDOM,
    RB_KIND_LOSS,
    RB_KIND_EXCHANGE,
};

struct rb_op_info {
    const char *name;
    int inputs, outputs; /* largest counts; -1: any */
    enum rb_op_kind kind;
    const char *attributes; /* separated by spaces; any other key is an error */
    const char *meaning;
};

/* What Scatter makes of an element and an update that falls on it: the attribute "reduction". */
enum rb_scatter {
    RB_SCATTER_SET, /* the last update stays */
    RB_SCATTER_ADD,
    RB_SCATTER_MUL,
    RB_SCATTER_MAX, /* NaN if either is */
    RB_SCATTER_MIN, /* likewise */
    RB_SCATTER_COUNT,
};

/* NULL for a number that is no operator. */
const struct rb_op_info *rb_op_info(unsigned op);

#endif
