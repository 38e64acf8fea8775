/* SPDX-License-Identifier: Apache-2.0 */
/* A feed, as in worker/join/feed*.c: blocks, then what each step did to them, to newcomers. */
#include "sim_worker.h"

#include "worker/join/taking.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { QUEUE = 4, SILENCE_US = 10000000, LOOK_US = 1000000, PIECE_US = 20000, WEIGHTS_US = 100000 };

struct entry {
    struct entry *next;
    int64_t level; /* that it leads to */
    uint64_t sums[SIM_BLOCKS];
    bool skip, flip;
};

struct taker {
    uint32_t rank;
    size_t next;
    uint64_t headers, answers;
    int64_t level;
    uint64_t heard;
};

struct sim_feed {
    struct sim_process *process;
    struct sim_conf *conf;
    enum { FEEDING, FLIPPING, OVER, BROKEN } phase;
    uint32_t source;
    bool halted, closing, started, resting, ends;
    const char *reason;
    int err;
    struct taker takers[SIM_RANKS];
    bool from[SIM_RANKS];
    struct entry *first, *last;
    unsigned queued;
    int64_t flip, begun;
};

/* ---- The window -------------------------------------------------------------------------------*/

void sim_window_enter(struct sim_process *process, uint32_t term)
{
    if (process->term != term && process->feed)
        sim_feed_halt(process->feed, "training changed its configuration");
    process->term = term;
    process->taken_for = 0;
}

void sim_feed_halt(struct sim_feed *feed, const char *reason)
{
    if (feed->process->feed == feed)
        feed->process->feed = NULL;
    feed->halted = true;
    feed->reason = reason;
    feed->conf->group->seats[feed->conf->rank].cancelled = true;
}

static const char *is_hopeless(const struct sim_feed *feed)
{
    if (feed->queued >= QUEUE)
        return "newcomers do not keep up with the training";
    for (uint32_t i = 0; i < feed->conf->roster->n_newcomers; i++)
        if (feed->process->sim->now > feed->takers[i].heard + SILENCE_US)
            return "a newcomer has said nothing for too long";
    return NULL;
}

void sim_feed_log(struct sim_process *process, bool skip, uint32_t flip)
{
    struct sim_feed *feed = process->feed;
    const char *reason = feed ? is_hopeless(feed) : NULL;
    struct entry *entry;

    if (!feed)
        return;
    if (reason) {
        sim_feed_halt(feed, reason);
        return;
    }
    entry = sim_new(process->sim, sizeof *entry);
    entry->level = process->state.level;
    memcpy(entry->sums, process->reduced, sizeof entry->sums);
    entry->skip = skip;
    if (flip == feed->conf->number) {
        entry->flip = true;
        feed->phase = FLIPPING;
        process->feed = NULL;
    }
    if (feed->last)
        feed->last->next = entry;
    else
        feed->first = entry;
    feed->last = entry;
    feed->queued++;
}

/* ---- What it does -----------------------------------------------------------------------------*/

static int hear_all(struct sim_feed *feed)
{
    struct sim_process *process = feed->process;
    const struct sim_conf *conf = feed->conf;

    for (uint32_t i = 0; i < conf->roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        while (feed->from[taker->rank]) {
            int64_t level;
            int err =
                sim_receive(process->sim, conf->group, conf->rank, taker->rank,
                            sim_tag(SIM_TAG_ANSWER, taker->answers, 0, 0), &level, sizeof level);

            if (err == RB_EAGAIN)
                break;
            if (err)
                return err;
            taker->answers++;
            taker->heard = process->sim->now;
            if (level >= 0)
                taker->level = level;
            feed->from[taker->rank] = level < feed->flip;
        }
    }
    return RB_OK;
}

static void tell(struct sim_feed *feed, struct taker *taker, const struct sim_piece *piece)
{
    sim_send(feed->process->sim, feed->conf->group, feed->conf->rank, taker->rank,
             sim_tag(SIM_TAG_PIECE, taker->headers++, 0, 0), piece, sizeof *piece);
}

static void tell_all(struct sim_feed *feed, const struct sim_piece *piece)
{
    for (uint32_t i = 0; feed->process->alive && i < feed->conf->roster->n_newcomers; i++)
        tell(feed, &feed->takers[i], piece);
}

static size_t next_block(const struct sim_feed *feed, uint32_t i, size_t from)
{
    const struct sim_conf *conf = feed->conf;

    while ((from = rb_roster_next(conf->roster, feed->source, i, from)) < SIM_BLOCKS &&
           !rb_placement_holds(&conf->as.placement, conf->roster->newcomers[i], from))
        from++;
    return from;
}

/* One block to each newcomer that lacks blocks that this source has.  False: no newcomer lacks
 * any. */
static bool tell_some(struct sim_feed *feed)
{
    const struct sim_state *state = &feed->process->state;
    bool left = false;

    for (uint32_t i = 0; feed->process->alive && i < feed->conf->roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];
        struct sim_piece piece = {.kind = SIM_PIECE_BLOCK, .level = state->level};

        if (taker->next >= SIM_BLOCKS ||
            !rb_taking_gives(state->held[taker->next], feed->process->taken_for,
                             feed->conf->number))
            continue; /* or the block is still to be taken */
        left = true;
        piece.block = (uint32_t)taker->next;
        piece.weights = state->blocks[taker->next];
        piece.moments = state->moments[taker->next];
        taker->next = next_block(feed, i, taker->next + 1);
        tell(feed, taker, &piece);
    }
    return left;
}

