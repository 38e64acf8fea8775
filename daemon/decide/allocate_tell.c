/* SPDX-License-Identifier: Apache-2.0 */
/* What a job that waits for devices is told: how many are free, which jobs have the others, and
 * which devices it leaves alone. */
#include "daemon/decide/allocate_inside.h"

#include "base/buffer.h"
#include "base/clock.h"

#include <inttypes.h>
#include <string.h>

/* "; gpt has a:1, a:2", for one of the others. */
static void tell_holder(struct rb_pool *pool, const struct rb_job_facts *job,
                        const struct rb_job_facts *other, struct rb_buffer *text)
{
    enum { TOLD = 8 };
    size_t told = 0;
    bool foreign;

    for (size_t s = 0; s < pool->n; s++) {
        const struct rb_slot *slot = &pool->slots[s];

        if (!slot->holder || strcmp(slot->holder, other->id) != 0 ||
            !rb_pool_fits(job, slot, &foreign) || ++told > TOLD + 1)
            continue;
        rb_buffer_text(text, told == 1 ? "; " : ", ");
        if (told == 1)
            rb_buffer_format(text, "%s has ", other->job.job->name);
        if (told > TOLD)
            rb_buffer_text(text, "and more");
        else
            rb_buffer_format(text, "%s:%" PRIu32, slot->node->name, slot->device->index);
    }
}

/* Nodes with devices that would serve the job, and that it may not have. */
static void tell_closed(struct rb_pool *pool, const struct rb_job_facts *job,
                        struct rb_buffer *text)
{
    const Rb__Node *last = NULL;
    bool foreign;

    for (size_t s = 0; s < pool->n; s++) {
        const struct rb_slot *slot = &pool->slots[s];
        const struct rb_fact *cordon = rb_fact_find(&pool->facts->cordons, slot->node->name);

        if (!slot->closed || slot->node == last || !rb_pool_fits(job, slot, &foreign))
            continue;
        if (!slot->node->leaving && !cordon) {
            rb_buffer_format(text, "; %s:%" PRIu32 " is sick", slot->node->name,
                             slot->device->index);
            continue;
        }
        last = slot->node;
        rb_buffer_format(text, "; node %s is %s", last->name,
                         last->leaving                     ? "leaving"
                         : cordon && cordon->cordon->drain ? "drained"
                                                           : "cordoned");
    }
}

/* Free devices that have failed the job. */
static void tell_blamed(struct rb_pool *pool, const struct rb_job_facts *job,
                        struct rb_buffer *text)
{
    bool foreign;

    for (size_t s = 0; s < pool->n; s++) {
        const struct rb_slot *slot = &pool->slots[s];
        uint64_t until = rb_pool_blamed_until(pool, job, slot->node->name, slot->device->index);
        char clock[RB_CLOCK_TEXT];

        if (until && !slot->holder && !slot->closed && rb_pool_fits(job, slot, &foreign))
            rb_buffer_format(text, "; %s:%" PRIu32 " failed it and is tried again at %s",
                             slot->node->name, slot->device->index, rb_clock_text(until, clock));
    }
}

void rb_pool_tell_taken(struct rb_pool *pool, const struct rb_claimant *claimant)
{
    const struct rb_job_facts *job = claimant->job;
    struct rb_buffer text = {0};

    for (size_t j = 0; j < pool->facts->n_jobs; j++)
        if (&pool->facts->jobs[j] != job && pool->facts->jobs[j].job.message)
            tell_holder(pool, job, &pool->facts->jobs[j], &text);
    tell_closed(pool, job, &text);
    tell_blamed(pool, job, &text);
    if (text.size)
        claimant->share->taken = rb_arena_string(pool->arena, text.data);
    rb_buffer_done(&text);
}

const char *rb_share_reason(const struct rb_share *share, const struct rb_job_facts *job,
                            uint32_t devices, struct rb_arena *arena)
{
    const char *s = devices == 1 ? "" : "s";

    if (share->needs && share->needs_foreign)
        return rb_arena_format(arena,
                               "waits for a device of numeric class %s on node %s, which holds its "
                               "state: what is there would give other bits",
                               job->job.job->numeric_class, share->needs);
    if (share->needs)
        return rb_arena_format(arena, "waits for a device of node %s, which holds its state%s%s",
                               share->needs, share->needs_gone ? " and is not there" : "",
                               share->taken);
    if (!share->fitting && share->foreign)
        return rb_arena_format(arena,
                               "waits for %" PRIu32 " device%s of numeric class %s: the %zu here "
                               "would give other bits",
                               devices, s, job->job.job->numeric_class, share->foreign);
    if (!share->fitting)
        return rb_arena_format(arena, "waits for %" PRIu32 " device%s: none is there", devices, s);
    return rb_arena_format(arena, "waits for %" PRIu32 " device%s: %zu of %zu %s free%s", devices,
                           s, share->free, share->fitting, share->free == 1 ? "is" : "are",
                           share->taken);
}
