/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/chain.h"

#include "proto/fused.h"
#include "tests/kernels/case.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES = RB_FUSED_INPUTS + RB_FUSED_STEPS };

static const struct rb_key key = {42, 7, 3};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static bool compares(int64_t op)
{
    return op == RB_OP_EQUAL || op == RB_OP_LESS || op == RB_OP_GREATER;
}

static void *get(struct rb_device *device, const struct rb_tensor_type *type)
{
    void *memory = rb_device_alloc(device, rb_case_bytes(type) + 64);

    assert_non_null(memory);
    return memory;
}

static void run(struct rb_device *device, const struct rb_call *call, const void *const *in,
                void *out)
{
    struct rb_kernel *kernel = NULL;
    struct rb_why why = {{0}};

    if (rb_kernel_prepare(device, call, &kernel, &why))
        fail_msg("%s", why.text);
    rb_kernel_run(kernel, in, &out, &key);
    rb_kernel_free(kernel);
}

/* Operators with several sources broadcast them here to the whole shape; operators with one source,
 * and gradients, keep its shape. */
static bool keeps_shape(int64_t op)
{
    return rb_fused_sources((unsigned)op) == 1 || (op >= RB_OP_RELU_GRAD && op <= RB_OP_ERF_GRAD);
}

static struct rb_tensor_type type_of(const struct rb_case *c, const int64_t *step,
                                     const struct rb_tensor_type *sources)
{
    struct rb_tensor_type type = keeps_shape(step[0]) ? sources[step[3]] : c->out[0];

    type.dtype = (enum rb_dtype)step[1];
    return type;
}

static float number(const struct rb_tensor_type *type, const void *data, int64_t i)
{
    return type->dtype == RB_F32    ? ((const float *)data)[i]
           : type->dtype == RB_BF16 ? rb_dtype_bfloat(((const uint16_t *)data)[i])
                                    : ((const uint8_t *)data)[i];
}

static void compare(const struct rb_case *c, const char *what, const void *got, const void *want)
{
    size_t size = rb_dtype_size(c->out[0].dtype);

    for (int64_t i = 0; i < rb_tensor_elements(&c->out[0]); i++) {
        float a = number(&c->out[0], got, i), b = number(&c->out[0], want, i);

        if (memcmp((const char *)got + (size_t)i * size, (const char *)want + (size_t)i * size,
                   size) != 0 &&
            !(isnan(a) && isnan(b)))
            fail_msg("%s: element %lld is %a, and %a one by one", what, (long long)i, (double)a,
                     (double)b);
    }
}

/* Check both ways. */
static void check(struct rb_device *device, const struct rb_case *c, const char *what,
                  uint64_t seed)
{
    const struct rb_attribute *steps = &c->attributes[0];
    int n = steps->n_ints / RB_FUSED_FIELDS, n_in = c->call.n_in;
    struct rb_tensor_type types[SOURCES];
    void *memory[SOURCES], *fused = get(device, &c->out[0]);

    for (int i = 0; i < n_in; i++) {
        types[i] = c->in[i];
        memory[i] = get(device, &types[i]);
        rb_case_fill(c, i, seed, memory[i]);
        rb_device_push(device, memory[i], rb_case_bytes(&types[i]));
    }
    run(device, &c->call, (const void *const *)memory, fused);
    for (int k = 0; k < n; k++) {
        const int64_t *step = &steps->ints[k * RB_FUSED_FIELDS];
        const struct rb_attribute tanh_form = {"tanh", &step[2], 1, NULL, 0};
        struct rb_tensor_type in[RB_FUSED_SOURCES];
        const void *from[RB_FUSED_SOURCES];
        struct rb_call one = {.op = (enum rb_op)step[0],
                              .n_in = rb_fused_sources((unsigned)step[0]),
                              .n_out = 1,
                              .in = in,
                              .out = &types[n_in + k],
                              .attributes = &tanh_form,
                              .n_attributes = step[2] != 0};

        types[n_in + k] = type_of(c, step, types);
        memory[n_in + k] = get(device, &types[n_in + k]);
        for (int j = 0; j < one.n_in; j++) {
            in[j] = types[step[3 + j]];
            from[j] = memory[step[3 + j]];
        }
        run(device, &one, from, memory[n_in + k]);
    }
    rb_device_pull(device, fused, rb_case_bytes(&c->out[0]));
    rb_device_pull(device, memory[n_in + n - 1], rb_case_bytes(&c->out[0]));
    compare(c, what, fused, memory[n_in + n - 1]);
    for (int i = 0; i < n_in + n; i++)
        rb_device_free(device, memory[i]);
    rb_device_free(device, fused);
}

