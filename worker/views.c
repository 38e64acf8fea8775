/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/views.h"

#include "base/arena.h"
#include "coll/add.h"
#include "worker/step.h"

#include <stdatomic.h>
#include <stdlib.h>

struct rb_views {
    uint32_t number; /* of the configuration */
    bool all;
    struct rb_coll_view sums[RB_VIEWS_RANKS]; /* by rank; none of our own */
    int32_t *room;                            /* for a block */
};

/* Behind the sums. */
static _Atomic uint64_t *word_of(const void *sums, const struct rb_model *model)
{
    return (_Atomic uint64_t *)((uintptr_t)sums + rb_model_sums_bytes(model) - RB_MODEL_SUMS_END);
}

static size_t largest_block(const Rb__Model *message)
{
    size_t most = 0;

    for (size_t b = 0; b < message->n_blocks; b++)
        if (message->blocks[b]->count > most)
            most = message->blocks[b]->count;
    return most;
}

int rb_views_find(struct rb_model *model, struct rb_coll *coll, uint32_t number, bool *ret_all,
                  struct rb_why *why)
{
    struct rb_views *views = model->views;
    int err = 0;

    if (!views) {
        views = model->views = rb_alloc(sizeof *views);
        views->number = number;
        views->room = rb_alloc(largest_block(model->message) * sizeof *views->room);
        err = rb_coll_show(coll, rb_tag(RB_TAG_VIEWS, number, 0, 0),
                           rb_device_shown(model->device, model->local), rb_model_sums_bytes(model),
                           views->sums, &views->all, why);
    }
    *ret_all = !err && views->all;
    return err;
}

void rb_views_free(struct rb_views *views)
{
    if (!views)
        return;
    for (int r = 0; r < RB_VIEWS_RANKS; r++)
        rb_coll_view_done(&views->sums[r]);
    free(views->room);
    free(views);
}

/* Nobody sees a sum of the new attempt and the old word behind it. */
void rb_views_begin(struct rb_model *model, uint64_t word, uint32_t number)
{
    model->word = word;
    model->apart = false;
    if (rb_device_sparse(model->device)) {
        atomic_store(word_of(model->local, model), word);
        atomic_thread_fence(memory_order_seq_cst);
    }
    if (model->views && model->views->number != number)
        rb_views_free(RB_TAKE(model->views));
}

static void sum(const struct rb_model *model, const Rb__Block *block, int32_t *to)
{
    const int32_t *so_far = model->local + block->first;

    for (int r = 0; r < RB_VIEWS_RANKS; r++) {
        const int32_t *sums = model->views->sums[r].memory;

        if (!sums)
            continue;
        rb_add(to, so_far, (const uint8_t *)(sums + block->first), block->count);
        so_far = to;
    }
}

const int32_t *rb_views_block(const struct rb_model *model, const Rb__Block *block)
{
    sum(model, block, model->views->room);
    return model->views->room;
}

void rb_views_reduce(struct rb_model *model)
{
    for (size_t b = 0; b < model->message->n_blocks; b++)
        sum(model, model->message->blocks[b], model->reduced + model->message->blocks[b]->first);
}

int rb_views_check(const struct rb_model *model, struct rb_why *why)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int r = 0; r < RB_VIEWS_RANKS; r++) {
        const void *sums = model->views->sums[r].memory;

        if (sums && atomic_load(word_of(sums, model)) != model->word)
            return rb_why_set(why, RB_EINTERNAL,
                              "rank %d has changed its sums while this one read them", r);
    }
    return 0;
}
