/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plan/gradient_onnx_write.h"

#include "tests/graph/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- A model of one node ---- */

static int read_numbers(const char *text, int64_t *numbers)
{
    int n = 0;

    for (char *at = (char *)text; *at && strchr("-0123456789", *at);) {
        numbers[n++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
    return n;
}

static const char *known_integers(struct rb_writer *w, const char *name, const char *word)
{
    int64_t dim[8], numbers[64];
    int rank = read_numbers(word + 1, dim), n = read_numbers(strchr(word, '=') + 1, numbers);
    const char *flat = rb_writer_constant_ints(w, RB_WRITER_NAME(w, "%s.flat", name), n, numbers);
    const char *shape = rb_writer_constant_ints(w, RB_WRITER_NAME(w, "%s.shape", name), rank, dim);

    flat = rb_writer_node(w, "Reshape", RB_WRITER_NAME(w, "%s.known", name), flat, shape, NULL);
    if (*word == 'b') {
        flat = rb_writer_node(w, "Cast", RB_WRITER_NAME(w, "%s.bool", name), flat, NULL);
        rb_writer_int(w, "to", RB_BOOL);
    }
    return flat;
}

static const char *weight(struct rb_writer *w, const char *name, const char *word)
{
    const char *centre = strchr(word, '@'), *spread = strchr(word, '*');
    int64_t dim[8];
    int rank = read_numbers(word + 1, dim);
    const char *x = rb_writer_weight(w, name, rank, dim, RB_INIT_UNIFORM,
                                     spread ? strtod(spread + 1, NULL) : 1);

    if (!centre)
        return x;
    return rb_writer_node(
        w, "Add", RB_WRITER_NAME(w, "%s.moved", name), x,
        rb_writer_constant_float(w, RB_WRITER_NAME(w, "%s.centre", name), strtof(centre + 1, NULL)),
        NULL);
}

static const char *input(struct rb_writer *w, int i, const char *word)
{
    const char *name = RB_WRITER_NAME(w, "w%d", i);

    switch (*word) {
    case 'f':
        return weight(w, name, word);
    case 'x':
        return rb_writer_node(w, "Mul", RB_WRITER_NAME(w, "%s.x", name), weight(w, name, word), "x",
                              NULL);
    case 'l':
    case 'b':
        return known_integers(w, name, word);
    case 'n':
        return rb_writer_constant_float(w, name, strtof(word + 1, NULL));
    default:
        return "";
    }
}

static void text_attribute(struct rb_writer *w, const char *key, const char *text)
{
    Onnx__NodeProto *node = w->graph.node[w->graph.n_node - 1];
    Onnx__AttributeProto *attribute = NULL;

    rb_writer_int(w, key, 0);
    attribute = node->attribute[node->n_attribute - 1];
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    attribute->has_i = 0;
    attribute->has_s = 1;
    attribute->s.data = (uint8_t *)rb_arena_string(&w->arena, text);
    attribute->s.len = strlen(text);
}

/* Texts with a comma are lists, and so are these keys. */
static bool is_list(const char *key, const char *text)
{
    static const char *const lists[] = {"kernel_shape", "strides",        "pads",
                                        "dilations",    "output_padding", "axes"};

    for (size_t i = 0; i < RB_COUNT(lists); i++)
        if (!strcmp(lists[i], key))
            return true;
    return strchr(text, ',') != NULL;
}

static void attribute(struct rb_writer *w, const char *key, const char *text)
{
    int64_t numbers[16];
    int n = read_numbers(text, numbers);

    if (!strchr("-0123456789", *text) || !strcmp(key, "equation"))
        text_attribute(w, key, text);
    else if (strchr(text, '.'))
        rb_writer_float(w, key, strtof(text, NULL));
    else if (is_list(key, text))
        rb_writer_ints(w, key, n, numbers);
    else
        rb_writer_int(w, key, numbers[0]);
}

const char *gradient_onnx_write(struct rb_writer *w, const struct onnx_case *c)
{
    char *inputs = rb_arena_string(&w->arena, c->inputs), *save = NULL;
    char *attributes = rb_arena_string(&w->arena, c->attributes);
    const char *name[8] = {0};
    const char *use = "y";
    int n = 0;

    for (char *word = strtok_r(inputs, " ", &save); word; word = strtok_r(NULL, " ", &save), n++)
        name[n] = input(w, n, word);
    rb_writer_node(w, c->op, "y", name[0], name[1], name[2], name[3], name[4], name[5], name[6],
                   name[7], NULL);
    for (char *word = strtok_r(attributes, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');

        *equals = '\0';
        if (!strcmp(word, "out"))
            for (int i = 1; i < atoi(equals + 1); i++)
                rb_writer_extra_output(w, RB_WRITER_NAME(w, "y%d", i));
        else if (!strcmp(word, "use"))
            use = RB_WRITER_NAME(w, "y%s", equals + 1);
        else
            attribute(w, word, equals + 1);
    }
    return use;
}

/* ---- Models of more than one node ---- */

static const char *write_sequence(struct rb_writer *w)
{
    const int64_t minus = -1, zero = 0;
    const char *a = rb_writer_weight(w, "a", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1);
    const char *b = rb_writer_weight(w, "b", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1);
    const char *c = rb_writer_weight(w, "c", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1), *s;

    s = rb_writer_node(w, "SequenceConstruct", "s", a, b, NULL);
    s = rb_writer_node(w, "SequenceInsert", "s1", s, c, rb_writer_constant_ints(w, "p", 1, &zero),
                       NULL);
    s = rb_writer_node(w, "SequenceErase", "s2", s, rb_writer_constant_ints(w, "q", 1, &minus),
                       NULL);
    a = rb_writer_node(w, "ConcatFromSequence", "joined", s, NULL);
    rb_writer_int(w, "axis", 1);
    s = rb_writer_node(w, "SplitToSequence", "s3", a,
                       rb_writer_constant_ints(w, "parts", 2, (int64_t[]){4, 2}), NULL);
    rb_writer_int(w, "axis", 1);
    return rb_writer_node(w, "SequenceAt", "y", s, rb_writer_constant_ints(w, "r", 1, &zero), NULL);
}

/* If true: then_branch is y = Tanh(a), where a is of the outer graph. */
static const char *write_if(struct rb_writer *w)
{
    const char *a = rb_writer_weight(w, "a", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1);
    const char *yes = known_integers(w, "c", "b1=1");
    size_t first = w->graph.n_node;

    rb_writer_node(w, "Tanh", "inner", a, NULL);
    rb_writer_node(w, "If", "y", yes, NULL);
    put_inside(w, first, "then_branch", NULL, "inner");
    return "y";
}

/* Three rounds of h = a Tanh(h); y: all results of Tanh. */
static const char *write_loop(struct rb_writer *w)
{
    const char *a = rb_writer_weight(w, "a", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1);
    const char *start = rb_writer_weight(w, "start", 2, (int64_t[]){2, 3}, RB_INIT_UNIFORM, 1);
    const char *rounds = known_integers(w, "rounds", "l1=3");
    size_t first = w->graph.n_node;

    rb_writer_node(w, "Tanh", "t", "h", NULL);
    rb_writer_node(w, "Mul", "next", "t", a, NULL);
    rb_writer_node(w, "Loop", "last", rounds, "", start, NULL);
    rb_writer_extra_output(w, "y");
    put_inside(w, first, "body", "i c h", "c next t");
    return "y";
}

const struct onnx_larger gradient_onnx_larger[ONNX_LARGER] = {
    {"SequenceConstruct SequenceInsert SequenceErase ConcatFromSequence SplitToSequence SequenceAt",
     write_sequence},
    {"If", write_if},
    {"Loop", write_loop},
};
