/* SPDX-License-Identifier: Apache-2.0 */
/* gpt: pre-norm decoder, learned positions, exact GELU, an untied head without bias. */
#include "graph/models/kinds.h"

#include <math.h>

enum { VOCAB, LAYERS, WIDTH, HEADS, SEQ, DROPOUT };

struct gpt {
    struct rb_writer *w;
    int64_t vocab, layers, width, heads, seq;
    double dropout;
    const char *heads_shape, *joined_shape, *mask, *minus_infinity, *scale;
    const char *root_two, *one, *half;
};

static uint64_t parameters(const double *v)
{
    double d = v[WIDTH];

    return (uint64_t)((2 * v[VOCAB] + v[SEQ]) * d + v[LAYERS] * (12 * d * d + 13 * d) + 2 * d);
}

static int check(const double *v, struct rb_why *why)
{
    if (fmod(v[WIDTH], v[HEADS]) != 0)
        return rb_why_set(why, RB_EINVAL, "width %.0f does not divide into %.0f heads", v[WIDTH],
                          v[HEADS]);
    return 0;
}

#define NAME(...) RB_WRITER_NAME(gpt->w, __VA_ARGS__)

static const char *layer_norm(struct gpt *gpt, const char *name, const char *x)
{
    const char *scale =
        rb_writer_weight(gpt->w, NAME("%s.weight", name), 1, &gpt->width, RB_INIT_ONE, 0);
    const char *bias =
        rb_writer_weight(gpt->w, NAME("%s.bias", name), 1, &gpt->width, RB_INIT_ZERO, 0);

    x = rb_writer_node(gpt->w, "LayerNormalization", name, x, scale, bias, NULL);
    rb_writer_int(gpt->w, "axis", -1);
    rb_writer_float(gpt->w, "epsilon", 1e-5F);
    return x;
}

/* The weight is stored as a Linear's, [out, in], and read transposed. */
static const char *linear(struct gpt *gpt, const char *name, const char *x, int64_t in, int64_t out,
                          double deviation, const char *output, bool with_bias)
{
    const char *weight = rb_writer_weight(gpt->w, NAME("%s.weight", name), 2, (int64_t[]){out, in},
                                          RB_INIT_NORMAL, deviation);
    const char *bias =
        with_bias ? rb_writer_weight(gpt->w, NAME("%s.bias", name), 1, &out, RB_INIT_ZERO, 0)
                  : NULL;
    const char *turned = rb_writer_node(gpt->w, "Transpose", NAME("%s.turned", name), weight, NULL);

    rb_writer_ints(gpt->w, "perm", 2, (int64_t[]){1, 0});
    if (!with_bias)
        return rb_writer_node(gpt->w, "MatMul", output, x, turned, NULL);
    x = rb_writer_node(gpt->w, "MatMul", NAME("%s.product", name), x, turned, NULL);
    return rb_writer_node(gpt->w, "Add", output, bias, x, NULL);
}

/* [batch, seq, width] to [batch, heads, seq, width / heads] */
static const char *to_heads(struct gpt *gpt, const char *name, const char *x)
{
    x = rb_writer_node(gpt->w, "Reshape", NAME("%s.split", name), x, gpt->heads_shape, NULL);
    x = rb_writer_node(gpt->w, "Transpose", name, x, NULL);
    rb_writer_ints(gpt->w, "perm", 4, (int64_t[]){0, 2, 1, 3});
    return x;
}

static const char *attention(struct gpt *gpt, const char *b, const char *x)
{
    struct rb_writer *w = gpt->w;
    double residual = 0.02 / sqrt(2 * (double)gpt->layers);
    const char *q = NAME("%s.q.flat", b), *k = NAME("%s.k.flat", b), *v = NAME("%s.v.flat", b);
    const char *a;

    x = linear(gpt, NAME("%s.qkv", b), x, gpt->width, 3 * gpt->width, 0.02, NAME("%s.qkv", b),
               true);
    rb_writer_node(w, "Split", q, x, NULL);
    rb_writer_extra_output(w, k);
    rb_writer_extra_output(w, v);
    rb_writer_int(w, "axis", 2);
    q = to_heads(gpt, NAME("%s.q", b), q);
    k = to_heads(gpt, NAME("%s.k", b), k);
    v = to_heads(gpt, NAME("%s.v", b), v);
    k = rb_writer_node(w, "Transpose", NAME("%s.k.turned", b), k, NULL);
    rb_writer_ints(w, "perm", 4, (int64_t[]){0, 1, 3, 2});
    a = rb_writer_node(w, "MatMul", NAME("%s.scores", b), q, k, NULL);
    a = rb_writer_node(w, "Mul", NAME("%s.scaled", b), a, gpt->scale, NULL);
    a = rb_writer_node(w, "Where", NAME("%s.masked", b), gpt->mask, a, gpt->minus_infinity, NULL);
    a = rb_writer_node(w, "Softmax", NAME("%s.attention", b), a, NULL);
    rb_writer_int(w, "axis", -1);
    a = rb_writer_dropout(w, NAME("%s.attention.dropout", b), a, gpt->dropout);
    x = rb_writer_node(w, "MatMul", NAME("%s.mixed", b), a, v, NULL);
    x = rb_writer_node(w, "Transpose", NAME("%s.mixed.turned", b), x, NULL);
    rb_writer_ints(w, "perm", 4, (int64_t[]){0, 2, 1, 3});
    x = rb_writer_node(w, "Reshape", NAME("%s.joined", b), x, gpt->joined_shape, NULL);
    x = linear(gpt, NAME("%s.proj", b), x, gpt->width, gpt->width, residual, NAME("%s.proj", b),
               true);
    return rb_writer_dropout(w, NAME("%s.proj.dropout", b), x, gpt->dropout);
}

