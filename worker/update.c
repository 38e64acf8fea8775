/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update.h"

#include "base/fault.h"
#include "worker/feed.h"
#include "worker/rate.h"
#include "worker/window.h"

#include <math.h>

/* What PyTorch's clip_grad_norm_ adds to the norm. */
static const double clip_epsilon = 1e-6;

static const Rb__Variable *variable_of(const Rb__Model *message, const Rb__Block *block)
{
    return message->variables[block->variable];
}

/* Of the gradient of a block, for the norm: statistics are none. */
static double squares_of(const struct rb_model *model, const Rb__Block *block, double scale)
{
    if (variable_of(model->message, block)->role != RB__VARIABLE__ROLE__TRAINED)
        return 0;
    return rb_fixed_squares(model->device, model->reduced + block->first, (size_t)block->count,
                            model->exponents[block->variable].exponent, scale);
}

static double norm_of(const struct rb_model *model, double scale)
{
    double squares = 0;

    for (size_t i = 0; i < model->message->n_blocks; i++)
        squares += squares_of(model, model->message->blocks[i], scale);
    return sqrt(squares);
}

static void apply_adamw(struct rb_model *model, const struct rb_update_terms *terms,
                        const Rb__Block *block)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    struct rb_state *state = &model->state;
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
                   state->v + block->first, model->reduced + block->first, (size_t)block->count,
                   model->exponents[block->variable].exponent, terms->scale, &how);
}

static void apply_sgd(struct rb_model *model, const struct rb_update_terms *terms,
                      const Rb__Block *block)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    struct rb_state *state = &model->state;
    struct rb_sgd how = {
        .lr = (float)terms->lr,
        .momentum = (float)optimizer->momentum,
        .weight_decay =
            variable_of(model->message, block)->decay ? (float)optimizer->weight_decay : 0,
        .nesterov = optimizer->nesterov != 0,
        .first = terms->applied == 0,
    };

    rb_apply_sgd(model->device, state->w + block->first, state->m ? state->m + block->first : NULL,
                 model->reduced + block->first, (size_t)block->count,
                 model->exponents[block->variable].exponent, terms->scale, &how);
}

void rb_update_block(struct rb_model *model, const struct rb_update_terms *terms,
                     const Rb__Block *block)
{
    const Rb__Variable *variable = variable_of(model->message, block);

    if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
        rb_apply_statistic(model->device, model->state.w + block->first,
                           model->reduced + block->first, (size_t)block->count,
                           model->exponents[block->variable].exponent,
                           rb_exponent_keep(variable->momentum, model->microbatches));
    else if (model->message->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW)
        apply_adamw(model, terms, block);
    else
        apply_sgd(model, terms, block);
    rb_fault("worker.update");
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

struct rb_update rb_update_commit(struct rb_model *model, const struct rb_vote_decision *decision)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;
    double mean = 1 / (double)decision->count, clip = 1, squares = 0;
    bool clips = message->optimizer->clip_norm > 0;
    struct rb_update update = {
        .grad_norm = clips ? norm_of(model, mean) : 0,
        .lr = rb_rate_at(message->optimizer, message->steps, state->level + 1),
    };
    struct rb_update_terms terms = {.lr = update.lr, .applied = state->applied};

    if (clips)
        clip = message->optimizer->clip_norm / (update.grad_norm + clip_epsilon);
    if (clip > 1)
        clip = 1;
    terms.scale = (float)(mean * clip);
    pthread_mutex_lock(&state->window->lock);
    for (size_t i = 0; i < message->n_blocks; i++) {
        if (!clips) /* the sums are read from memory once for both */
            squares += squares_of(model, message->blocks[i], mean);
        rb_update_block(model, &terms, message->blocks[i]);
    }
    advance(model);
    rb_feed_log(state->window, model, &terms, decision);
    pthread_mutex_unlock(&state->window->lock);
    if (!clips)
        update.grad_norm = sqrt(squares);
    return update;
}

struct rb_update rb_update_skip(struct rb_model *model, const struct rb_vote_decision *decision)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;

    pthread_mutex_lock(&state->window->lock);
    state->not_finite = decision->not_finite ? state->not_finite + 1 : 0;
    state->level++;
    rb_feed_log(state->window, model, NULL, decision);
    pthread_mutex_unlock(&state->window->lock);
    return (struct rb_update){
        .lr = rb_rate_at(message->optimizer, message->steps, state->level),
    };
}
