/* SPDX-License-Identifier: Apache-2.0 */
/* Ways between the GPUs of stages, past their hosts.
 *
 *     word: where a shelf is  ───▶  looks for it
 *             was it found?  ◀───  word, with the next that goes back
 *          word: parcel n     ───▶  takes it
 *   so many were taken       ◀───  word, with the next that goes back
 *
 * So no stage waits for an answer: until one has come, and where all slots are taken, bytes go by
 * the link as they do without a way, and so they do where nothing goes back.  A parcel lies on its
 * shelf until the taker has said that it has it; a word has the step, attempt and microbatch in its
 * tag.  A way is of one configuration, and has its memory from the second step or lap on: flights,
 * which must have theirs, have it by then. */
#include "worker/stages/flight_inside.h"

#include "base/arena.h"
#include "base/log.h"
#include "worker/parcels.h"

#include <stdlib.h>
#include <string.h>

enum answer { NOT_ASKED, FOUND, NOT_FOUND };

struct way {
    struct rb_parcels out, in;
    bool tried, told;       /* to open a shelf; where it is */
    enum answer said, ours; /* the other's answer on the shelf for out; ours on the one for in */
    uint64_t taken;         /* parcels taken of out, as the other said */
    uint8_t address[RB_SHELF_ADDRESS];
};

struct rb_ways {
    uint32_t configuration;
    int64_t since; /* the level at which it began */
    size_t n;
    struct way to[]; /* by rank */
};

/* Goes in front of a message, or in its place; travels as it lies. */
struct word {
    uint64_t taken;          /* parcels that came the other way, so far */
    uint64_t parcel;         /* its number; none: bytes come */
    int64_t count;           /* of a lap: valid targets */
    uint32_t answer, offers; /* to the other's offer; and our own: the address counts */
    uint8_t address[RB_SHELF_ADDRESS];
};

static const uint64_t none = UINT64_MAX;

/* ---- Of this configuration -------------------------------------------------------------------*/

void rb_ways_free(struct rb_model *model)
{
    struct rb_ways *ways = RB_TAKE(model->ways);

    for (size_t r = 0; ways && r < ways->n; r++) {
        rb_parcels_close(&ways->to[r].out);
        rb_parcels_close(&ways->to[r].in);
    }
    free(ways);
}

static void open_ways(struct rb_model *model, const struct rb_configuration *configuration)
{
    struct rb_ways *ways = rb_alloc(sizeof *ways + configuration->size * sizeof *ways->to);

    ways->configuration = configuration->number;
    ways->since = model->state.level;
    ways->n = configuration->size;
    model->ways = ways;
}

/* The way to the rank; NULL: there is none, which both ends know. */
static struct way *way_to(const struct rb_pilot *pilot, uint32_t rank)
{
    struct rb_model *model = pilot->model;

    if (model->ways && model->ways->configuration != pilot->configuration->number)
        rb_ways_free(model);
    if (!rb_device_shelves(model->device) ||
        strcmp(rb_coll_link(pilot->configuration->coll, (int)rank), "tcp") == 0)
        return NULL;
    if (!model->ways)
        open_ways(model, pilot->configuration);
    return &model->ways->to[rank];
}

static uint32_t rank_of(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t k)
{
    return rb_stage_owner(pilot->configuration->stage, k, flight->microbatch);
}

/* The largest message from or to stage k: of any microbatch. */
static size_t room_for(const struct rb_stage *stage, uint32_t k, bool out)
{
    size_t room = 0;

    for (size_t p = 0; p < stage->n_parts; p++) {
        const struct rb_part *part = &stage->parts[p];
        size_t bytes = !part->message ? 0 : out ? part->out_bytes[k] : part->in_bytes[k];

        room = bytes > room ? bytes : room;
    }
    return room;
}

/* ---- Out -------------------------------------------------------------------------------------*/

/* Once: open a shelf of our own for what goes out, if anything goes back to say it was found. */
static void offer(const struct rb_pilot *pilot, struct way *way, uint32_t k, uint32_t rank)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    struct rb_why reason = {0};

    if (way->tried || pilot->model->state.level == pilot->model->ways->since)
        return;
    way->tried = true;
    if (!room_for(stage, k, false))
        rb_why_set(&reason, RB_EUNSUPPORTED, "nothing crosses back");
    else
        rb_parcels_open(pilot->model->device, room_for(stage, k, true), stage->flights,
                        way->address, &way->out, &reason);
    if (!way->out.shelf)
        rb_log(RB_LOG_INFO, "configuration %u: what crosses to rank %u goes through the hosts: %s",
               pilot->configuration->number, rank, reason.text);
}

