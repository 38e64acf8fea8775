/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank's microbatches are added to, and how all ranks' sums come to the ranks that hold
 * them. */
#include "worker/step/attempt.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/stages/lap.h"
#include "worker/step/views.h"
#include "worker/tag.h"

#include <stdlib.h>
#include <string.h>

/* ---- Whose sums -----------------------------------------------------------------------------*/

/* What is summed up at once. */
struct part {
    size_t first, count;
};

/* The part, cut by the ranks that are to have it; where there are stages, also by the ranks that
 * have summands of it.  The caller frees the result. */
static struct rb_coll_range *ranges_of(const struct rb_attempt *attempt, struct part part,
                                       size_t *ret_n)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_placement *placement = &configuration->placement;
    struct rb_coll_range *held = rb_alloc(rb_placement_most(placement) * sizeof *held), *cut = NULL;

    *ret_n = rb_placement_ranges(placement, part.first, part.count, held);
    if (!configuration->stage)
        return held;
    *ret_n =
        rb_stage_ranges(configuration->stage, attempt->step->model->message, held, *ret_n, &cut);
    free(held);
    return cut;
}

/* The only rank that sends summands; -1: none does, or several do. */
static int lone_sender(const struct rb_coll_range *range, uint32_t ranks)
{
    int found = -1;

    for (uint32_t r = 0; range->from && r < ranks; r++)
        if (range->from[r]) {
            if (found >= 0)
                return -1;
            found = (int)r;
        }
    return found;
}

bool rb_attempt_alone(const struct rb_attempt *attempt)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    size_t n;
    RB_CLEANUP(rb_freep) struct rb_coll_range *ranges = NULL;
    bool alone = true;

    if (configuration->size == 1)
        return true;
    if (!configuration->stage || !configuration->placement.sharded || attempt->laps)
        return false;
    ranges = ranges_of(attempt,
                       (struct part){0, (size_t)attempt->step->model->message->state_elements}, &n);
    for (size_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < configuration->size; r++)
            alone &= !ranges[i].from[r] || (int)r == ranges[i].rank;
    return alone;
}

/* ---- Before and behind them -----------------------------------------------------------------*/

/* Where several contributions are pieces of a variable, none of them is the first of the whole. */
static void clear_pieced(struct rb_model *model, const struct rb_stage *stage)
{
    for (size_t v = 0; v < model->message->n_variables; v++) {
        const Rb__Variable *variable = model->message->variables[v];

        if (!stage->pieced[v])
            continue;
        rb_device_clear(model->device, model->local + variable->offset,
                        (size_t)variable->elements * sizeof *model->local);
        model->fresh[v] = false;
    }
}

/* A rank that alone makes its sums takes them as they are (rb_attempt_close_sums): each attempt
 * starts in the same array, and the other array, in which other attempts may have left something,
 * takes no memory.  empty: the array that takes none already, or NULL: asking the kernel again may
 * take longer than a step. */
static void start_alone(struct rb_model *model, const int32_t *empty)
{
    int32_t *other = model->local;

    model->local = model->reduced;
    model->reduced = other;
    if (rb_device_sparse(model->device) && empty != model->reduced)
        rb_device_discard(model->device, model->reduced,
                          (size_t)model->message->state_elements * sizeof *model->reduced);
    model->empty = model->reduced;
}

void rb_attempt_open_sums(struct rb_attempt *attempt, const int32_t *empty)
{
    struct rb_model *model = attempt->step->model;
    const struct rb_stage *stage = attempt->step->configuration->stage;
    size_t variables = model->message->n_variables;

    if (attempt->alone)
        start_alone(model, empty);
    memset(model->fresh, true, variables * sizeof *model->fresh);
    rb_device_discard(model->device, model->largest, variables * sizeof *model->largest);
    rb_device_discard(model->device, model->overflow, variables * sizeof *model->overflow);
    if (stage && stage->split)
        clear_pieced(model, stage);
}

