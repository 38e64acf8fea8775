/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/exchange_inside.h"

#include "base/arena.h"
#include "base/hash.h"
#include "proto/operators.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Filters of a tensor: as many floats a sample each as it has behind axis 1. */
struct filters {
    float *at;
    size_t samples, all, inner;
};

static uint64_t net_of(const Rb__Instruction *one)
{
    for (size_t i = 0; i < one->n_attributes; i++)
        if (!strcmp(one->attributes[i]->key, "net") && one->attributes[i]->n_ints)
            return (uint64_t)one->attributes[i]->ints[0];
    return 0;
}

/* host: what the device has made is to be read here. */
static struct filters open_side(const struct rb_exchange *exchange, int e,
                                const Rb__Instruction *one, bool y, bool host)
{
    bool out = (one->operator_ == RB_OP_SPREAD) == y;
    const Rb__Tensor *tensor = rb_exchange_side(exchange->message, one, y);
    struct filters filters = {0};
    int32_t t;

    if (!tensor)
        return filters;
    t = (out ? one->outputs : one->inputs)[0];
    filters.at = host ? (float *)(uintptr_t)rb_program_result(exchange->of[e].program, t)
                      : rb_program_tensor(exchange->of[e].program, t);
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

/* A message between this part and another lies here in runs of filters, sample by sample. */
struct message {
    struct iovec *pieces; /* freed by the caller */
    size_t n, floats;     /* 0: there is no message */
};

static size_t count_runs(struct rb_exchange_runs runs, uint32_t part)
{
    size_t n = 0;

    for (size_t i = 0; i < runs.n; i++)
        n += runs.numbers[3 * i] == part;
    return n;
}

/* Floats that lie behind each other are one piece. */
static void add_piece(struct message *message, float *at, size_t floats)
{
    struct iovec *last = message->n ? &message->pieces[message->n - 1] : NULL;

    if (last && (char *)last->iov_base + last->iov_len == (char *)at)
        last->iov_len += floats * sizeof *at;
    else
        message->pieces[message->n++] = (struct iovec){at, floats * sizeof *at};
    message->floats += floats;
}

static struct message find_message(struct rb_exchange_runs runs, uint32_t part,
                                   const struct filters *filters)
{
    size_t most = count_runs(runs, part) * filters->samples;
    struct message message = {0};

    if (!most)
        return message;
    message.pieces = rb_alloc_raw(most * sizeof *message.pieces);
    for (size_t s = 0; s < filters->samples; s++)
        for (size_t i = 0; i < runs.n; i++)
            if (runs.numbers[3 * i] == part)
                add_piece(&message, place(filters, s, runs.numbers[3 * i + 1]),
                          (size_t)runs.numbers[3 * i + 2] * filters->inner);
    return message;
}

static uint64_t tag_of(const struct rb_exchange *exchange, int e, const Rb__Instruction *one)
{
    uint64_t parts[3] = {exchange->of[e].tag, net_of(one), one->operator_};

    return rb_hash64(parts, sizeof parts);
}

static int rank_of(const struct rb_exchange *exchange, int e, uint32_t part)
{
    return (int)rb_stage_owner(exchange->stage, part, exchange->of[e].microbatch);
}

static int post(struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                struct rb_exchange_runs runs, const struct filters *from, struct rb_why *why)
{
    int err = runs.n ? rb_device_check(exchange->device, why) : 0;

    for (uint32_t part = 0; !err && part < exchange->stage->stages; part++) {
        struct message message = find_message(runs, part, from);

        if (!message.n)
            continue;
        err = rb_coll_post_pieces(exchange->coll, tag_of(exchange, e, one),
                                  rank_of(exchange, e, part), message.pieces, message.n, why);
        free(message.pieces);
        exchange->messages++;
        exchange->bytes += message.floats * sizeof(float);
    }
    return err;
}

static int receive_there(const struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                         uint32_t part, const struct message *message, struct rb_why *why)
{
    return rb_coll_receive_pieces(exchange->coll, tag_of(exchange, e, one),
                                  rank_of(exchange, e, part), message->pieces, message->n, why);
}

static int receive_added(const struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                         uint32_t part, const struct message *message, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) float *received = rb_alloc_raw(message->floats * sizeof *received);
    const float *from = received;
    int err = rb_coll_receive(exchange->coll, tag_of(exchange, e, one), rank_of(exchange, e, part),
                              received, message->floats * sizeof *received, why);

    for (size_t i = 0; !err && i < message->n; i++) {
        float *at = message->pieces[i].iov_base;

        for (size_t k = 0; k < message->pieces[i].iov_len / sizeof *at; k++)
            at[k] += *from++;
    }
    return err;
}