int rb_way_put(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t k,
               uint64_t tag, bool *ret_parcel, struct rb_why *why)
{
    uint32_t rank = rank_of(pilot, flight, k);
    struct way *way = way_to(pilot, rank);
    struct word word = {.parcel = none, .count = flight->count};
    struct iovec piece = {flight->out[k].bytes, rb_flight_part(pilot, flight)->out_bytes[k]};
    int err;

    *ret_parcel = false;
    if (!way)
        return 0;
    offer(pilot, way, k, rank);
    if (way->out.shelf && way->said == FOUND && !rb_parcels_full(&way->out, way->taken)) {
        word.parcel = way->out.n;
        rb_parcels_put(&way->out, &piece, 1);
    }
    word.taken = way->in.n;
    word.answer = way->ours;
    word.offers = way->out.shelf && !way->told;
    memcpy(word.address, way->address, sizeof word.address);
    err = rb_device_check(pilot->model->device, why); /* before it is said to lie there */
    if (!err)
        err = rb_coll_post(pilot->configuration->coll, tag, (int)rank, &word, sizeof word, why);
    way->told |= way->out.shelf != NULL;
    *ret_parcel = word.parcel != none;
    return err;
}

/* ---- In --------------------------------------------------------------------------------------*/

static int nonsense(uint32_t rank, struct rb_why *why)
{
    return rb_why_set(why, RB_EINTERNAL, "rank %u speaks of parcels that there are not", rank);
}

/* Can this device take from the other by itself? */
static void look_for(const struct rb_pilot *pilot, struct way *way, uint32_t k, uint32_t rank,
                     const struct word *word)
{
    const struct rb_stage *stage = pilot->configuration->stage;
    struct rb_why reason = {0};
    int failed = rb_parcels_find(pilot->model->device, room_for(stage, k, false), stage->flights,
                                 word->address, &way->in, &reason);

    way->ours = failed ? NOT_FOUND : FOUND;
    if (failed)
        rb_log(RB_LOG_INFO,
               "configuration %u: what crosses from rank %u comes through the hosts: %s",
               pilot->configuration->number, rank, reason.text);
    else
        rb_log(RB_LOG_INFO, "configuration %u: what crosses from rank %u comes from GPU to GPU",
               pilot->configuration->number, rank);
}

/* What the other says of parcels that went to it. */
static int hear(struct way *way, uint32_t rank, const struct word *word, struct rb_why *why)
{
    if (word->answer > NOT_FOUND || word->taken < way->taken || word->taken > way->out.n ||
        (word->offers && way->ours != NOT_ASKED))
        return nonsense(rank, why);
    way->said = (enum answer)word->answer;
    way->taken = word->taken;
    if (way->said == NOT_FOUND)
        rb_parcels_close(&way->out);
    return 0;
}

static int take_parcel(const struct rb_pilot *pilot, struct rb_flight *flight, struct way *way,
                       uint32_t k, uint64_t parcel, struct rb_why *why)
{
    struct iovec piece = {flight->in[k].bytes, rb_flight_part(pilot, flight)->in_bytes[k]};

    if (!way->in.shelf || parcel != way->in.n)
        return nonsense(rank_of(pilot, flight, k), why);
    rb_parcels_take(&way->in, &piece, 1);
    return rb_device_check(pilot->model->device, why);
}

int rb_way_take(const struct rb_pilot *pilot, struct rb_flight *flight, uint32_t k, uint64_t tag,
                bool *ret_parcel, struct rb_why *why)
{
    uint32_t rank = rank_of(pilot, flight, k);
    struct way *way = way_to(pilot, rank);
    struct word word;
    int err;

    *ret_parcel = false;
    if (!way)
        return 0;
    err = rb_coll_receive(pilot->configuration->coll, tag, (int)rank, &word, sizeof word, why);
    if (!err)
        err = hear(way, rank, &word, why);
    if (err)
        return err;
    if (word.offers)
        look_for(pilot, way, k, rank, &word);
    if (word.parcel == none)
        return 0;
    *ret_parcel = true;
    memcpy(flight->in[k].bytes + rb_flight_part(pilot, flight)->in_bytes[k], &word.count,
           sizeof word.count);
    return take_parcel(pilot, flight, way, k, word.parcel, why);
}