static void tell_entry(struct sim_feed *feed)
{
    struct entry *entry = feed->first;
    struct sim_piece piece = {
        .kind = SIM_PIECE_ENTRY,
        .level = entry->level,
        .skip = entry->skip,
        .flip = entry->flip,
    };

    memcpy(piece.sums, entry->sums, sizeof piece.sums);
    feed->first = entry->next;
    if (!feed->first)
        feed->last = NULL;
    feed->queued--;
    if (entry->flip) {
        feed->flip = entry->level;
        memcpy(piece.others, feed->process->state.blocks, sizeof piece.others);
    }
    tell_all(feed, &piece);
}

static bool all_answered(const struct sim_feed *feed)
{
    for (uint32_t i = 0; i < feed->conf->roster->n_newcomers; i++)
        if (feed->takers[i].level < feed->flip)
            return false;
    return true;
}

static bool end(struct sim_feed *feed, int err)
{
    bool flipped = feed->phase == FLIPPING;

    if (feed->process->feed == feed)
        feed->process->feed = NULL;
    feed->phase = err ? BROKEN : OVER;
    feed->err = err;
    if (err && !feed->closing && !flipped)
        sim_tell_unready(feed->process, feed->conf->number,
                         feed->reason ? feed->reason : "a newcomer is lost");
    return true;
}

/* A piece takes its time; the feed listens to the newcomers in any case. */
static void on_time(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_feed *feed = who;

    (void)sim;
    (void)stamp;
    (void)what;
    feed->resting = false;
    if (feed->phase == FEEDING || feed->phase == FLIPPING)
        sim_pump(feed->process);
}

static void rest(struct sim_feed *feed, uint64_t us)
{
    feed->resting = true;
    sim_in(feed->process->sim, us, on_time, feed, 0, NULL);
}

bool sim_feed_run(struct sim_feed *feed)
{
    const char *hopeless;
    int err;

    if (feed->phase == OVER || feed->phase == BROKEN)
        return false;
    if (feed->halted)
        return end(feed, RB_ECANCELED);
    err = hear_all(feed);
    if (err)
        return end(feed, err);
    hopeless = feed->phase == FEEDING ? is_hopeless(feed) : NULL;
    if (hopeless) {
        sim_feed_halt(feed, hopeless);
        return end(feed, RB_ECANCELED);
    }
    if (feed->flip != INT64_MAX)
        return all_answered(feed) ? end(feed, RB_OK) : false;
    if (feed->resting)
        return false;
    if (!feed->started) {
        struct sim_piece start = {.kind = SIM_PIECE_START, .level = feed->begun};

        feed->started = true;
        tell_all(feed, &start);
        return true;
    }
    if (feed->first && feed->first->flip && !feed->ends) {
        feed->ends = true; /* it brings all the weights that the newcomers do not hold */
        rest(feed, sim_between(feed->process->sim, 200, WEIGHTS_US));
        return true;
    }
    if (feed->first) {
        tell_entry(feed);
        return true;
    }
    rest(feed, tell_some(feed) ? sim_between(feed->process->sim, 200, PIECE_US) : 5000);
    return true;
}

/* ---- Ends -------------------------------------------------------------------------------------*/

struct sim_feed *sim_feed_open(struct sim_process *process, struct sim_conf *conf, uint32_t term)
{
    struct sim_feed *feed;

    if (process->term != term || process->feed)
        return NULL;
    feed = sim_new(process->sim, sizeof *feed);
    feed->process = process;
    feed->conf = conf;
    feed->source = (uint32_t)rb_roster_source(conf->roster, conf->rank);
    feed->flip = INT64_MAX;
    feed->begun = process->state.level;
    for (uint32_t i = 0; i < conf->roster->n_newcomers; i++) {
        struct taker *taker = &feed->takers[i];

        taker->rank = conf->roster->newcomers[i];
        taker->next = next_block(feed, i, 0);
        taker->level = -1;
        taker->heard = process->sim->now;
        feed->from[taker->rank] = true;
    }
    process->feed = feed;
    return feed;
}

bool sim_feed_level(const struct sim_feed *feed, int64_t level)
{
    if (feed->phase != FEEDING)
        return false;
    for (uint32_t i = 0; i < feed->conf->roster->n_newcomers; i++)
        if (feed->takers[i].level != level)
            return false;
    return true;
}

int sim_feed_settle(const struct sim_feed *feed)
{
    return feed->phase == OVER ? RB_OK : feed->phase == BROKEN ? feed->err : RB_EAGAIN;
}

void sim_feed_close(struct sim_feed *feed)
{
    feed->closing = true;
    if (feed->phase == OVER || feed->phase == BROKEN)
        return;
    sim_feed_halt(feed, "closed");
    end(feed, RB_ECANCELED);
}
