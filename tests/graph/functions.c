/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a model brings along: their bodies stand where they are called. */
#include "tests/graph/help.h"

#include <stdio.h>

enum { IN = 2, OUT = 1, MOST = 12 };

/* A function of the domain "own"; the nodes of its body are `body`'s. */
struct function {
    struct rb_writer body;
    char *in[IN], *out[OUT];
    Onnx__FunctionProto proto;
    ProtobufCMessageUnknownField unknown[2];
};

static char text_own[] = "own", text_a[] = "a", text_b[] = "b", text_r[] = "r";
static char text_scale[] = "scale";

static void start(struct rb_writer *w)
{
    rb_writer_init(w, "test", 1);
    rb_writer_input(w, "x", RB_F32, 2, (int64_t[]){-1, 4});
    rb_writer_output(w, "y", 1, (int64_t[]){-1});
}

/* y = own.NAME(in) */
static Onnx__NodeProto *call(struct rb_writer *w, const char *name, const char *output,
                             const char *in)
{
    rb_writer_node(w, name, output, in, NULL);
    w->graph.node[w->graph.n_node - 1]->domain = text_own;
    return w->graph.node[w->graph.n_node - 1];
}

/* r = f(a, b) */
static void define(struct function *f, const char *name)
{
    memset(f, 0, sizeof *f);
    onnx__function_proto__init(&f->proto);
    rb_writer_init(&f->body, "body", 1);
    f->in[0] = text_a;
    f->in[1] = text_b;
    f->out[0] = text_r;
    f->proto.name = rb_arena_string(&f->body.arena, name);
    f->proto.domain = text_own;
    f->proto.n_input = IN;
    f->proto.input = f->in;
    f->proto.n_output = OUT;
    f->proto.output = f->out;
    f->proto.base.unknown_fields = f->unknown;
}

/* Add a field that the schema does not have. */
static void add_field(struct function *f, unsigned tag, const void *bytes, size_t size)
{
    ProtobufCMessageUnknownField *field = &f->unknown[f->proto.base.n_unknown_fields++];
    uint8_t *data = rb_arena_alloc(&f->body.arena, size + 1);

    assert_true(size < 0x80);
    data[0] = (uint8_t)size;
    memcpy(data + 1, bytes, size);
    *field =
        (ProtobufCMessageUnknownField){tag, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, size + 1, data};
}

static void add_varint(struct rb_buffer *bytes, size_t value)
{
    for (; value > 0x7f; value >>= 7)
        rb_buffer_add(bytes, &(char){(char)(value | 0x80)}, 1);
    rb_buffer_add(bytes, &(char){(char)value}, 1);
}

/* Import the model with its functions behind it: a message may be continued. */
static int import_with(struct rb_writer *w, struct function *functions, int n,
                       struct rb_graph **ret, struct rb_why *why)
{
    struct rb_import_options options = {.batch = 2, .train = true};
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    int err = rb_writer_finish(w, &bytes, why);

    for (int i = 0; i < n; i++) {
        struct function *f = &functions[i];
        size_t size;

        f->proto.n_node = f->body.graph.n_node;
        f->proto.node = f->body.graph.node;
        size = onnx__function_proto__get_packed_size(&f->proto);
        add_varint(&bytes, 25 << 3 | 2);
        add_varint(&bytes, size);
        rb_buffer_reserve(&bytes, size);
        onnx__function_proto__pack(&f->proto, (uint8_t *)bytes.data + bytes.size);
        bytes.size += size;
    }
    if (!err)
        err = rb_onnx_open_bytes(bytes.data, bytes.size, &model, why);
    if (!err)
        err = rb_onnx_import(model, &options, ret, why);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
    for (int i = 0; i < n; i++) {
        functions[i].proto.base.n_unknown_fields = 0;
        rb_writer_done(&functions[i].body);
    }
    rb_writer_done(w);
    return err;
}

static void expect(struct rb_writer *w, struct function *functions, int n, const char *want)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    char *text;

    if (import_with(w, functions, n, &graph, &why))
        fail_msg("%s", why.text);
    text = take_text(graph);
    assert_string_equal(text, want);
    free(text);
}

static void expect_no(struct rb_writer *w, struct function *functions, int n, int err,
                      const char *want)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    assert_int_equal(import_with(w, functions, n, &graph, &why), err);
    if (!strstr(why.text, want))
        fail_msg("'%s' does not say '%s'", why.text, want);
}

/* Names of a body are its own: both calls make a value `t`, and so does the outer graph. */
static void called_twice(void **state)
{
    struct function f;
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Neg", "t", "x", NULL);
    call(&w, "f", "u", "t");
    call(&w, "f", "y", "u");
    define(&f, "f");
    rb_writer_node(&f.body, "Abs", "t", "a", NULL);
    rb_writer_node(&f.body, "Exp", "r", "t", NULL);
    expect(&w, &f, 1,
           "input in:x : float32[2,4]\n"
           "%1 = Neg(in:x) : float32[2,4]\n"
           "%2 = Abs(%1) : float32[2,4]\n"
           "%3 = Exp(%2) : float32[2,4]\n"
           "%4 = Abs(%3) : float32[2,4]\n"
           "%5 = Exp(%4) : float32[2,4]\n"
           "output %5\n");
}

