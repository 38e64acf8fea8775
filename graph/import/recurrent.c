/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM, GRU and RNN, unrolled: one product for the inputs of all steps, then a few operators a
 * step.
 *
 * Weights are taken apart once, and every step reads the parts, so that a weight has one gradient
 * however long the sequence is. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_STEPS = 4096, MOST_GATES = 4 };

struct recurrent {
    struct rb_import *import;
    int gates; /* LSTM 4, GRU 3, RNN 1 */
    int64_t steps, batch, width;
    bool batch_first; /* layout=1 */
    int n_directions;
    bool backward[2];
    const Onnx__AttributeProto *activations;
    float clip; /* 0: none */
    bool linear_before_reset;
    struct rb_value *x;       /* steps batch inputs */
    struct rb_value *lengths; /* [batch, 1], int64; NULL: all have all steps */
};

/* One direction while it is unrolled. */
struct direction {
    int number;
    struct rb_value *inputs;    /* steps batch gates*width: X W + bias */
    struct rb_value *recurrent; /* R, gates*width by width */
    struct rb_value *bias;      /* of R, [gates*width], GRU only; else NULL */
    struct rb_value *peep[3];   /* LSTM's peepholes i, o, f, [width], or NULL */
    struct rb_value *h, *c;
};

/* Part `i` of `n` along the last axis. */
static struct rb_value *part(const struct recurrent *r, struct rb_value *x, int i)
{
    int axis = x ? x->type.rank - 1 : 0;
    return rb_make_slice(r->import, x, axis, i * r->width, r->width, 1);
}

static struct rb_value *add(const struct recurrent *r, struct rb_value *a, struct rb_value *b)
{
    return !b ? a : rb_make_two(r->import, RB_OP_ADD, a, b);
}

static struct rb_value *mul(const struct recurrent *r, struct rb_value *a, struct rb_value *b)
{
    return rb_make_two(r->import, RB_OP_MUL, a, b);
}

/* Activation k of a direction, behind the clip. */
static struct rb_value *activate(const struct recurrent *r, const struct direction *d, int k,
                                 const char *otherwise, struct rb_value *x)
{
    static const struct {
        const char *name;
        enum rb_op op;
    } known[] = {{"Sigmoid", RB_OP_SIGMOID},
                 {"Tanh", RB_OP_TANH},
                 {"Relu", RB_OP_RELU},
                 {"Softplus", RB_OP_SOFTPLUS}};
    struct rb_import *import = r->import;
    int each = r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1;
    size_t at = (size_t)(d->number * each + k);
    char name[32];

    snprintf(name, sizeof name, "%s", otherwise);
    if (r->activations && at < r->activations->n_strings)
        snprintf(name, sizeof name, "%.*s", (int)r->activations->strings[at].len,
                 (const char *)r->activations->strings[at].data);
    if (r->clip > 0) {
        struct rb_value *most = rb_make_like(import, x, (double)r->clip);
        struct rb_value *least = rb_make_like(import, x, -(double)r->clip);

        x = rb_make_where(import, rb_make_two(import, RB_OP_GREATER, least, x), least, x);
        x = rb_make_where(import, rb_make_two(import, RB_OP_LESS, most, x), most, x);
    }
    for (size_t i = 0; i < RB_COUNT(known); i++)
        if (!strcasecmp(known[i].name, name))
            return rb_make_one(import, known[i].op, x);
    return rb_make_no(import, "activation '%s'", name);
}

/* ONNX has the gates as i, o, f, c. */
static void lstm_step(const struct recurrent *r, struct direction *d, struct rb_value *gates)
{
    struct rb_value *i, *o, *f, *c;

    gates = add(r, gates, rb_make_matmul(r->import, d->h, d->recurrent, true));
    i = part(r, gates, 0);
    o = part(r, gates, 1);
    f = part(r, gates, 2);
    c = part(r, gates, 3);
    if (d->peep[0]) {
        i = add(r, i, mul(r, d->peep[0], d->c));
        f = add(r, f, mul(r, d->peep[2], d->c));
    }
    i = activate(r, d, 0, "Sigmoid", i);
    f = activate(r, d, 0, "Sigmoid", f);
    c = activate(r, d, 1, "Tanh", c);
    d->c = add(r, mul(r, f, d->c), mul(r, i, c));
    if (d->peep[1])
        o = add(r, o, mul(r, d->peep[1], d->c));
    o = activate(r, d, 0, "Sigmoid", o);
    d->h = mul(r, o, activate(r, d, 2, "Tanh", d->c));
}

