/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/split_nets.h"

#include "graph/models/writer.h"

#include <math.h>
#include <stdlib.h>

struct net {
    struct rb_writer writer;
    int nodes; /* so far, to name them */
};

static const char *next_name(struct net *net, const char *what)
{
    return RB_WRITER_NAME(&net->writer, "%s%d", what, net->nodes++);
}

static const char *one(struct net *net, const char *op, const char *x)
{
    return rb_writer_node(&net->writer, op, next_name(net, op), x, NULL);
}

static const char *two(struct net *net, const char *op, const char *a, const char *b)
{
    return rb_writer_node(&net->writer, op, next_name(net, op), a, b, NULL);
}

static const char *weight(struct net *net, const char *of, const char *part, int rank,
                          const int64_t *dim, enum rb_init init)
{
    return rb_writer_weight(&net->writer, RB_WRITER_NAME(&net->writer, "%s.%s", of, part), rank,
                            dim, init, 0.2);
}

static const char *conv(struct net *net, const char *x, int64_t from, int64_t to, int64_t kernel,
                        int64_t stride, int64_t group)
{
    const char *name = next_name(net, "conv");
    int64_t pad = kernel / 2, dim[] = {to, from / group, kernel, kernel};
    const char *w = weight(net, name, "weight", 4, dim, RB_INIT_UNIFORM);
    const char *b = weight(net, name, "bias", 1, &to, RB_INIT_UNIFORM);

    x = rb_writer_node(&net->writer, "Conv", name, x, w, b, NULL);
    rb_writer_ints(&net->writer, "kernel_shape", 2, (int64_t[]){kernel, kernel});
    rb_writer_ints(&net->writer, "pads", 4, (int64_t[]){pad, pad, pad, pad});
    rb_writer_ints(&net->writer, "strides", 2, (int64_t[]){stride, stride});
    rb_writer_int(&net->writer, "group", group);
    return x;
}

static const char *norm(struct net *net, const char *x, int64_t n)
{
    static const char *const parts[4] = {"weight", "bias", "running_mean", "running_var"};
    const char *name = next_name(net, "norm"), *names[4];

    for (int i = 0; i < 4; i++)
        names[i] = weight(net, name, parts[i], 1, &n, i % 3 ? RB_INIT_ZERO : RB_INIT_ONE);
    x = rb_writer_node(&net->writer, "BatchNormalization", name, x, names[0], names[1], names[2],
                       names[3], NULL);
    rb_writer_extra_output(&net->writer, RB_WRITER_NAME(&net->writer, "%s.mean", name));
    rb_writer_extra_output(&net->writer, RB_WRITER_NAME(&net->writer, "%s.var", name));
    rb_writer_int(&net->writer, "training_mode", 1);
    return x;
}

static const char *dense(struct net *net, const char *x, int64_t from, int64_t to)
{
    const char *name = next_name(net, "dense");
    const char *w = weight(net, name, "weight", 2, (int64_t[]){to, from}, RB_INIT_UNIFORM);
    const char *b = weight(net, name, "bias", 1, &to, RB_INIT_UNIFORM);

    x = rb_writer_node(&net->writer, "Gemm", name, x, w, b, NULL);
    rb_writer_int(&net->writer, "transB", 1);
    return x;
}

static const char *flat(struct net *net, const char *x)
{
    x = one(net, "Flatten", x);
    rb_writer_int(&net->writer, "axis", 1);
    return x;
}

static const char *begin(struct net *net)
{
    rb_writer_init(&net->writer, "net", 5);
    rb_writer_input(&net->writer, "features", RB_F32, 4, (int64_t[]){-1, 3, 8, 8});
    return "features";
}

static void end(struct net *net, const char *logits, struct rb_buffer *ret_onnx)
{
    struct rb_why why;

    rb_writer_output(&net->writer, logits, 2, (int64_t[]){-1, 4});
    if (rb_writer_finish(&net->writer, ret_onnx, &why))
        abort();
    rb_writer_done(&net->writer);
}

/* A block of ResNet-18; with a stride it has a convolution in its shortcut. */
static const char *block(struct net *net, const char *x, int64_t from, int64_t to, int64_t stride)
{
    const char *y = one(net, "Relu", norm(net, conv(net, x, from, to, 3, stride, 1), to));

    y = norm(net, conv(net, y, to, to, 3, 1, 1), to);
    if (stride > 1)
        x = norm(net, conv(net, x, from, to, 1, stride, 1), to);
    return one(net, "Relu", two(net, "Add", y, x));
}

void split_nets_residual(struct rb_buffer *ret_onnx)
{
    struct net net = {.nodes = 0};
    const char *x = begin(&net), *y, *z;

    x = one(&net, "Relu", norm(&net, conv(&net, x, 3, 16, 3, 1, 1), 16));
    x = block(&net, x, 16, 16, 1);
    for (int i = 0; i < 4; i++) /* more than half of all work is joined: so parts must share it */
        x = one(&net, "Relu", two(&net, "Add", norm(&net, conv(&net, x, 16, 16, 3, 1, 1), 16), x));
    x = block(&net, x, 16, 32, 2);
    y = one(&net, "Relu", norm(&net, x, 32));
    z = conv(&net, y, 32, 32, 3, 1, 2); /* groups read it without blocks: the same activation */
    y = two(&net, "Add", z, conv(&net, y, 32, 32, 3, 1, 1));
    x = one(&net, "Relu", two(&net, "Add", x, y));
    x = flat(&net, one(&net, "GlobalAveragePool", x));
    end(&net, dense(&net, x, 32, 4), ret_onnx);
}