/* r = Elu(a), its alpha the function's attribute `scale`. */
static void define_scaled(struct function *f)
{
    define(f, "f");
    rb_writer_node(&f->body, "Elu", "r", "a", NULL);
    rb_writer_float(&f->body, "alpha", 0);
    f->body.graph.node[0]->attribute[0]->has_f = 0;
    f->body.graph.node[0]->attribute[0]->ref_attr_name = text_scale;
}

static void attributes(void **state)
{
    /* AttributeProto: name "scale", f 3.0, type FLOAT */
    static const char three[] = "\x0a\x05scale\x15\x00\x00\x40\x40\xa0\x01\x01";
    const char *wanted[3] = {"2", "3", NULL};
    struct function f;
    struct rb_writer w;

    for (int i = 0; i < 3; i++) { /* by the call; by default; by neither: the operator's own */
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        char *text;

        start(&w);
        call(&w, "f", "y", "x");
        if (i == 0)
            rb_writer_float(&w, "scale", 2);
        define_scaled(&f);
        if (i < 2)
            add_field(&f, 11, three, sizeof three - 1);
        if (import_with(&w, &f, 1, &graph, &why))
            fail_msg("%s", why.text);
        text = take_text(graph);
        if (wanted[i] && !strstr(text, wanted[i]))
            fail_msg("%s is not in %s", wanted[i], text);
        free(text);
    }
}

/* The second input is left out: Clip has no lower bound then. */
static void left_out(void **state)
{
    struct function f;
    struct rb_writer w;

    start(&w);
    call(&w, "f", "y", "x");
    define(&f, "f");
    rb_writer_node(&f.body, "Clip", "t", "a", "b", "b", NULL);
    rb_writer_node(&f.body, "Neg", "r", "t", NULL);
    expect(&w, &f, 1, "input in:x : float32[2,4]\n%1 = Neg(in:x) : float32[2,4]\noutput %1\n");
}

static void overloads(void **state)
{
    struct function f[2];
    struct rb_writer w;
    Onnx__NodeProto *node;
    uint8_t field[] = {3, 't', 'w', 'o'};
    ProtobufCMessageUnknownField unknown = {8, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 4, field};

    start(&w);
    node = call(&w, "f", "y", "x");
    node->base.n_unknown_fields = 1;
    node->base.unknown_fields = &unknown;
    define(&f[0], "f");
    rb_writer_node(&f[0].body, "Abs", "r", "a", NULL);
    define(&f[1], "f");
    rb_writer_node(&f[1].body, "Exp", "r", "a", NULL);
    add_field(&f[1], 13, "two", 3);
    expect(&w, f, 2, "input in:x : float32[2,4]\n%1 = Exp(in:x) : float32[2,4]\noutput %1\n");
}

static void refusals(void **state)
{
    static struct function f[MOST];
    struct rb_writer w;
    char name[16];

    start(&w);
    call(&w, "f", "y", "x");
    define(&f[0], "f");
    call(&f[0].body, "f", "r", "a");
    expect_no(&w, f, 1, RB_ELIMIT, "more than 16 deep");

    start(&w); /* 12 functions, each of which calls the next four times: 4^12 nodes */
    call(&w, "f0", "y", "x");
    for (int i = 0; i < MOST; i++) {
        snprintf(name, sizeof name, "f%d", i);
        define(&f[i], name);
        snprintf(name, sizeof name, "f%d", i + 1);
        for (int j = 0; j < 4; j++)
            if (i < MOST - 1)
                call(&f[i].body, name, &"t\0u\0v\0r"[2 * j], "a");
        if (i == MOST - 1)
            rb_writer_node(&f[i].body, "Identity", "r", "a", NULL);
    }
    expect_no(&w, f, MOST, RB_ELIMIT, "have more than 1048576 nodes");

    start(&w);
    call(&w, "f", "y", "x");
    define(&f[0], "f");
    rb_writer_node(&f[0].body, "Abs", "q", "a", NULL);
    expect_no(&w, f, 1, RB_EINVAL, "output 0 of the function is made by no node");

    start(&w);
    call(&w, "f", "y", "x");
    define(&f[0], "f");
    rb_writer_node(&f[0].body, "Abs", "r", "x", NULL); /* of the graph: not in its scope */
    expect_no(&w, f, 1, RB_EINVAL, "input 0 ('x') is made by no node");

    start(&w);
    rb_writer_node(&w, "Abs", "y", "x", NULL);
    define(&f[0], "f");
    add_field(&f[0], 11, "\xff\xff\xff", 3);
    expect_no(&w, f, 1, RB_EINVAL, "function 'f': a default that is no attribute");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(called_twice), cmocka_unit_test(attributes), cmocka_unit_test(left_out),
        cmocka_unit_test(overloads),    cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
