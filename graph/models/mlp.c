/* SPDX-License-Identifier: Apache-2.0 */
/* mlp: Linear and ReLU in turn, as nn.Sequential named `n`. */
#include "graph/models/kinds.h"

#include <math.h>

enum { INPUTS, HIDDEN, DEPTH, CLASSES };

static uint64_t parameters(const double *v)
{
    double count = v[INPUTS] * v[HIDDEN] + v[HIDDEN] * v[CLASSES] +
                   (v[DEPTH] - 1) * (v[HIDDEN] + 1) * v[HIDDEN];

    return (uint64_t)count;
}

static const char *linear(struct rb_writer *w, int index, const char *x, const char *output,
                          int64_t in, int64_t out)
{
    double bound = 1 / sqrt((double)in);
    const char *weight = rb_writer_weight(w, RB_WRITER_NAME(w, "n.%d.weight", index), 2,
                                          (int64_t[]){out, in}, RB_INIT_UNIFORM, bound);
    const char *bias =
        rb_writer_weight(w, RB_WRITER_NAME(w, "n.%d.bias", index), 1, &out, RB_INIT_UNIFORM, bound);

    x = rb_writer_node(w, "Gemm", output, x, weight, bias, NULL);
    rb_writer_int(w, "transB", 1);
    return x;
}

static void write(struct rb_writer *w, const double *v)
{
    int64_t in = (int64_t)v[INPUTS], hidden = (int64_t)v[HIDDEN], classes = (int64_t)v[CLASSES];
    const char *x = "features";

    rb_writer_input(w, x, RB_F32, 2, (int64_t[]){-1, in});
    for (int i = 0; i < (int)v[DEPTH]; i++) {
        x = linear(w, 2 * i, x, RB_WRITER_NAME(w, "n.%d", 2 * i), in, hidden);
        x = rb_writer_node(w, "Relu", RB_WRITER_NAME(w, "n.%d", 2 * i + 1), x, NULL);
        in = hidden;
    }
    linear(w, 2 * (int)v[DEPTH], x, "logits", in, classes);
    rb_writer_output(w, "logits", 2, (int64_t[]){-1, classes});
}

const struct rb_models_kind rb_models_mlp = {
    .name = "mlp",
    .settings = {{"inputs", 784, 1, 1 << 24, false},
                 {"hidden", 1024, 1, 1 << 20, false},
                 {"depth", 2, 1, 256, false},
                 {"classes", 10, 1, 1 << 20, false},
                 {"seed", 1, 0, 0x1p53, false}},
    .parameters = parameters,
    .write = write,
};
