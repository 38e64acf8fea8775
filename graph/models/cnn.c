/* SPDX-License-Identifier: Apache-2.0 */
/* cnn: three times Conv 3x3, (BatchNorm,) ReLU, MaxPool, as nn.Sequential `c`; then two Linear as
 * `f`. */
#include "graph/models/kinds.h"

#include <math.h>

enum { IMAGE, CHANNELS, CLASSES, BATCHNORM, DROPOUT };
enum { WIDTH = 256 };

static const int64_t widths[3] = {32, 64, 128};

static int64_t side(const double *v)
{
    return (int64_t)v[IMAGE] / 2 / 2 / 2;
}

static uint64_t parameters(const double *v)
{
    double flat = 128.0 * (double)side(v) * (double)side(v);

    return (uint64_t)(flat * WIDTH + 9 * 32 * v[CHANNELS] + 100000 + WIDTH * v[CLASSES]);
}

static void bias_like(struct rb_writer *w, const char *name, int64_t n, double bound)
{
    rb_writer_weight(w, name, 1, &n, RB_INIT_UNIFORM, bound);
}

static const char *convolve(struct rb_writer *w, int index, const char *x, int64_t in, int64_t out)
{
    double bound = 1 / sqrt((double)in * 9);
    const char *weight = RB_WRITER_NAME(w, "c.%d.weight", index);
    const char *bias = RB_WRITER_NAME(w, "c.%d.bias", index);

    rb_writer_weight(w, weight, 4, (int64_t[]){out, in, 3, 3}, RB_INIT_UNIFORM, bound);
    bias_like(w, bias, out, bound);
    x = rb_writer_node(w, "Conv", RB_WRITER_NAME(w, "c.%d", index), x, weight, bias, NULL);
    rb_writer_ints(w, "kernel_shape", 2, (int64_t[]){3, 3});
    rb_writer_ints(w, "pads", 4, (int64_t[]){1, 1, 1, 1});
    rb_writer_ints(w, "strides", 2, (int64_t[]){1, 1});
    return x;
}

static const char *normalize(struct rb_writer *w, int index, const char *x, int64_t n)
{
    const char *names[4];
    static const char *const parts[4] = {"weight", "bias", "running_mean", "running_var"};

    for (int i = 0; i < 4; i++)
        names[i] = rb_writer_weight(w, RB_WRITER_NAME(w, "c.%d.%s", index, parts[i]), 1, &n,
                                    i % 3 == 0 ? RB_INIT_ONE : RB_INIT_ZERO, 0);
    x = rb_writer_node(w, "BatchNormalization", RB_WRITER_NAME(w, "c.%d", index), x, names[0],
                       names[1], names[2], names[3], NULL);
    rb_writer_extra_output(w, RB_WRITER_NAME(w, "c.%d.mean", index));
    rb_writer_extra_output(w, RB_WRITER_NAME(w, "c.%d.var", index));
    rb_writer_float(w, "epsilon", 1e-5F);
    rb_writer_float(w, "momentum", 0.9F);
    rb_writer_int(w, "training_mode", 1);
    return x;
}

static const char *linear(struct rb_writer *w, int index, const char *x, const char *output,
                          int64_t in, int64_t out)
{
    double bound = 1 / sqrt((double)in);
    const char *weight = RB_WRITER_NAME(w, "f.%d.weight", index);
    const char *bias = RB_WRITER_NAME(w, "f.%d.bias", index);

    rb_writer_weight(w, weight, 2, (int64_t[]){out, in}, RB_INIT_UNIFORM, bound);
    bias_like(w, bias, out, bound);
    x = rb_writer_node(w, "Gemm", output, x, weight, bias, NULL);
    rb_writer_int(w, "transB", 1);
    return x;
}

static void write(struct rb_writer *w, const double *v)
{
    int64_t image = (int64_t)v[IMAGE], in = (int64_t)v[CHANNELS], classes = (int64_t)v[CLASSES];
    const char *x = "features";
    int index = 0;

    rb_writer_input(w, x, RB_F32, 4, (int64_t[]){-1, in, image, image});
    for (int i = 0; i < 3; i++) {
        x = convolve(w, index++, x, in, widths[i]);
        in = widths[i];
        if (v[BATCHNORM] != 0)
            x = normalize(w, index++, x, in);
        x = rb_writer_node(w, "Relu", RB_WRITER_NAME(w, "c.%d", index++), x, NULL);
        x = rb_writer_node(w, "MaxPool", RB_WRITER_NAME(w, "c.%d", index++), x, NULL);
        rb_writer_ints(w, "kernel_shape", 2, (int64_t[]){2, 2});
        rb_writer_ints(w, "strides", 2, (int64_t[]){2, 2});
    }
    x = rb_writer_node(w, "Flatten", "flat", x, NULL);
    rb_writer_int(w, "axis", 1);
    x = linear(w, 0, x, "f.0", in * side(v) * side(v), WIDTH);
    x = rb_writer_node(w, "Relu", "f.1", x, NULL);
    x = rb_writer_dropout(w, "f.2", x, v[DROPOUT]);
    linear(w, v[DROPOUT] != 0 ? 3 : 2, x, "logits", WIDTH, classes);
    rb_writer_output(w, "logits", 2, (int64_t[]){-1, classes});
}

const struct rb_models_kind rb_models_cnn = {
    .name = "cnn",
    .settings = {{"image", 32, 8, 4096, false},
                 {"channels", 3, 1, 4096, false},
                 {"classes", 10, 1, 1 << 20, false},
                 {"batchnorm", 0, 0, 1, false},
                 {"dropout", 0, 0, 0.99, true},
                 {"seed", 1, 0, 0x1p53, false}},
    .parameters = parameters,
    .write = write,
};