/* Gates z, r, h. */
static void gru_step(const struct recurrent *r, struct direction *d, struct rb_value *gates)
{
    struct rb_import *import = r->import;
    struct rb_value *hidden, *z, *reset, *fresh, *two, *own;

    two = rb_make_slice(import, d->recurrent, 0, 0, 2 * r->width, 1);
    own = rb_make_slice(import, d->recurrent, 0, 2 * r->width, r->width, 1);
    hidden = rb_make_matmul(import, d->h, two, true);
    if (d->bias)
        hidden = add(r, hidden, rb_make_slice(import, d->bias, 0, 0, 2 * r->width, 1));
    z = activate(r, d, 0, "Sigmoid", add(r, part(r, gates, 0), part(r, hidden, 0)));
    reset = activate(r, d, 0, "Sigmoid", add(r, part(r, gates, 1), part(r, hidden, 1)));
    fresh = r->linear_before_reset ? d->h : mul(r, reset, d->h);
    fresh = rb_make_matmul(import, fresh, own, true);
    if (d->bias)
        fresh = add(r, fresh, rb_make_slice(import, d->bias, 0, 2 * r->width, r->width, 1));
    if (r->linear_before_reset)
        fresh = mul(r, reset, fresh);
    fresh = activate(r, d, 1, "Tanh", add(r, part(r, gates, 2), fresh));
    /* (1 - z) fresh + z h */
    d->h = add(r, fresh, mul(r, z, rb_make_two(import, RB_OP_SUB, d->h, fresh)));
}

static void rnn_step(const struct recurrent *r, struct direction *d, struct rb_value *gates)
{
    gates = add(r, gates, rb_make_matmul(r->import, d->h, d->recurrent, true));
    d->h = activate(r, d, 0, "Tanh", gates);
}

/* [batch, 1]: has sample b a step t? */
static struct rb_value *alive(const struct recurrent *r, int64_t t)
{
    struct rb_value *at = rb_make_number(r->import, RB_I64, (double)t);

    return rb_make_two(r->import, RB_OP_LESS, at, r->lengths);
}

/* ---- Inputs: [directions, ...] each ---- */

static struct rb_value *of_direction(const struct recurrent *r, struct rb_value *x, int number,
                                     int axis)
{
    if (!x)
        return NULL;
    return rb_make_squeeze(r->import, rb_make_slice(r->import, x, axis, number, 1, 1), axis);
}

