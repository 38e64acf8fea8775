/* SPDX-License-Identifier: Apache-2.0 */
/* Moves: bytes from some ranks to others, all at once.
 *
 * A lane takes only so many frames a call, so a long list is run in rounds.  All ranks have the
 * same list and cut it alike: a round ends where the frames of one pair of ranks fill its lane. */
#include "coll/group.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* How many frames each pair has in this round. */
struct round {
    uint8_t *frames; /* by from * size + to */
    int size;
};

static bool is_full(const struct round *round, int from, int to)
{
    return from != to && round->frames[from * round->size + to] == RB_LANE_FRAMES;
}

static void count(struct round *round, int from, int to)
{
    if (from != to)
        round->frames[from * round->size + to]++;
}

static void open_round(struct round *round, const struct rb_coll *coll)
{
    round->size = coll->size;
    round->frames = rb_alloc((size_t)coll->size * (size_t)coll->size);
}

static void restart_round(struct round *round)
{
    memset(round->frames, 0, (size_t)round->size * (size_t)round->size);
}

static int check_ranks(const struct rb_coll *coll, int from, int to, struct rb_why *why)
{
    if (from >= 0 && to >= 0 && from < coll->size && to < coll->size)
        return 0;
    return rb_why_set(why, RB_EINVAL, "a move from rank %d to rank %d of %d", from, to, coll->size);
}

static void add_move(struct rb_coll *coll, uint64_t tag, const struct rb_coll_move *move)
{
    struct rb_frame frame = {RB_FRAME_MESSAGE, tag, move->size};

    if (move->from == move->to)
        return;
    if (move->from == coll->rank)
        rb_progress_offer(coll, move->to, frame, move->bytes, move->size, NULL);
    else if (move->to == coll->rank)
        rb_progress_receive(coll, move->from, frame, move->bytes, move->size);
}

int rb_coll_move(struct rb_coll *coll, uint64_t tag, const struct rb_coll_move *moves, size_t n,
                 struct rb_why *why)
{
    struct round round;
    int err = rb_progress_begin(coll, why);

    open_round(&round, coll);
    for (size_t i = 0; !err && i < n; i++) {
        err = check_ranks(coll, moves[i].from, moves[i].to, why);
        if (!err && is_full(&round, moves[i].from, moves[i].to)) {
            err = rb_progress_run(coll, why);
            if (!err)
                err = rb_progress_begin(coll, why);
            restart_round(&round);
        }
        if (!err) {
            add_move(coll, tag, &moves[i]);
            count(&round, moves[i].from, moves[i].to);
        }
    }
    free(round.frames);
    return err ? err : rb_progress_run(coll, why);
}
