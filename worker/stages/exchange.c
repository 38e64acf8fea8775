/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/exchange.h"

#include "base/arena.h"
#include "base/hash.h"
#include "proto/dtype.h"
#include "proto/operators.h"

#include <inttypes.h>
#include <string.h>

/* Filters of a tensor: as many floats a sample each as it has behind axis 1. */
struct filters {
    float *at;
    size_t samples, all, inner;
};

/* Runs of filters, three numbers each. */
struct runs {
    const int64_t *numbers;
    size_t n;
};

static struct runs runs_of(const Rb__Instruction *one, const char *key)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, key))
            return (struct runs){one->attributes[i]->ints, one->attributes[i]->n_ints / 3};
    return (struct runs){0};
}

static uint64_t net_of(const Rb__Instruction *one)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, "net") && one->attributes[i]->n_ints)
            return (uint64_t)one->attributes[i]->ints[0];
    return 0;
}

/* ---- Checking --------------------------------------------------------------------------------*/

/* Of the tensor that is x (of SPREAD), or y; NULL: absent. */
static const Rb__Tensor *side(const Rb__Program *message, const Rb__Instruction *one, bool y)
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

static bool fits_parts(const Rb__Program *message, struct runs runs, const Rb__Tensor *tensor)
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

static bool fits(const Rb__Program *message, const Rb__Instruction *one)
{
    const Rb__Tensor *x = side(message, one, false), *y = side(message, one, true);
    struct runs keeps = runs_of(one, "keeps");

    if ((x && (x->n_dims < 2 || x->dtype != RB_F32)) ||
        (y && (y->n_dims < 2 || y->dtype != RB_F32)) || (x && y && !same_samples(x, y)) ||
        !fits_parts(message, runs_of(one, "sends"), x) ||
        !fits_parts(message, runs_of(one, "receives"), y))
        return false;
    for (size_t i = 0; i < keeps.n; i++)
        if (!inside(keeps.numbers[3 * i], keeps.numbers[3 * i + 2], x) ||
            !inside(keeps.numbers[3 * i + 1], keeps.numbers[3 * i + 2], y))
            return false;
    return true;
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

/* ---- Running ---------------------------------------------------------------------------------*/

/* host: what the device has made is to be read here. */
static struct filters open_side(const struct rb_exchange *exchange, const Rb__Instruction *one,
                                bool y, bool host)
{
    bool out = (one->operator_ == RB_OP_SPREAD) == y;
    const Rb__Tensor *tensor = side(exchange->message, one, y);
    struct filters filters = {0};
    int32_t t;

    if (!tensor)
        return filters;
    t = (out ? one->outputs : one->inputs)[0];
    filters.at = host ? (float *)(uintptr_t)rb_program_result(exchange->program, t)
                      : rb_program_tensor(exchange->program, t);
    filters.samples = (size_t)tensor->dims[0];
    filters.all = (size_t)tensor->dims[1];
    filters.inner = 1;
    for (size_t i = 2; i < tensor->n_dims; i++)
        filters.inner *= (size_t)tensor->dims[i];
    return filters;
}

static float *place(const struct filters *filters, size_t sample, int64_t filter)
{
    return filters->at + (sample * filters->all + (size_t)filter) * filters->inner;
}

/* Floats of a message between this part and another; 0: there is none. */
static size_t count_floats(struct runs runs, uint32_t part, const struct filters *filters)
{
    size_t n = 0;

    for (size_t i = 0; i < runs.n; i++)
        if (runs.numbers[3 * i] == part)
            n += (size_t)runs.numbers[3 * i + 2];
    return n * filters->samples * filters->inner;
}

enum way { TAKE, PUT, ADD };

/* Between a message and the filters that it has. */
static void carry(enum way way, float *message, struct runs runs, uint32_t part,
                  const struct filters *filters)
{
    for (size_t s = 0; s < filters->samples; s++)
        for (size_t i = 0; i < runs.n; i++) {
            const int64_t *run = runs.numbers + 3 * i;
            size_t n = (size_t)run[2] * filters->inner;
            float *at = place(filters, s, run[1]);

            if (run[0] != part)
                continue;
            if (way == TAKE)
                memcpy(message, at, n * sizeof *at);
            else if (way == PUT)
                memcpy(at, message, n * sizeof *at);
            for (size_t k = 0; way == ADD && k < n; k++)
                at[k] += message[k];
            message += n;
        }
}

static uint64_t tag_of(const struct rb_exchange *exchange, const Rb__Instruction *one)
{
    uint64_t parts[3] = {exchange->tag, net_of(one), one->operator_};

    return rb_hash64(parts, sizeof parts);
}

static int rank_of(const struct rb_exchange *exchange, uint32_t part)
{
    return (int)rb_stage_owner(exchange->stage, part, exchange->microbatch);
}

static int post(struct rb_exchange *exchange, const Rb__Instruction *one, struct runs runs,
                const struct filters *from, struct rb_why *why)
{
    int err = runs.n ? rb_device_check(exchange->device, why) : 0;

    for (uint32_t part = 0; !err && part < exchange->stage->stages; part++) {
        size_t n = count_floats(runs, part, from);
        RB_CLEANUP(rb_freep) float *message = n ? rb_realloc(NULL, n * sizeof *message) : NULL;

        if (!n)
            continue;
        carry(TAKE, message, runs, part, from);
        err = rb_coll_post(exchange->coll, tag_of(exchange, one), rank_of(exchange, part), message,
                           n * sizeof *message, why);
        exchange->messages++;
        exchange->bytes += n * sizeof *message;
    }
    return err;
}

/* From parts in their order, so that sums are the same each time. */
static int receive(const struct rb_exchange *exchange, const Rb__Instruction *one, struct runs runs,
                   enum way way, const struct filters *to, struct rb_why *why)
{
    int err = 0;

    for (uint32_t part = 0; !err && part < exchange->stage->stages; part++) {
        size_t n = count_floats(runs, part, to);
        RB_CLEANUP(rb_freep) float *message = n ? rb_realloc(NULL, n * sizeof *message) : NULL;

        if (!n)
            continue;
        err = rb_coll_receive(exchange->coll, tag_of(exchange, one), rank_of(exchange, part),
                              message, n * sizeof *message, why);
        if (!err)
            carry(way, message, runs, part, to);
    }
    return err;
}

static void keep(struct runs keeps, const struct filters *x, const struct filters *y, bool back)
{
    for (size_t i = 0; i < keeps.n; i++)
        for (size_t s = 0; s < x->samples; s++) {
            const int64_t *run = keeps.numbers + 3 * i;
            float *here = place(x, s, run[0]), *there = place(y, s, run[1]);

            memcpy(back ? here : there, back ? there : here,
                   (size_t)run[2] * x->inner * sizeof *here);
        }
}

static size_t bytes_of(const struct filters *filters)
{
    return filters->samples * filters->all * filters->inner * sizeof(float);
}

static uint64_t end_of(const Rb__Tensor *tensor)
{
    uint64_t bytes = rb_dtype_size((enum rb_dtype)tensor->dtype);

    for (size_t d = 0; d < tensor->n_dims; d++)
        bytes *= (uint64_t)tensor->dims[d];
    return tensor->offset + bytes;
}

/* The last instruction in front of `i` that writes where `i` reads: by place, as the same values
 * may be called otherwise in another shape. */
static int maker_of(const Rb__Program *message, size_t i)
{
    const Rb__Tensor *x =
        side(message, message->instructions[i], message->instructions[i]->operator_ == RB_OP_FOLD);

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

/* What is made here is read by the host, and what comes is written by it. */
int rb_exchange_give(struct rb_exchange *exchange, size_t i, struct rb_why *why)
{
    const Rb__Instruction *one = exchange->message->instructions[i];
    bool back = one->operator_ == RB_OP_FOLD;
    struct filters from = open_side(exchange, one, back, true);

    return post(exchange, one, runs_of(one, back ? "receives" : "sends"), &from, why);
}

static int take_spread(struct rb_exchange *exchange, const Rb__Instruction *one, struct rb_why *why)
{
    struct filters x = open_side(exchange, one, false, false);
    struct filters y = open_side(exchange, one, true, false);
    int err;

    keep(runs_of(one, "keeps"), &x, &y, false);
    err = receive(exchange, one, runs_of(one, "receives"), PUT, &y, why);
    if (!err && y.at)
        rb_device_push(exchange->device, y.at, bytes_of(&y));
    return err;
}

static int take_fold(struct rb_exchange *exchange, const Rb__Instruction *one, struct rb_why *why)
{
    struct filters dx = open_side(exchange, one, false, false);
    struct filters dy = open_side(exchange, one, true, false);
    int err;

    if (dx.at)
        memset(dx.at, 0, bytes_of(&dx));
    keep(runs_of(one, "keeps"), &dx, &dy, true);
    err = receive(exchange, one, runs_of(one, "sends"), ADD, &dx, why);
    if (!err && dx.at)
        rb_device_push(exchange->device, dx.at, bytes_of(&dx));
    return err;
}

int rb_exchange_take(struct rb_exchange *exchange, size_t i, struct rb_why *why)
{
    const Rb__Instruction *one = exchange->message->instructions[i];

    return (one->operator_ == RB_OP_SPREAD ? take_spread : take_fold)(exchange, one, why);
}