static void add_step(struct rb_case *c, int64_t op, int64_t dtype, bool tanh_form,
                     const int64_t *from)
{
    struct rb_attribute *steps = &c->attributes[0];
    int64_t *at = &c->ints[0][steps->n_ints];

    at[0] = op;
    at[1] = dtype;
    at[2] = tanh_form;
    for (int j = 0; j < RB_FUSED_SOURCES; j++)
        at[3 + j] = j < rb_fused_sources((unsigned)op) ? from[j] : -1;
    steps->n_ints += RB_FUSED_FIELDS;
}

static void start(struct rb_case *c, struct rb_tensor_type out)
{
    memset(c, 0, sizeof *c);
    c->out[0] = out;
    c->attributes[0] = (struct rb_attribute){"steps", c->ints[0], 0, NULL, 0};
    c->call = (struct rb_call){.op = RB_OP_FUSED,
                               .n_out = 1,
                               .in = c->in,
                               .out = c->out,
                               .attributes = c->attributes,
                               .n_attributes = 1};
}

void rb_chain_check_each(struct rb_device *device)
{
    static const struct rb_tensor_type full = {RB_F32, 2, {9, 12}}, row = {RB_F32, 1, {12}},
                                       truth = {RB_BOOL, 2, {9, 12}};

    for (unsigned op = 1; op < RB_OP_COUNT; op++)
        for (int form = 0; form < 4 && rb_fused_sources(op); form++) {
            bool narrow = form & 1, tanh_form = form & 2;
            struct rb_case c;

            if (tanh_form && op != RB_OP_GELU && op != RB_OP_GELU_GRAD)
                continue;
            if (narrow && (compares(op) || op == RB_OP_WHERE))
                continue;
            start(&c, full);
            c.in[0] = op == RB_OP_WHERE ? truth : full;
            c.in[1] = full;
            c.in[2] = row;
            c.call.n_in = 3;
            add_step(&c, op,
                     compares(op) ? RB_BOOL
                     : narrow     ? RB_BF16
                                  : RB_F32,
                     tanh_form, (const int64_t[]){0, 1, 2});
            if (compares(op))
                add_step(&c, RB_OP_CAST, RB_F32, false, (const int64_t[]){3, -1, -1});
            else
                add_step(&c, RB_OP_ADD, RB_F32, false, (const int64_t[]){3, 2, -1});
            check(device, &c, rb_op_info(op)->name, op);
        }
}

/* A source of the wanted kind, more often than not one of the newest; -1: none. */
static int64_t draw_source(const struct rb_tensor_type *types, int n, bool truth, uint64_t *state)
{
    for (int tries = 0; tries < 20; tries++) {
        int64_t i = draw(state, 2) ? n - 1 - (int64_t)draw(state, n < 2 ? 1 : 2)
                                   : (int64_t)draw(state, (uint64_t)n);

        if ((types[i].dtype == RB_BOOL) == truth)
            return i;
    }
    return -1;
}

static void draw_input(struct rb_tensor_type *type, const struct rb_tensor_type *out,
                       uint64_t *state)
{
    static const enum rb_dtype dtypes[] = {RB_F32, RB_F32, RB_F32, RB_BF16, RB_BOOL};

    *type = *out;
    type->dtype = dtypes[draw(state, 5)];
    switch (draw(state, 6)) {
    case 0: /* one number */
        type->rank = (int)draw(state, 2);
        type->dim[0] = 1;
        break;
    case 1: /* a row */
        type->rank = 1;
        type->dim[0] = out->dim[out->rank - 1];
        break;
    case 2:
        type->dim[draw(state, (uint64_t)out->rank)] = 1;
        break;
    default:
        break;
    }
}

