/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/collect.h"

#include "base/arena.h"
#include "worker/carry.h"
#include "worker/tag.h"

#include <stdlib.h>

int rb_collect_run(const struct rb_model *model, const struct rb_configuration *configuration,
                   uint32_t to, struct rb_state *into, struct rb_why *why)
{
    const struct rb_placement *placement = &configuration->placement;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(placement->n_shards * RB_STATE_PARTS * sizeof *moves);
    size_t n = 0;
    int err;

    if (into)
        rb_state_copy(into, &model->state, model->message);
    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];

        if (!rb_placement_holds(placement, to, shard->first_block))
            n += rb_placement_move(into ? into : &model->state, shard->first, shard->count,
                                   shard->ranks[0], to, moves + n);
    }
    /* By the links: `into` may be the host's memory, and files are the host's. */
    err = rb_carry(model->device, configuration->coll, NULL,
                   rb_tag(RB_TAG_GATHER, model->state.level, 2, 0), moves, n, why);
    if (!err && into)
        rb_state_hold_all(into);
    return err ? rb_why_add(why, err, "collecting the state of level %lld",
                            (long long)model->state.level)
               : 0;
}
