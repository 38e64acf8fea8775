/* SPDX-License-Identifier: Apache-2.0 */
/* A newcomer, as in worker/join/follow.c: it takes blocks, and applies to those it has what each
 * step did. */
#include "sim_worker.h"

#include <string.h>

enum { ALIVE_US = 1000000 };

struct source {
    uint32_t rank;
    size_t next;
    uint64_t headers, answers;
    bool flipped;
};

struct sim_follow {
    struct sim_conf *conf;
    uint32_t index;
    struct source sources[SIM_RANKS];
    struct rb_stream streams[SIM_RANKS];
    int64_t answered;
    uint64_t answered_at;
    uint64_t timer;
};

static void on_time(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)what;
    if (!process->alive || !process->follow || process->follow->timer != stamp)
        return;
    sim_in(sim, ALIVE_US, on_time, process, stamp, NULL);
    sim_pump(process);
}

static size_t next_block(const struct sim_follow *follow, uint32_t s, size_t from)
{
    const struct sim_conf *conf = follow->conf;

    while ((from = rb_roster_next(conf->roster, s, follow->index, from)) < SIM_BLOCKS &&
           !rb_placement_holds(&conf->as.placement, conf->rank, from))
        from++;
    return from;
}

void sim_follow_open(struct sim_process *process, struct sim_conf *conf)
{
    struct sim_follow *follow = sim_new(process->sim, sizeof *follow);

    follow->conf = conf;
    follow->index = (uint32_t)rb_roster_newcomer(conf->roster, conf->rank);
    follow->answered = -1;
    follow->answered_at = process->sim->now;
    for (uint32_t s = 0; s < conf->roster->n_sources; s++) {
        struct source *source = &follow->sources[s];

        source->rank = conf->roster->sources[s];
        source->next = next_block(follow, s, 0);
        follow->streams[s].level = -1;
        for (size_t b = source->next; b < SIM_BLOCKS; b = next_block(follow, s, b + 1))
            follow->streams[s].missing++;
    }
    process->state = (struct sim_state){.level = -1};
    process->follow = follow;
    follow->timer = ++process->sim->sequence;
    sim_in(process->sim, ALIVE_US, on_time, process, follow->timer, NULL);
}

static void answer(struct sim_process *process, int64_t level)
{
    struct sim_follow *follow = process->follow;

    for (uint32_t s = 0; process->alive && s < follow->conf->roster->n_sources; s++) {
        struct source *source = &follow->sources[s];

        sim_send(process->sim, follow->conf->group, follow->conf->rank, source->rank,
                 sim_tag(SIM_TAG_ANSWER, source->answers++, 0, 0), &level, sizeof level);
    }
    follow->answered_at = process->sim->now;
}

static void answer_if_due(struct sim_process *process)
{
    struct sim_follow *follow = process->follow;
    int64_t level = rb_stream_level(follow->streams, follow->conf->roster->n_sources);

    if (level > follow->answered) {
        follow->answered = level;
        answer(process, level);
    } else if (process->sim->now >= follow->answered_at + ALIVE_US) {
        answer(process, -1);
    }
}

static void apply(struct sim_process *process, const struct source *source,
                  const struct sim_piece *piece)
{
    const struct sim_follow *follow = process->follow;
    uint32_t s = (uint32_t)(source - follow->sources);

    for (size_t b = next_block(follow, s, 0); b < source->next; b = next_block(follow, s, b + 1))
        sim_apply(&process->state, (unsigned)b, piece->level - 1, piece->sums[b], piece->skip);
}

/* The weights of all blocks that are not held here. */
static void take_weights(struct sim_process *process, uint32_t s, const struct sim_piece *piece)
{
    const struct sim_follow *follow = process->follow;
    const struct sim_conf *conf = follow->conf;

    for (size_t b = 0; b < SIM_BLOCKS; b++)
        if (conf->roster->givers[follow->index * SIM_BLOCKS + b] == s &&
            !rb_placement_holds(&conf->as.placement, conf->rank, b))
            process->state.blocks[b] = piece->others[b];
}

/* False: the piece is out of turn. */
static bool take(struct sim_process *process, uint32_t s, const struct sim_piece *piece)
{
    struct sim_follow *follow = process->follow;
    struct source *source = &follow->sources[s];
    struct rb_stream *stream = &follow->streams[s];

    switch (piece->kind) {
    case SIM_PIECE_START:
        if (stream->level >= 0)
            return false;
        stream->level = piece->level;
        return true;
    case SIM_PIECE_BLOCK:
        if (stream->level < 0 || piece->level != stream->level || piece->block != source->next)
            return false;
        process->state.blocks[piece->block] = piece->weights;
        process->state.moments[piece->block] = piece->moments;
        source->next = next_block(follow, s, source->next + 1);
        stream->missing--;
        return true;
    default:
        if (stream->level < 0 || piece->level != stream->level + 1)
            return false;
        apply(process, source, piece);
        if (piece->flip)
            take_weights(process, s, piece);
        stream->level++;
        source->flipped = piece->flip;
        return true;
    }
}

static int take_all(struct sim_process *process, uint32_t s)
{
    struct sim_follow *follow = process->follow;
    struct source *source = &follow->sources[s];
    struct sim_piece piece;
    int err = RB_OK;

    while (!source->flipped && process->alive) {
        err = sim_receive(process->sim, follow->conf->group, follow->conf->rank, source->rank,
                          sim_tag(SIM_TAG_PIECE, source->headers, 0, 0), &piece, sizeof piece);
        if (err)
            return err;
        source->headers++;
        if (!take(process, s, &piece)) {
            sim_fail(process->sim, "%s: a feed speaks out of turn", process->name);
            return RB_EINTERNAL;
        }
        answer_if_due(process);
    }
    return RB_OK;
}

int sim_follow_run(struct sim_process *process)
{
    struct sim_follow *follow = process->follow;
    uint32_t sources = follow->conf->roster->n_sources;
    int64_t level = -1;

    for (uint32_t s = 0; s < sources; s++) {
        int err = take_all(process, s);

        if (err && err != RB_EAGAIN)
            return err;
    }
    if (process->alive)
        answer_if_due(process);
    for (uint32_t s = 0; s < sources; s++) {
        if (!follow->sources[s].flipped || !process->alive)
            return RB_EAGAIN;
        if (level >= 0 && follow->streams[s].level != level)
            return RB_EINTERNAL;
        level = follow->streams[s].level;
    }
    sim_hold(&process->state, follow->conf->as.placement.holds + follow->conf->rank * SIM_BLOCKS);
    process->state.level = level;
    process->applied = process->pending = process->kept = -1;
    return RB_OK;
}