void split_nets_gated(struct rb_buffer *ret_onnx)
{
    struct net net = {.nodes = 0};
    const char *x = begin(&net), *y, *gate, *pooled;

    x = one(&net, "Relu", conv(&net, x, 3, 12, 3, 1, 1));
    y = two(&net, "Sub", x, conv(&net, x, 12, 12, 3, 1, 3));
    gate = conv(&net, one(&net, "GlobalAveragePool", y), 12, 6, 1, 1, 1);
    gate = one(&net, "Sigmoid", conv(&net, one(&net, "Relu", gate), 6, 12, 1, 1, 1));
    y = two(&net, "Mul", y, gate);
    pooled = one(&net, "MaxPool", x);
    rb_writer_ints(&net.writer, "kernel_shape", 2, (int64_t[]){3, 3});
    rb_writer_ints(&net.writer, "pads", 4, (int64_t[]){1, 1, 1, 1});
    rb_writer_ints(&net.writer, "strides", 2, (int64_t[]){1, 1});
    x = two(&net, "Concat", y, pooled);
    rb_writer_int(&net.writer, "axis", 1);
    x = one(&net, "Relu", conv(&net, x, 24, 10, 1, 1, 1));
    x = one(&net, "Tanh", dense(&net, flat(&net, x), 640, 20));
    x = two(&net, "Add", x, one(&net, "Tanh", dense(&net, x, 20, 20)));
    end(&net, dense(&net, x, 20, 4), ret_onnx);
}

static const char *behind(struct net *net, const char *a, const char *b)
{
    const char *x = two(net, "Concat", a, b);

    rb_writer_int(&net->writer, "axis", 1);
    return x;
}

void split_nets_branches(struct rb_buffer *ret_onnx)
{
    struct net net = {.nodes = 0};
    const char *x = begin(&net), *a, *b, *c, *d;

    a = one(&net, "Relu", conv(&net, x, 3, 8, 3, 1, 1));
    b = one(&net, "Relu", conv(&net, x, 3, 8, 3, 2, 1));
    c = behind(&net, flat(&net, a), flat(&net, b));
    d = behind(&net, flat(&net, conv(&net, a, 8, 8, 3, 1, 1)),
               flat(&net, conv(&net, b, 8, 8, 3, 1, 1)));
    x = dense(&net, two(&net, "Add", c, d), 8 * 64 + 8 * 16, 20);
    x = one(&net, "Tanh", two(&net, "Add", x, dense(&net, c, 8 * 64 + 8 * 16, 20)));
    c = behind(&net, dense(&net, x, 20, 2), dense(&net, x, 20, 2));
    end(&net, two(&net, "Add", c, dense(&net, x, 20, 4)), ret_onnx);
}

void split_nets_pooled(struct rb_buffer *ret_onnx)
{
    struct net net = {.nodes = 0};
    const char *x = begin(&net), *y, *z;

    x = one(&net, "Relu", conv(&net, x, 3, 16, 3, 4, 1));
    y = one(&net, "GlobalAveragePool", x);
    z = flat(&net, conv(&net, y, 16, 16, 1, 1, 4));
    z = two(&net, "Add", z, dense(&net, flat(&net, y), 16, 16));
    z = two(&net, "Add", z, one(&net, "Tanh", dense(&net, flat(&net, y), 16, 16)));
    y = flat(&net, one(&net, "GlobalAveragePool", conv(&net, x, 16, 16, 3, 1, 1)));
    z = two(&net, "Add", z, two(&net, "Add", y, dense(&net, flat(&net, x), 64, 16)));
    end(&net, dense(&net, one(&net, "Relu", z), 16, 4), ret_onnx);
}

void split_nets_scaled(struct rb_buffer *ret_onnx)
{
    static const int64_t shape[] = {16, 1, 1};
    struct net net = {.nodes = 0};
    const char *x = one(&net, "Relu", conv(&net, begin(&net), 3, 16, 3, 1, 1)), *y;

    y = conv(&net, x, 16, 16, 3, 1, 1);
    y = two(&net, "Mul", y, weight(&net, "scale", "weight", 3, shape, RB_INIT_ONE));
    x = flat(&net, one(&net, "GlobalAveragePool", two(&net, "Add", x, y)));
    end(&net, dense(&net, x, 16, 4), ret_onnx);
}

void split_nets_dropped(struct rb_buffer *ret_onnx)
{
    struct net net = {.nodes = 0};
    const char *x = one(&net, "Relu", dense(&net, flat(&net, begin(&net)), 192, 20));

    x = dense(&net, x, 20, 4);
    end(&net, rb_writer_dropout(&net.writer, "dropped", x, 0.25), ret_onnx);
}

void split_nets_columns(struct rb_buffer *ret_onnx)
{
    static const int64_t shape[] = {20, 4};
    struct net net = {.nodes = 0};
    const char *x = one(&net, "Relu", dense(&net, flat(&net, begin(&net)), 192, 20));

    end(&net, two(&net, "MatMul", x, weight(&net, "columns", "weight", 2, shape, RB_INIT_UNIFORM)),
        ret_onnx);
}