static void draw_case(struct rb_case *c, uint64_t *state)
{
    struct rb_tensor_type types[SOURCES], out = {RB_F32, 0, {0}};
    int n_in, n = 1 + (int)draw(state, RB_FUSED_STEPS);

    out.rank = 1 + (int)draw(state, 3);
    for (int i = 0; i < out.rank; i++)
        out.dim[i] = (draw(state, 2) ? 4 : 1) * (1 + (int64_t)draw(state, 9));
    start(c, out);
    n_in = c->call.n_in = 1 + (int)draw(state, RB_FUSED_INPUTS);
    for (int i = 0; i < n_in; i++) {
        draw_input(&c->in[i], &out, state);
        if (i == 0)
            c->in[i] = out; /* there is always one input of full size */
        types[i] = c->in[i];
    }
    for (int k = 0; k < n;) {
        unsigned op = 1 + (unsigned)draw(state, RB_OP_COUNT - 1);
        int64_t from[RB_FUSED_SOURCES] = {-1, -1, -1};
        bool fits = rb_fused_sources(op) > 0, last = k == n - 1;

        for (int j = 0; j < rb_fused_sources(op); j++) {
            from[j] = draw_source(types, n_in + k, op == RB_OP_WHERE && j == 0, state);
            /* The separate operators neither compare nor choose among numbers of 16 bits. */
            fits = fits && from[j] >= 0 &&
                   !((compares(op) || (op == RB_OP_WHERE && j)) && types[from[j]].dtype == RB_BF16);
            if (fits && keeps_shape(op))
                fits = rb_tensor_same_shape(&types[from[j]], last ? &out : &types[from[0]]);
        }
        if (!fits)
            continue;
        add_step(c, op,
                 compares(op)                               ? RB_BOOL
                 : op != RB_OP_WHERE && draw(state, 4) == 0 ? RB_BF16
                                                            : RB_F32,
                 draw(state, 2) && (op == RB_OP_GELU || op == RB_OP_GELU_GRAD), from);
        types[n_in + k] = type_of(c, &c->ints[0][k * RB_FUSED_FIELDS], types);
        k++;
    }
    c->out[0].dtype = types[n_in + n - 1].dtype;
}

void rb_chain_check_many(struct rb_device *device, int n)
{
    uint64_t state = 1;

    for (int i = 0; i < n; i++) {
        struct rb_case c;
        char what[32];

        draw_case(&c, &state);
        snprintf(what, sizeof what, "program %d", i);
        check(device, &c, what, (uint64_t)i + 1);
    }
}

void rb_chain_check_refusals(struct rb_device *device)
{
    static const char *const texts[] = {
        "Fused f32[4] > f32[4]",
        "Fused f32[4] > f32[4] steps=Relu,f32,0,0,-1",
        "Fused f32[4] > f32[4] steps=Relu,f32,0,1,-1,-1",
        "Fused f32[4] > f32[4] steps=Relu,f32,0,-1,-1,-1",
        "Fused f32[4] > f32[4] steps=Relu,f32,0,0,0,-1",
        "Fused f32[4] > f32[4] steps=Add,f32,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=Relu,i64,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=Less,f32,0,0,0,-1",
        "Fused f32[4] > bool[4] steps=Cast,bool,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=Where,f32,0,0,0,0",
        "Fused bool[4] > f32[4] steps=Relu,f32,0,0,-1,-1",
        "Fused f32[4] > bf16[4] steps=Relu,f32,0,0,-1,-1",
        "Fused i64[4] > f32[4] steps=Cast,f32,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=Mod,f32,0,0,0,-1",
        "Fused f32[4] > f32[4] steps=Softmax,f32,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=-1,f32,0,0,-1,-1",
        "Fused f32[4] > f32[4] steps=4294967298,f32,0,0,0,-1",
        "Fused f32[4] f32[3] > f32[4] steps=Add,f32,0,0,1,-1",
        "Fused f32[4] - > f32[4] steps=Relu,f32,0,0,-1,-1",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct rb_case c;
        struct rb_kernel *kernel;
        struct rb_why why = {{0}};

        rb_case_read(texts[i], &c);
        if (rb_kernel_prepare(device, &c.call, &kernel, &why) != RB_EINVAL || !why.text[0])
            fail_msg("%s is taken", texts[i]);
    }
}
