/* SPDX-License-Identifier: Apache-2.0 */
/* What a program says of its exchanges, before anything runs. */
#include "worker/stages/exchange_inside.h"

#include "proto/operators.h"
#include "worker/stages/stage_inside.h"

#include <string.h>

struct rb_exchange_runs rb_exchange_runs(const Rb__Instruction *one, const char *key)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, key))
            return (struct rb_exchange_runs){one->attributes[i]->ints,
                                             one->attributes[i]->n_ints / 3};
    return (struct rb_exchange_runs){0};
}

const Rb__Tensor *rb_exchange_side(const Rb__Program *message, const Rb__Instruction *one, bool y)
{
    bool out = (one->operator_ == RB_OP_SPREAD) == y;
    size_t n = out ? one->n_outputs : one->n_inputs;
    int32_t t = n ? (out ? one->outputs : one->inputs)[0] : -1;

    return t >= 0 && (size_t)t < message->n_tensors ? message->tensors[t] : NULL;
}

static bool inside(int64_t first, int64_t count, const Rb__Tensor *tensor)
{
    return tensor && first >= 0 && count > 0 && first <= tensor->dims[1] &&
           count <= tensor->dims[1] - first;
}

static bool fits_parts(const Rb__Program *message, struct rb_exchange_runs runs,
                       const Rb__Tensor *tensor)
{
    for (size_t i = 0; i < runs.n; i++) {
        const int64_t *run = runs.numbers + 3 * i;

        if (run[0] < 0 || run[0] >= message->parts || run[0] == message->part ||
            !inside(run[1], run[2], tensor))
            return false;
    }
    return true;
}

static bool same_samples(const Rb__Tensor *x, const Rb__Tensor *y)
{
    if (x->n_dims != y->n_dims)
        return false;
    for (size_t i = 0; i < x->n_dims; i++)
        if (i != 1 && x->dims[i] != y->dims[i])
            return false;
    return true;
}

/* What is kept is inside both sides, each filter of x at most once. */
static bool fits_kept(struct rb_exchange_runs keeps, const Rb__Tensor *x, const Rb__Tensor *y)
{
    for (size_t i = 0; i < keeps.n; i++) {
        const int64_t *run = keeps.numbers + 3 * i;

        if (!inside(run[0], run[2], x) || !inside(run[1], run[2], y))
            return false;
        for (size_t j = 0; j < i; j++) {
            const int64_t *other = keeps.numbers + 3 * j;

            if (run[0] < other[0] + other[2] && other[0] < run[0] + run[2])
                return false;
        }
    }
    return true;
}

static bool fits(const Rb__Program *message, const Rb__Instruction *one)
{
    const Rb__Tensor *x = rb_exchange_side(message, one, false),
                     *y = rb_exchange_side(message, one, true);

    if ((x && (x->n_dims < 2 || x->dtype != RB_F32)) ||
        (y && (y->n_dims < 2 || y->dtype != RB_F32)) || (x && y && !same_samples(x, y)) ||
        !fits_parts(message, rb_exchange_runs(one, "sends"), x) ||
        !fits_parts(message, rb_exchange_runs(one, "receives"), y))
        return false;
    return fits_kept(rb_exchange_runs(one, "keeps"), x, y);
}

int rb_exchange_check(const Rb__Program *message, struct rb_why *why)
{
    for (size_t i = 0; i < message->n_instructions; i++)
        if (rb_program_exchanges(message->instructions[i]) &&
            !fits(message, message->instructions[i]))
            return rb_why_set(why, RB_EINVAL, "program %s: instruction %zu sends what is not there",
                              message->name, i);
    return 0;
}

static uint64_t end_of(const Rb__Tensor *tensor)
{
    return tensor->offset + rb_stage_tensor_bytes(tensor);
}

/* The last instruction in front of `i` that writes where `i` reads: by place, as the same values
 * may have another name in another shape.  -1: `i` reads nothing; i - 1: no instruction writes
 * there. */
static int maker_of(const Rb__Program *message, size_t i)
{
    const Rb__Tensor *x = rb_exchange_side(message, message->instructions[i],
                                           message->instructions[i]->operator_ == RB_OP_FOLD);

    if (!x)
        return -1;
    for (size_t j = i; j-- > 0;)
        for (size_t k = 0; k < message->instructions[j]->n_outputs; k++) {
            int32_t t = message->instructions[j]->outputs[k];
            const Rb__Tensor *y = t >= 0 ? message->tensors[t] : NULL;

            if (y && y->space == x->space && y->offset < end_of(x) && x->offset < end_of(y))
                return (int)j;
        }
    return (int)i - 1;
}

void rb_exchange_ready(const Rb__Program *message, int *ret_ready)
{
    int ready = -1;

    for (size_t i = 0; i < message->n_instructions; i++) {
        int maker;

        if (!rb_program_exchanges(message->instructions[i]))
            continue;
        maker = maker_of(message, i);
        ret_ready[i] = ready = maker > ready ? maker : ready;
    }
}
