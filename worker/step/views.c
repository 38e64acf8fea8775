/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/views.h"

#include "base/arena.h"
#include "coll/add.h"
#include "worker/tag.h"

#include <stdatomic.h>
#include <stdlib.h>

struct rb_views {
    uint32_t number; /* of the configuration */
    bool all;
    struct rb_coll_view sums[RB_VIEWS_RANKS]; /* by rank; none of our own */
};

/* Behind the sums. */
static _Atomic uint64_t *word_of(const void *sums, const struct rb_model *model)
{
    return (_Atomic uint64_t *)((uintptr_t)sums + rb_model_sums_bytes(model) - RB_MODEL_SUMS_END);
}

int rb_views_find(struct rb_model *model, struct rb_coll *coll, uint32_t number, bool *ret_all,
                  struct rb_why *why)
{
    struct rb_views *views = model->views;
    int err = 0;

    if (!views) {
        views = model->views = rb_alloc(sizeof *views);
        views->number = number;
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
    free(views);
}

/* No reader sees a sum of the new attempt with the old word behind it. */
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

/* Our own come first. */
struct rb_sums rb_views_block(const struct rb_model *model, const Rb__Block *block)
{
    struct rb_sums sums = rb_sums_of(model->local + block->first);

    for (int r = 0; r < RB_VIEWS_RANKS; r++) {
        const int32_t *shown = model->views->sums[r].memory;

        if (shown)
            sums.parts[sums.n_parts++] = shown + block->first;
    }
    return sums;
}

/* Block by block, so that what is written stays in the cache until the last part is added. */
void rb_views_reduce(struct rb_model *model)
{
    for (size_t b = 0; b < model->message->n_blocks; b++) {
        const Rb__Block *block = model->message->blocks[b];
        struct rb_sums sums = rb_views_block(model, block);
        int32_t *reduced = model->reduced + block->first;
        const int32_t *so_far = sums.parts[0];

        for (int part = 1; part < sums.n_parts; part++) {
            rb_add(reduced, so_far, (const uint8_t *)sums.parts[part], block->count);
            so_far = reduced;
        }
    }
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