/* From all parts in their order, so that sums are the same each time. */
static int receive(const struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                   struct rb_exchange_runs runs, bool adds, const struct filters *to,
                   struct rb_why *why)
{
    int err = 0;

    for (uint32_t part = 0; !err && part < exchange->stage->stages; part++) {
        struct message message = find_message(runs, part, to);

        if (message.n)
            err = (adds ? receive_added : receive_there)(exchange, e, one, part, &message, why);
        free(message.pieces);
    }
    return err;
}

static void keep(struct rb_exchange_runs keeps, const struct filters *x, const struct filters *y,
                 bool back)
{
    for (size_t i = 0; i < keeps.n; i++)
        for (size_t s = 0; s < x->samples; s++) {
            const int64_t *run = keeps.numbers + 3 * i;
            float *here = place(x, s, run[0]), *there = place(y, s, run[1]);

            memcpy(back ? here : there, back ? there : here,
                   (size_t)run[2] * x->inner * sizeof *here);
        }
}

/* rb_exchange_check has seen that no filter is kept twice. */
static bool keeps_all(struct rb_exchange_runs keeps, const struct filters *x)
{
    size_t n = 0;

    for (size_t i = 0; i < keeps.n; i++)
        n += (size_t)keeps.numbers[3 * i + 2];
    return n == x->all;
}

static size_t bytes_of(const struct filters *filters)
{
    return filters->samples * filters->all * filters->inner * sizeof(float);
}

/* Also brings to the host what take_spread or take_fold keeps of it, so it is never left out. */
static int give_one(struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                    struct rb_why *why)
{
    bool back = one->operator_ == RB_OP_FOLD;
    struct filters from = open_side(exchange, e, one, back, true);

    return post(exchange, e, one, rb_exchange_runs(one, back ? "receives" : "sends"), &from, why);
}

static int take_spread(struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                       struct rb_why *why)
{
    struct filters x = open_side(exchange, e, one, false, false);
    struct filters y = open_side(exchange, e, one, true, false);
    int err;

    keep(rb_exchange_runs(one, "keeps"), &x, &y, false);
    err = receive(exchange, e, one, rb_exchange_runs(one, "receives"), false, &y, why);
    if (!err && y.at)
        rb_device_push(exchange->device, y.at, bytes_of(&y));
    return err;
}

static int take_fold(struct rb_exchange *exchange, int e, const Rb__Instruction *one,
                     struct rb_why *why)
{
    struct filters dx = open_side(exchange, e, one, false, false);
    struct filters dy = open_side(exchange, e, one, true, false);
    struct rb_exchange_runs keeps = rb_exchange_runs(one, "keeps");
    int err;

    if (dx.at && !keeps_all(keeps, &dx))
        memset(dx.at, 0, bytes_of(&dx));
    keep(keeps, &dx, &dy, true);
    err = receive(exchange, e, one, rb_exchange_runs(one, "sends"), true, &dx, why);
    if (!err && dx.at)
        rb_device_push(exchange->device, dx.at, bytes_of(&dx));
    return err;
}

int rb_exchange_give(struct rb_exchange *exchange, int i, struct rb_why *why)
{
    const Rb__Program *message = exchange->message;
    int err = 0;

    for (; !err && exchange->next < message->n_instructions; exchange->next++) {
        const Rb__Instruction *one = message->instructions[exchange->next];

        if (!rb_program_exchanges(one))
            continue;
        if (exchange->ready[exchange->next] > i)
            break;
        for (int e = 0; !err && e < exchange->n; e++)
            err = give_one(exchange, e, one, why);
    }
    return err;
}

int rb_exchange_take(struct rb_exchange *exchange, int i, struct rb_why *why)
{
    const Rb__Instruction *one = exchange->message->instructions[i];
    int err = 0;

    for (int e = 0; !err && e < exchange->n; e++)
        err = (one->operator_ == RB_OP_SPREAD ? take_spread : take_fold)(exchange, e, one, why);
    return err;
}
