/* SPDX-License-Identifier: Apache-2.0 */
/* Loop, unrolled: the body is imported once a round, in a scope of its own within that of the nodes
 * around it.  The number of rounds must be known. */
#include "graph/fold.h"
#include "graph/import/make.h"

#include <inttypes.h>

enum {
    MOST_ROUNDS = 4096,
    MOST_NODES = 1 << 20, /* of all bodies: loops in loops make many */
};

/* What is carried from round to round. */
struct carried {
    struct rb_value *value; /* or */
    const struct rb_sequence *sequence;
};

struct loop {
    const Onnx__GraphProto *body;
    int64_t rounds; /* the most */
    struct rb_value *goes_on;
    struct carried *carried;
    size_t n_carried;
    struct rb_sequence *scans; /* for each further output of the body, one value a round */
    size_t n_scans;
};

static struct carried find(const struct rb_import *import, const char *name)
{
    name = name ? name : "";
    return (struct carried){rb_names_get(&import->values, name),
                            rb_names_get(&import->sequences, name)};
}

static int read(struct rb_import *import, struct loop *loop)
{
    const Onnx__AttributeProto *body = rb_import_attribute(import, "body");
    const Onnx__NodeProto *node = import->node;
    struct rb_arena *arena = &import->graph->arena;
    const int64_t *rounds = NULL;
    int n = 0;
    int err = rb_import_known_ints(import, 0, "how often it goes round", &rounds, &n);

    if (err)
        return err;
    loop->rounds = n == 1 ? rounds[0] : INT64_MAX;
    loop->body = body ? body->g : NULL;
    loop->n_carried = node->n_input > 2 ? node->n_input - 2 : 0;
    if (!loop->body || loop->body->n_input != 2 + loop->n_carried ||
        loop->body->n_output < 1 + loop->n_carried || node->n_output + 1 > loop->body->n_output)
        return RB_IMPORT_BAD(import, "inputs and outputs do not fit with those of its body");
    loop->n_scans = loop->body->n_output - 1 - loop->n_carried;
    loop->scans = RB_ARENA_NEW(arena, struct rb_sequence, loop->n_scans);
    loop->carried = RB_ARENA_NEW(arena, struct carried, loop->n_carried);
    for (size_t i = 0; i < loop->n_carried; i++)
        loop->carried[i] = find(import, node->input[2 + i]);
    loop->goes_on = rb_import_in(import, 1);
    if (!loop->goes_on)
        loop->goes_on = rb_make_number(import, RB_BOOL, 1);
    return import->err;
}

/* Does the loop go on?  1 or 0; an error where that is not known. */
static int goes_on(struct rb_import *import, const struct loop *loop, int64_t round)
{
    if (round >= loop->rounds)
        return 0;
    if (!rb_import_ask(loop->goes_on) || rb_tensor_elements(&loop->goes_on->type) != 1)
        return RB_IMPORT_NO(import, "whether it goes on is computed from the data; only a number "
                                    "of rounds that is known when the model is imported is "
                                    "supported");
    if (rb_fold_integer(loop->goes_on, 0) && round == MOST_ROUNDS)
        return RB_IMPORT_NO(import, "more than %d rounds", MOST_ROUNDS);
    return rb_fold_integer(loop->goes_on, 0) != 0;
}

/* Bind the body's names for its inputs. */
static int bind_inputs(struct rb_import *body, const struct loop *loop, int64_t round)
{
    for (size_t i = 0; i < loop->body->n_input; i++) {
        struct carried in = {NULL, NULL};
        const char *name = loop->body->input[i]->name;

        if (i == 0)
            in.value = rb_make_number(body, RB_I64, (double)round);
        else if (i == 1)
            in.value = loop->goes_on;
        else
            in = loop->carried[i - 2];
        if (!name || !(in.value || in.sequence) ||
            !rb_names_add(in.value ? &body->values : &body->sequences, name,
                          in.value ? (void *)in.value : (void *)(uintptr_t)in.sequence))
            return RB_IMPORT_BAD(body, "input %zu of its body is absent, or there twice", i);
    }
    return body->err;
}

static void append(struct rb_arena *arena, struct rb_sequence *scan, struct rb_value *value)
{
    if (!(scan->n & (scan->n - 1))) { /* full: twice as much room */
        struct rb_value **items = RB_ARENA_NEW(arena, struct rb_value *, 2 * scan->n + 1);

        for (int i = 0; i < scan->n; i++)
            items[i] = scan->items[i];
        scan->items = items;
    }
    scan->items[scan->n++] = value;
}

static int take_outputs(struct rb_import *body, struct loop *loop)
{
    for (size_t i = 0; i < loop->body->n_output; i++) {
        struct carried out = find(body, loop->body->output[i]->name);
        bool scans = i > loop->n_carried;

        if (!out.value && (!out.sequence || scans || i == 0))
            return RB_IMPORT_BAD(body, "output %zu of its body is made by no node", i);
        if (scans)
            append(&body->graph->arena, &loop->scans[i - 1 - loop->n_carried], out.value);
        else if (i == 0)
            loop->goes_on = out.value;
        else
            loop->carried[i - 1] = out;
    }
    return 0;
}

static int go_round(struct rb_import *import, struct loop *loop, int64_t round)
{
    struct rb_import body = *import;
    int err;

    body.values = (struct rb_names){.outer = &import->values};
    body.sequences = (struct rb_names){.outer = &import->sequences};
    body.called += (int)loop->body->n_node;
    err = body.called > MOST_NODES
              ? rb_why_set(import->why, RB_ELIMIT, "the model's loops have more than %d nodes",
                           MOST_NODES)
              : bind_inputs(&body, loop, round);
    if (!err)
        err = rb_import_inside(&body, loop->body);
    if (!err)
        err = take_outputs(&body, loop);
    import->called = body.called;
    rb_names_done(&body.values);
    rb_names_done(&body.sequences);
    return err;
}

/* The values of all rounds, one after the other. */
static struct rb_value *joined(struct rb_import *import, const struct rb_sequence *scan)
{
    if (!scan->n)
        return rb_make_no(import, "it does not go round once, and what it gives has no shape");
    for (int i = 0; i < scan->n; i++)
        scan->items[i] = rb_make_unsqueeze(import, scan->items[i], 0);
    return import->err ? NULL : rb_make_concat(import, 0, scan->n, scan->items);
}

int rb_import_op_loop(struct rb_import *import)
{
    struct loop loop = {0};
    int err = read(import, &loop), more = 1;

    for (int64_t round = 0; !err && more; round++) {
        more = goes_on(import, &loop, round);
        err = more < 0 ? more : more ? go_round(import, &loop, round) : 0;
    }
    for (size_t i = 0; !err && i < import->node->n_output; i++) {
        const struct carried *out = i < loop.n_carried ? &loop.carried[i] : NULL;

        if (out && out->sequence)
            err = rb_import_bind_sequence(import, (int)i, out->sequence);
        else if (rb_import_wants(import, (int)i))
            err = rb_make_bind(import, (int)i,
                               out ? out->value : joined(import, &loop.scans[i - loop.n_carried]));
    }
    return err;
}
