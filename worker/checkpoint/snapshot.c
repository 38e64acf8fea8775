/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/snapshot.h"

#include "base/arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*   COPIED --begin--> TO_COPY --claimed--> COPYING --copied--> COPIED */
enum progress { COPIED, TO_COPY, COPYING };

struct rb_snapshot {
    const struct rb_state *state;
    const Rb__Model *model;
    struct rb_state copy;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint8_t *blocks; /* enum progress of each */
};

struct rb_snapshot *rb_snapshot_new(const struct rb_state *state, const Rb__Model *model)
{
    struct rb_snapshot *snapshot = rb_alloc(sizeof *snapshot);

    *snapshot = (struct rb_snapshot){
        .state = state,
        .model = model,
        .copy = {.level = -1},
        .blocks = rb_alloc(state->blocks + 1),
    };
    pthread_mutex_init(&snapshot->lock, NULL);
    pthread_cond_init(&snapshot->changed, NULL);
    return snapshot;
}

void rb_snapshot_free(struct rb_snapshot *snapshot)
{
    if (!snapshot)
        return;
    rb_state_done(&snapshot->copy);
    pthread_cond_destroy(&snapshot->changed);
    pthread_mutex_destroy(&snapshot->lock);
    free(snapshot->blocks);
    free(snapshot);
}

int rb_snapshot_reserve(struct rb_snapshot *snapshot, struct rb_why *why)
{
    struct rb_state *copy = &snapshot->copy;
    int err;

    if (copy->w)
        return 0;
    err = rb_state_open(snapshot->model, NULL, copy, why);
    for (int part = 0; !err && part < RB_STATE_PARTS; part++)
        if (rb_state_part(copy, part))
            memset(rb_state_part(copy, part), 0, copy->elements * sizeof(float));
    return err;
}

struct rb_state *rb_snapshot_copy(struct rb_snapshot *snapshot)
{
    return snapshot->copy.w ? &snapshot->copy : NULL;
}

void rb_snapshot_begin(struct rb_snapshot *snapshot)
{
    rb_state_copy_counters(&snapshot->copy, snapshot->state);
    memcpy(snapshot->copy.held, snapshot->state->held, snapshot->state->blocks);
    snapshot->copy.torn = snapshot->state->torn;
    pthread_mutex_lock(&snapshot->lock);
    memset(snapshot->blocks, TO_COPY, snapshot->state->blocks);
    pthread_mutex_unlock(&snapshot->lock);
}

/* The thread that comes first copies the block; the other waits for it. */
void rb_snapshot_keep(struct rb_snapshot *snapshot, size_t block)
{
    bool ours;

    pthread_mutex_lock(&snapshot->lock);
    while (snapshot->blocks[block] == COPYING)
        pthread_cond_wait(&snapshot->changed, &snapshot->lock);
    ours = snapshot->blocks[block] == TO_COPY;
    if (ours)
        snapshot->blocks[block] = COPYING;
    pthread_mutex_unlock(&snapshot->lock);
    if (!ours)
        return;
    rb_state_copy_block(&snapshot->copy, snapshot->state, snapshot->model->blocks[block],
                        snapshot->copy.held[block]);
    pthread_mutex_lock(&snapshot->lock);
    snapshot->blocks[block] = COPIED;
    pthread_cond_broadcast(&snapshot->changed);
    pthread_mutex_unlock(&snapshot->lock);
}

void rb_snapshot_complete(struct rb_snapshot *snapshot)
{
    memcpy(snapshot->copy.fixed, snapshot->state->fixed, snapshot->state->fixed_bytes);
    for (size_t b = 0; b < snapshot->state->blocks; b++)
        rb_snapshot_keep(snapshot, b);
}
