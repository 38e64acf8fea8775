/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/update.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/checkpoint/snapshot.h"
#include "worker/join/feed.h"
#include "worker/join/wire.h"
#include "worker/step/rate.h"
#include "worker/step/views.h"
#include "worker/state/window.h"

#include <math.h>
#include <stdlib.h>

/* What PyTorch's clip_grad_norm_ adds to the norm. */
static const double clip_epsilon = 1e-6;

static const Rb__Variable *variable_of(const Rb__Model *message, const Rb__Block *block)
{
    return message->variables[block->variable];
}

/* The square of the reduced sums of a block, for the norm, in which statistics have no part. */
static void take_square(struct rb_model *model, size_t b)
{
    const Rb__Block *block = model->message->blocks[b];

    if (variable_of(model->message, block)->role == RB__VARIABLE__ROLE__TRAINED)
        rb_fixed_squares(model->device, model->reduced + block->first, (size_t)block->count,
                         model->exponents[block->variable].exponent, 1, &model->squares[b]);
}

/* On the device, squares that were not taken stay zero. */
static void pull_squares(struct rb_model *model)
{
    rb_device_pull(model->device, model->squares,
                   model->message->n_blocks * sizeof *model->squares);
}

void rb_update_squares(struct rb_model *model, const uint32_t *primary, uint32_t rank)
{
    rb_device_discard(model->device, model->squares,
                      model->message->n_blocks * sizeof *model->squares);
    for (size_t b = 0; b < model->message->n_blocks; b++)
        if (!primary || primary[b] == rank)
            take_square(model, b);
    pull_squares(model);
}

/* Added in index order, whichever rank computed them; the mean comes last, so that it rounds in one
 * place. */
static double norm_of(const struct rb_model *model, double mean)
{
    double squares = 0;

    for (size_t i = 0; i < model->message->n_blocks; i++)
        squares += model->squares[i];
    return sqrt(squares) * mean;
}

static void apply_adamw(struct rb_model *model, struct rb_state *state, struct rb_sums sums,
                        const struct rb_update_terms *terms, const Rb__Block *block,
                        double *ret_squares)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    uint64_t t = (uint64_t)terms->applied + 1;
    struct rb_adamw how = {
        .lr = (float)terms->lr,
        .beta1 = (float)optimizer->beta1,
        .beta2 = (float)optimizer->beta2,
        .eps = (float)optimizer->eps,
        .weight_decay =
            variable_of(model->message, block)->decay ? (float)optimizer->weight_decay : 0,
        .correction1 = (float)(1 - rb_exponent_power(optimizer->beta1, t)),
        .correction2 = (float)(1 - rb_exponent_power(optimizer->beta2, t)),
    };

    rb_apply_adamw(model->device, state->w + block->first, state->m + block->first,
                   state->v + block->first, sums, (size_t)block->count,
                   model->exponents[block->variable].exponent, terms->scale, &how, ret_squares);
}

static void apply_sgd(struct rb_model *model, struct rb_state *state, struct rb_sums sums,
                      const struct rb_update_terms *terms, const Rb__Block *block,
                      double *ret_squares)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    struct rb_sgd how = {
        .lr = (float)terms->lr,
        .momentum = (float)optimizer->momentum,
        .weight_decay =
            variable_of(model->message, block)->decay ? (float)optimizer->weight_decay : 0,
        .nesterov = optimizer->nesterov != 0,
        .first = terms->applied == 0,
    };

    rb_apply_sgd(model->device, state->w + block->first, state->m ? state->m + block->first : NULL,
                 sums, (size_t)block->count, model->exponents[block->variable].exponent,
                 terms->scale, &how, ret_squares);
}

/* sums: of the block.  ret_squares: as of rb_apply_sgd; statistics have none. */
static void update_block(struct rb_model *model, struct rb_state *state, struct rb_sums sums,
                         const struct rb_update_terms *terms, const Rb__Block *block,
                         double *ret_squares)
{
    const Rb__Variable *variable = variable_of(model->message, block);

    if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
        rb_apply_statistic(model->device, state->w + block->first, sums, (size_t)block->count,
                           model->exponents[block->variable].exponent,
                           rb_exponent_keep(variable->momentum, model->microbatches));
    else if (model->message->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW)
        apply_adamw(model, state, sums, terms, block, ret_squares);
    else
        apply_sgd(model, state, sums, terms, block, ret_squares);
    rb_fault("worker.update");
}

void rb_update_block(struct rb_model *model, struct rb_state *state, const int32_t *sums,
                     const struct rb_update_terms *terms, const Rb__Block *block)
{
    update_block(model, state, rb_sums_of(sums), terms, block, NULL);
}

double rb_update_clip(const Rb__Optimizer *optimizer, double norm)
{
    double clip = optimizer->clip_norm > 0 ? optimizer->clip_norm / (norm + clip_epsilon) : 1;

    return clip < 1 ? clip : 1;
}