/* Local sums that are the whole sums are not kept for another attempt. */
void rb_attempt_close_sums(struct rb_attempt *attempt)
{
    struct rb_model *model = attempt->step->model;
    int32_t *sums = model->local;

    if (!attempt->alone)
        return;
    model->local = model->reduced;
    model->reduced = sums;
}

/* ---- From all ranks -------------------------------------------------------------------------*/

/* To the ranks that hold them: each rank's `reduced` is then whole in the blocks that it holds. */
static int sum_ranges(struct rb_attempt *attempt, uint64_t tag, struct part part,
                      struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;
    size_t n;
    RB_CLEANUP(rb_freep) struct rb_coll_range *ranges = ranges_of(attempt, part, &n);

    return rb_coll_sum_ranges(configuration->coll, tag, model->local, model->reduced, ranges, n,
                              why);
}

static bool is_over(void *context)
{
    const struct rb_step *step = context;

    return atomic_load(step->stop) || rb_coll_over(step->configuration->coll);
}

/* Through the host, to all ranks or to those that hold the sums. */
static int sum_by_links(struct rb_attempt *attempt, uint64_t tag, struct part part,
                        struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;
    int err;

    rb_device_pull(model->device, model->local + part.first, part.count * sizeof *model->local);
    err = rb_device_check(model->device, why);
    if (!err && (configuration->placement.sharded || configuration->stage))
        err = sum_ranges(attempt, tag, part, why);
    else if (!err)
        err = rb_coll_sum(configuration->coll, tag, model->local + part.first,
                          model->reduced + part.first, part.count, why);
    if (!err)
        rb_device_push(model->device, model->reduced + part.first,
                       part.count * sizeof *model->reduced);
    return err;
}

/* What a circle is asked for. */
struct asked {
    struct rb_circle_range *ranges;
    struct rb_circle_move *moves;
    size_t n_ranges, n_moves;
};

/* Where a stage has one rank, its summands are the sum, and only have to be moved to the holder. */
static void ask(const struct rb_attempt *attempt, const struct rb_coll_range *range,
                struct asked *asked)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_model *model = attempt->step->model;
    int sender = lone_sender(range, configuration->size), self = (int)configuration->rank;
    struct rb_circle_move move = {sender, range->rank, NULL, range->count * sizeof *model->local};

    if (sender < 0 || range->rank == RB_COLL_ALL) {
        asked->ranges[asked->n_ranges++] = (struct rb_circle_range){
            sender < 0 ? RB_CIRCLE_ALL : sender,
            range->rank == RB_COLL_ALL ? RB_CIRCLE_ALL : range->rank, range->first, range->count};
        return;
    }
    if (sender == self)
        move.memory = model->local + range->first;
    else if (range->rank == self)
        move.memory = model->reduced + range->first;
    if (sender == self && range->rank == self)
        rb_device_copy(model->device, model->reduced + range->first, move.memory, move.bytes);
    else if (sender != range->rank)
        asked->moves[asked->n_moves++] = move;
}

/* From device to device, to the same ranks. */
static int sum_by_circle(struct rb_attempt *attempt, struct part part, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    RB_CLEANUP(rb_freep) struct rb_coll_range *sums = NULL;
    RB_CLEANUP(rb_freep) struct rb_circle_range *ranges = NULL;
    RB_CLEANUP(rb_freep) struct rb_circle_move *moves = NULL;
    struct rb_model *model = attempt->step->model;
    void *step = (void *)(uintptr_t)attempt->step;
    struct asked asked;
    size_t n;
    int err;

    /* Other ranks come here only after they have received what this rank has posted to them, and a
     * circle sends no posts. */
    err = configuration->stage ? rb_coll_flush(configuration->coll, why) : 0;
    if (err)
        return err;
    sums = ranges_of(attempt, part, &n);
    ranges = rb_alloc((n + 1) * sizeof *ranges);
    moves = rb_alloc((n + 1) * sizeof *moves);
    asked = (struct asked){ranges, moves, 0, 0};
    for (size_t i = 0; i < n; i++)
        ask(attempt, &sums[i], &asked);
    if (asked.n_ranges)
        err = rb_circle_sum(configuration->circle, model->local, model->reduced, ranges,
                            asked.n_ranges, is_over, step, why);
    if (!err && asked.n_moves)
        err = rb_circle_move(configuration->circle, moves, asked.n_moves, is_over, step, why);
    return err;
}