static bool has_type(const struct rb_value *x, int rank, const int64_t *dim)
{
    if (x->type.rank != rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (dim[i] >= 0 && x->type.dim[i] != dim[i])
            return false;
    return true;
}

static struct rb_value *read_one(const struct recurrent *r, int i, const char *what, int rank,
                                 const int64_t *dim)
{
    struct rb_value *x = rb_import_in(r->import, i);

    if (x && !r->import->err && !has_type(x, rank, dim))
        return rb_make_bad(r->import, "input %d (%s) has the wrong shape", i, what);
    return x;
}

static struct rb_value *filled(const struct recurrent *r, float number)
{
    return rb_make_expand(r->import, rb_make_number(r->import, RB_F32, number), 2,
                          (int64_t[]){r->batch, r->width});
}

/* PyTorch's zeros have the batch of the export, where a batch of one expands to the real one: if
 * all elements are one number, any length will do. */
static struct rb_value *first_state(const struct recurrent *r, int i, const char *what, int number)
{
    int64_t dim[3] = {r->n_directions, r->batch, r->width};
    struct rb_value *x = rb_import_in(r->import, i);
    int batch = r->batch_first ? 0 : 1;
    bool other = x && x->type.rank == 3 && x->type.dim[batch] != r->batch;
    bool any = other && x->type.dtype == RB_F32 && rb_import_is_one_number(x);

    if (r->batch_first)
        dim[1] = r->n_directions;
    dim[batch] = any ? -1 : r->batch;
    x = read_one(r, i, what, 3, dim);
    if (x && any)
        return filled(r, *(const float *)x->data);
    return x ? of_direction(r, x, number, r->batch_first) : filled(r, 0);
}

/* The bias of W comes first, then that of R; a GRU keeps them apart where the second is reset with
 * the recurrent product. */
static void read_direction(const struct recurrent *r, int number, struct direction *d)
{
    struct rb_import *import = r->import;
    int64_t rows = r->gates * r->width, inputs = r->x->type.dim[2];
    struct rb_value *w = read_one(r, 1, "W", 3, (int64_t[]){r->n_directions, rows, inputs});
    struct rb_value *own = read_one(r, 2, "R", 3, (int64_t[]){r->n_directions, rows, r->width});
    struct rb_value *b = read_one(r, 3, "B", 2, (int64_t[]){r->n_directions, 2 * rows});
    struct rb_value *p =
        r->gates == 4 ? read_one(r, 7, "P", 2, (int64_t[]){r->n_directions, 3 * r->width}) : NULL;
    struct rb_value *bias = of_direction(r, b, number, 0), *first;

    *d = (struct direction){.number = number};
    d->recurrent = of_direction(r, own, number, 0);
    d->inputs = rb_make_matmul(import, r->x, of_direction(r, w, number, 0), true);
    if (bias) {
        first = rb_make_slice(import, bias, 0, 0, rows, 1);
        bias = rb_make_slice(import, bias, 0, rows, rows, 1);
        if (r->gates == 3)
            d->bias = bias;
        else
            first = add(r, first, bias);
        d->inputs = add(r, d->inputs, first);
    }
    for (int i = 0; p && i < 3; i++)
        d->peep[i] = part(r, of_direction(r, p, number, 0), i);
    d->h = first_state(r, 5, "initial_h", number);
    if (r->gates == 4)
        d->c = first_state(r, 6, "initial_c", number);
}

/* All steps of one direction; *ret_y: steps batch width. */
static void unroll(const struct recurrent *r, struct direction *d, struct rb_value **ret_y)
{
    struct rb_import *import = r->import;
    struct rb_value **y = RB_ARENA_NEW(&import->graph->arena, struct rb_value *, r->steps);

    for (int64_t i = 0; !import->err && i < r->steps; i++) {
        int64_t t = r->backward[d->number] ? r->steps - 1 - i : i;
        struct rb_value *gates =
            rb_make_squeeze(import, rb_make_slice(import, d->inputs, 0, t, 1, 1), 0);
        struct rb_value *h = d->h, *c = d->c;

        if (r->gates == 4)
            lstm_step(r, d, gates);
        else if (r->gates == 3)
            gru_step(r, d, gates);
        else
            rnn_step(r, d, gates);
        y[t] = d->h;
        if (r->lengths) {
            struct rb_value *yes = alive(r, t);

            y[t] = rb_make_where(import, yes, d->h, rb_make_number(import, RB_F32, 0));
            d->h = rb_make_where(import, yes, d->h, h);
            if (c)
                d->c = rb_make_where(import, yes, d->c, c);
        }
        y[t] = rb_make_unsqueeze(import, y[t], 0);
    }
    *ret_y = import->err ? NULL : rb_make_concat(import, 0, (int)r->steps, y);
}

static void read_directions(struct recurrent *r)
{
    const char *text = "forward";

    if (!r->import->err)
        r->import->err = rb_import_text(r->import, "direction", &text);
    r->n_directions = 1;
    if (!strcmp(text, "reverse"))
        r->backward[0] = true;
    else if (!strcmp(text, "bidirectional"))
        r->n_directions = 2;
    else if (strcmp(text, "forward") != 0)
        rb_make_bad(r->import, "direction is not forward, reverse or bidirectional");
    r->backward[1] = true;
}

/* Are the lengths known, and does none end before the last step? */
static bool are_whole(struct rb_value *lengths, int64_t steps)
{
    bool whole = rb_import_ask(lengths);

    for (int64_t i = 0; whole && i < rb_tensor_elements(&lengths->type); i++)
        whole = rb_fold_integer(lengths, i) >= steps;
    return whole;
}

/* A packed sequence has its lengths in its data. */
static void read_lengths(struct recurrent *r)
{
    struct rb_value *lengths = rb_import_in(r->import, 4);

    if (r->import->err || !lengths)
        return;
    if (lengths->type.dtype != RB_I64 && lengths->type.dtype != RB_I32)
        rb_make_bad(r->import, "sequence_lens are %s, not int32",
                    rb_dtype_text(lengths->type.dtype));
    else if (lengths->type.rank != 1 || lengths->type.dim[0] != r->batch)
        rb_make_bad(r->import, "%" PRId64 " sequence lengths for a batch of %" PRId64,
                    rb_tensor_elements(&lengths->type), r->batch);
    else if (!are_whole(lengths, r->steps))
        r->lengths = rb_make_unsqueeze(r->import, rb_make_cast(r->import, lengths, RB_I64), 1);
}

static void read_node(struct recurrent *r)
{
    static const int64_t swap[] = {1, 0, 2};
    struct rb_import *import = r->import;
    struct rb_value *own;

    r->activations = rb_import_attribute(import, "activations");
    r->clip = rb_make_float(import, "clip", 0);
    r->batch_first = rb_make_int(import, "layout", 0) != 0;
    r->linear_before_reset = rb_make_int(import, "linear_before_reset", 0) != 0;
    if (rb_make_int(import, "input_forget", 0))
        rb_make_no(import, "input_forget");
    if (rb_import_attribute(import, "activation_alpha") ||
        rb_import_attribute(import, "activation_beta"))
        rb_make_no(import, "activations with numbers of their own");
    read_directions(r);
    r->x = rb_make_need(import, 0);
    own = rb_make_need(import, 2);
    if (!import->err && (r->x->type.rank != 3 || own->type.rank != 3))
        rb_make_bad(import, "X and R must have three axes");
    if (r->batch_first)
        r->x = rb_make_transpose(import, r->x, swap);
    if (import->err)
        return;
    r->width = own->type.dim[2];
    r->steps = r->x->type.dim[0];
    r->batch = r->x->type.dim[1];
    if (r->steps < 1 || r->steps > MOST_STEPS)
        rb_make_no(import, "%" PRId64 " steps; 1 to %d are unrolled", r->steps, MOST_STEPS);
    read_lengths(r);
}

/* The last state as [directions, batch, width]. */
static void bind_state(const struct recurrent *r, int output, struct rb_value **state)
{
    for (int i = 0; i < r->n_directions; i++)
        state[i] = rb_make_unsqueeze(r->import, state[i], r->batch_first);
    if (rb_import_wants(r->import, output))
        rb_make_bind(r->import, output,
                     r->import->err
                         ? NULL
                         : rb_make_concat(r->import, r->batch_first, r->n_directions, state));
}

int rb_import_op_recurrent(struct rb_import *import)
{
    static const int64_t batch_first[] = {2, 0, 1, 3};
    struct recurrent r = {.import = import};
    struct rb_value *y[2] = {NULL}, *h[2] = {NULL}, *c[2] = {NULL}, *all;

    r.gates = !strcmp(import->op->name, "LSTM") ? 4 : !strcmp(import->op->name, "GRU") ? 3 : 1;
    read_node(&r);
    for (int i = 0; !import->err && i < r.n_directions; i++) {
        struct direction d;

        read_direction(&r, i, &d);
        unroll(&r, &d, &y[i]);
        y[i] = rb_make_unsqueeze(import, y[i], 1);
        h[i] = d.h;
        c[i] = d.c;
    }
    if (import->err)
        return import->err;
    all = rb_make_concat(import, 1, r.n_directions, y); /* steps directions batch width */
    if (r.batch_first)
        all = rb_make_transpose(import, all, batch_first);
    rb_make_bind(import, 0, all);
    bind_state(&r, 1, h);
    if (r.gates == 4)
        bind_state(&r, 2, c);
    return import->err;
}