/* Counters and exponents at the next level. */
static void advance(struct rb_model *model)
{
    struct rb_state *state = &model->state;

    for (size_t v = 0; v < model->message->n_variables; v++) {
        state->exponents[v] = model->exponents[v];
        rb_exponent_commit(&state->exponents[v], model->largest[v], model->limits[v]);
    }
    state->applied++;
    state->not_finite = 0;
    state->level++;
}

/* reduced: model->reduced is whole. */
static struct rb_sums sums_of(const struct rb_model *model, const Rb__Block *block, bool reduced)
{
    return reduced ? rb_sums_of(model->reduced + block->first) : rb_views_block(model, block);
}

/* For a caller that goes through the sums more than once. */
static void reduce(struct rb_model *model, bool *reduced)
{
    if (!*reduced)
        rb_views_reduce(model);
    *reduced = true;
}

/* ret_squares (may be NULL): those of each block, where all are held. */
static void apply_held(struct rb_model *model, const struct rb_update_terms *terms, bool reduced,
                       double *ret_squares)
{
    const Rb__Model *message = model->message;
    struct rb_snapshot *snapshot = model->state.window->snapshot;

    for (size_t i = 0; i < message->n_blocks; i++) {
        const Rb__Block *block = message->blocks[i];

        if (snapshot)
            rb_snapshot_keep(snapshot, i);
        if (rb_held_follows(model->state.held[i]))
            update_block(model, &model->state, sums_of(model, block, reduced), terms, block,
                         ret_squares ? &ret_squares[i] : NULL);
        else
            model->state.torn = true;
    }
}

/* A rank that has the sums of this step, but not the vote, can be told this entry. */
static void note_entry(struct rb_model *model, const struct rb_update_terms *terms)
{
    rb_wire_entry_pack(model, terms, model->applied.entry);
    model->applied.level = model->state.level;
    model->applied.attempt = model->pending.attempt;
    model->applied.commit = terms != NULL;
    model->applied.row_bytes = 0;
    model->pending.level = -1;
}

struct rb_update rb_update_commit(struct rb_model *model, const struct rb_vote_decision *decision,
                                  bool squared)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;
    double mean = 1 / (double)decision->count, clip = 1;
    bool clips = message->optimizer->clip_norm > 0, late = !squared && !clips;
    bool reduced = !model->apart;
    struct rb_update update = {
        .lr = rb_rate_at(message->optimizer, message->steps, state->level + 1),
    };
    struct rb_update_terms terms = {.lr = update.lr, .applied = state->applied};

    if (clips)
        reduce(model, &reduced);
    if (!squared && clips)
        rb_update_squares(model, NULL, 0);
    if (!late)
        update.grad_norm = norm_of(model, mean);
    if (clips)
        clip = rb_update_clip(message->optimizer, update.grad_norm);
    terms.scale = (float)(mean * clip);
    pthread_mutex_lock(&state->window->lock);
    rb_model_settle(model);
    if (state->window->feed)
        reduce(model, &reduced);
    apply_held(model, &terms, reduced, late ? model->squares : NULL);
    advance(model);
    note_entry(model, &terms);
    rb_feed_log(state->window, model, &terms, decision);
    pthread_mutex_unlock(&state->window->lock);
    if (late) {
        pull_squares(model);
        update.grad_norm = norm_of(model, mean);
    }
    return update;
}

struct rb_update rb_update_skip(struct rb_model *model, const struct rb_vote_decision *decision)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;

    pthread_mutex_lock(&state->window->lock);
    rb_model_settle(model);
    state->not_finite = decision->not_finite ? state->not_finite + 1 : 0;
    state->level++;
    note_entry(model, NULL);
    rb_feed_log(state->window, model, NULL, decision);
    pthread_mutex_unlock(&state->window->lock);
    return (struct rb_update){
        .grad_norm = decision->not_finite ? (double)NAN : 0,
        .lr = rb_rate_at(message->optimizer, message->steps, state->level),
    };
}

int rb_update_apply(struct rb_model *model, const void *entry, bool commit, struct rb_why *why)
{
    size_t size = rb_state_counters_size(&model->state);
    RB_CLEANUP(rb_freep) void *counters = rb_alloc(size);
    struct rb_update_terms terms;
    int err = 0;

    rb_wire_entry_unpack(model, entry, &terms, counters);
    rb_model_settle(model);
    if (commit && model->apart) {
        rb_views_reduce(model);
        err = rb_views_check(model, why);
    }
    if (err)
        return err;
    if (commit)
        apply_held(model, &terms, true, NULL);
    rb_state_counters_unpack(&model->state, counters);
    note_entry(model, commit ? &terms : NULL);
    return 0;
}