/* x/2 (1 + erf(x / sqrt 2)), in the order in which PyTorch writes it. */
static const char *gelu(struct gpt *gpt, const char *name, const char *x)
{
    const char *e = rb_writer_node(gpt->w, "Div", NAME("%s.div", name), x, gpt->root_two, NULL);

    e = rb_writer_node(gpt->w, "Erf", NAME("%s.erf", name), e, NULL);
    e = rb_writer_node(gpt->w, "Add", NAME("%s.add", name), e, gpt->one, NULL);
    e = rb_writer_node(gpt->w, "Mul", NAME("%s.mul", name), x, e, NULL);
    return rb_writer_node(gpt->w, "Mul", name, e, gpt->half, NULL);
}

static const char *mlp(struct gpt *gpt, const char *b, const char *x)
{
    double residual = 0.02 / sqrt(2 * (double)gpt->layers);

    x = linear(gpt, NAME("%s.fc1", b), x, gpt->width, 4 * gpt->width, 0.02, NAME("%s.fc1", b),
               true);
    x = gelu(gpt, NAME("%s.gelu", b), x);
    x = linear(gpt, NAME("%s.fc2", b), x, 4 * gpt->width, gpt->width, residual, NAME("%s.fc2", b),
               true);
    return rb_writer_dropout(gpt->w, NAME("%s.fc2.dropout", b), x, gpt->dropout);
}

/* The constants that all blocks share.  Position t may look at positions 0 to t. */
static void constants(struct gpt *gpt)
{
    struct rb_writer *w = gpt->w;
    const char *ones;

    gpt->heads_shape = rb_writer_constant_ints(
        w, "heads.shape", 4, (int64_t[]){0, gpt->seq, gpt->heads, gpt->width / gpt->heads});
    gpt->joined_shape =
        rb_writer_constant_ints(w, "joined.shape", 3, (int64_t[]){0, gpt->seq, gpt->width});
    ones = rb_writer_constant_ints(w, "mask.shape", 2, (int64_t[]){gpt->seq, gpt->seq});
    ones =
        rb_writer_node(w, "Expand", "mask.full", rb_writer_constant_float(w, "one", 1), ones, NULL);
    gpt->mask = rb_writer_node(w, "Trilu", "mask.lower", ones, NULL);
    rb_writer_int(w, "upper", 0);
    gpt->mask = rb_writer_node(w, "Cast", "mask", gpt->mask, NULL);
    rb_writer_int(w, "to", RB_BOOL);
    gpt->minus_infinity = rb_writer_constant_float(w, "minus_infinity", -INFINITY);
    gpt->scale =
        rb_writer_constant_float(w, "scale", (float)(1 / sqrt((double)(gpt->width / gpt->heads))));
    gpt->root_two = rb_writer_constant_float(w, "root_two", (float)sqrt(2));
    gpt->one = "one";
    gpt->half = rb_writer_constant_float(w, "half", 0.5F);
}

static void write(struct rb_writer *w, const double *v)
{
    struct gpt gpt_room = {.w = w,
                           .vocab = (int64_t)v[VOCAB],
                           .layers = (int64_t)v[LAYERS],
                           .width = (int64_t)v[WIDTH],
                           .heads = (int64_t)v[HEADS],
                           .seq = (int64_t)v[SEQ],
                           .dropout = v[DROPOUT]};
    struct gpt *gpt = &gpt_room;
    const char *x, *positions;

    rb_writer_input(w, "tokens", RB_I64, 2, (int64_t[]){-1, gpt->seq});
    constants(gpt);
    x = rb_writer_weight(w, "wte.weight", 2, (int64_t[]){gpt->vocab, gpt->width}, RB_INIT_NORMAL,
                         0.02);
    positions = rb_writer_weight(w, "wpe.weight", 2, (int64_t[]){gpt->seq, gpt->width},
                                 RB_INIT_NORMAL, 0.02);
    x = rb_writer_node(w, "Gather", "wte", x, "tokens", NULL);
    x = rb_writer_node(w, "Add", "embedded", x, positions, NULL);
    x = rb_writer_dropout(w, "embedded.dropout", x, gpt->dropout);
    for (int i = 0; i < (int)gpt->layers; i++) {
        const char *b = NAME("blocks.%d", i);
        const char *y = attention(gpt, b, layer_norm(gpt, NAME("%s.ln1", b), x));

        x = rb_writer_node(w, "Add", NAME("%s.after_attention", b), x, y, NULL);
        y = mlp(gpt, b, layer_norm(gpt, NAME("%s.ln2", b), x));
        x = rb_writer_node(w, "Add", NAME("%s", b), x, y, NULL);
    }
    x = layer_norm(gpt, "lnf", x);
    linear(gpt, "head", x, gpt->width, gpt->vocab, 0.02, "logits", false);
    rb_writer_output(w, "logits", 3, (int64_t[]){-1, gpt->seq, gpt->vocab});
}

const struct rb_models_kind rb_models_gpt = {
    .name = "gpt",
    .settings = {{"vocab", 256, 1, 1 << 24, false},
                 {"layers", 4, 1, 1024, false},
                 {"width", 256, 1, 1 << 16, false},
                 {"heads", 4, 1, 1 << 16, false},
                 {"seq", 128, 1, 1 << 16, false},
                 {"dropout", 0, 0, 0.99, true},
                 {"seed", 1, 0, 0x1p53, false}},
    .parameters = parameters,
    .check = check,
    .write = write,
};
