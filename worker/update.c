/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update.h"

#include "worker/rate.h"

#include <math.h>

/* What PyTorch's clip_grad_norm_ adds to the norm. */
static const double clip_epsilon = 1e-6;

static const Rb__Variable *variable_of(const Rb__Model *message, const Rb__Block *block)
{
    return message->variables[block->variable];
}

static double norm_of(const struct rb_model *model, double scale)
{
    const Rb__Model *message = model->message;
    double squares = 0;

    for (size_t i = 0; i < message->n_blocks; i++) {
        const Rb__Block *block = message->blocks[i];

        if (variable_of(message, block)->role == RB__VARIABLE__ROLE__TRAINED)
            squares +=
                rb_fixed_squares(model->device, model->reduced + block->first, (size_t)block->count,
                                 model->exponents[block->variable].exponent, scale);
    }
    return sqrt(squares);
}

static void apply_adamw(struct rb_model *model, const Rb__Block *block, float scale, double lr)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    struct rb_state *state = &model->state;
    uint64_t t = (uint64_t)state->applied + 1;
    struct rb_adamw how = {
        .lr = (float)lr,
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
                   model->exponents[block->variable].exponent, scale, &how);
}

static void apply_sgd(struct rb_model *model, const Rb__Block *block, float scale, double lr)
{
    const Rb__Optimizer *optimizer = model->message->optimizer;
    struct rb_state *state = &model->state;
    struct rb_sgd how = {
        .lr = (float)lr,
        .momentum = (float)optimizer->momentum,
        .weight_decay =
            variable_of(model->message, block)->decay ? (float)optimizer->weight_decay : 0,
        .nesterov = optimizer->nesterov != 0,
        .first = state->applied == 0,
    };

    rb_apply_sgd(model->device, state->w + block->first, state->m ? state->m + block->first : NULL,
                 model->reduced + block->first, (size_t)block->count,
                 model->exponents[block->variable].exponent, scale, &how);
}

static void apply_block(struct rb_model *model, const Rb__Block *block, float scale, double lr)
{
    const Rb__Variable *variable = variable_of(model->message, block);

    if (variable->role == RB__VARIABLE__ROLE__STATISTIC)
        rb_apply_statistic(model->device, model->state.w + block->first,
                           model->reduced + block->first, (size_t)block->count,
                           model->exponents[block->variable].exponent,
                           rb_exponent_keep(variable->momentum, model->microbatches));
    else if (model->message->optimizer->kind == RB__OPTIMIZER__KIND__ADAMW)
        apply_adamw(model, block, scale, lr);
    else
        apply_sgd(model, block, scale, lr);
}

struct rb_update rb_update_commit(struct rb_model *model, const struct rb_vote_decision *decision)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;
    double mean = 1 / (double)decision->count, clip = 1;
    struct rb_update update = {
        .grad_norm = norm_of(model, mean),
        .lr = rb_rate_at(message->optimizer, message->steps, state->level + 1),
    };

    if (message->optimizer->clip_norm > 0)
        clip = message->optimizer->clip_norm / (update.grad_norm + clip_epsilon);
    if (clip > 1)
        clip = 1;
    for (size_t i = 0; i < message->n_blocks; i++)
        apply_block(model, message->blocks[i], (float)(mean * clip), update.lr);
    for (size_t v = 0; v < message->n_variables; v++) {
        state->exponents[v] = model->exponents[v];
        rb_exponent_commit(&state->exponents[v], model->largest[v], model->limits[v]);
    }
    state->applied++;
    state->not_finite = 0;
    state->level++;
    return update;
}

struct rb_update rb_update_skip(struct rb_model *model, const struct rb_vote_decision *decision)
{
    const Rb__Model *message = model->message;
    struct rb_state *state = &model->state;

    state->not_finite = decision->not_finite ? state->not_finite + 1 : 0;
    state->level++;
    return (struct rb_update){
        .lr = rb_rate_at(message->optimizer, message->steps, state->level),
    };
}