/* May sums stay where they are?  All ranks come to the same. */
static bool may_view(const struct rb_attempt *attempt)
{
    const struct rb_configuration *configuration = attempt->step->configuration;

    return configuration->size > 1 && configuration->size <= RB_VIEWS_RANKS &&
           !configuration->stage && !configuration->placement.sharded &&
           rb_device_sparse(attempt->step->model->device);
}

/* model->apart: the sums do stay. */
static int look_at_others(struct rb_attempt *attempt, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;

    return may_view(attempt) ? rb_views_find(model, configuration->coll, configuration->number,
                                             &model->apart, why)
                             : 0;
}

/* Zeros where no microbatch of this rank has added anything.  Pages that other ranks view are not
 * given back: each read would bring a page again. */
static void clear_fresh(struct rb_model *model)
{
    void (*zero)(struct rb_device *, void *, size_t) =
        model->apart ? rb_device_clear : rb_device_discard;

    for (size_t v = 0; v < model->message->n_variables; v++) {
        const Rb__Variable *variable = model->message->variables[v];

        if (model->fresh[v] && variable->role != RB__VARIABLE__ROLE__FIXED)
            zero(model->device, model->local + variable->offset,
                 (size_t)variable->elements * sizeof *model->local);
        model->fresh[v] = false;
    }
}

/* Where this rank is to have the sum of several other ranks, links and circles add their summands
 * to its own.  In the filters of others it has no summands; but where a variable has some of its
 * own filters, the rows of the others may hold anything: say, what they held when they were its
 * own. */
static void clear_others(struct rb_attempt *attempt)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;
    size_t n;
    RB_CLEANUP(rb_freep)
    struct rb_coll_range *ranges =
        ranges_of(attempt, (struct part){0, (size_t)model->message->state_elements}, &n);

    for (size_t i = 0; i < n; i++)
        if (lone_sender(&ranges[i], configuration->size) < 0 &&
            !ranges[i].from[configuration->rank])
            rb_device_clear(model->device, model->local + ranges[i].first,
                            ranges[i].count * sizeof *model->local);
}

/* What goes with a bucket.  The buckets of a stage, of a part of the filters and of a shard lie
 * behind each other: bucket by bucket, all ranks would send to one, or one to all.  There
 * everything is summed up with the first bucket, and each rank sends while it receives. */
static struct part part_of(const struct rb_attempt *attempt, uint32_t bucket)
{
    const Rb__Model *message = attempt->step->model->message;
    const struct rb_configuration *configuration = attempt->step->configuration;

    if (!configuration->stage && !configuration->placement.sharded)
        return (struct part){(size_t)message->buckets[bucket]->first,
                             (size_t)message->buckets[bucket]->count};
    return (struct part){0, bucket ? 0 : (size_t)message->state_elements};
}

int rb_attempt_reduce(struct rb_attempt *attempt, uint32_t bucket, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct part part = part_of(attempt, bucket);
    uint64_t tag = rb_tag(RB_TAG_REDUCE, model->state.level, attempt->number, bucket);
    int err = rb_attempt_say(attempt, why);

    err = err ? err : rb_configuration_settle(configuration, why);
    if (err)
        return err;
    if (attempt->laps)
        return rb_lap_share(model, configuration, bucket, why);
    rb_fault("worker.reduce");
    err = look_at_others(attempt, why);
    clear_fresh(model);
    if (part.count && !attempt->alone && configuration->stage && configuration->stage->split)
        clear_others(attempt);
    /* A rank that alone makes its sums has complete ones: see rb_attempt_close_sums. */
    if (!err && part.count && !attempt->alone && configuration->circle)
        err = sum_by_circle(attempt, part, why);
    else if (!err && part.count && !attempt->alone && !model->apart)
        err = sum_by_links(attempt, tag, part, why);
    rb_fault("worker.reduced");
    return err;
}
