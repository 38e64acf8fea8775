/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: loss and accuracy over the held-out samples, the same bits at any device count.
 *
 * state at a level > [evaluate] > Row.eval_loss, eval_accuracy
 *
 * The samples are cut into chunks by the model alone; ranks take chunks in turn, and the results
 * are summed in the order of the chunks. */
#ifndef RB_WORKER_STEP_EVALUATE_H
#define RB_WORKER_STEP_EVALUATE_H

#include "worker/configuration.h"
#include "worker/model.h"

#include <stdatomic.h>

struct rb_evaluation {
    double loss;     /* mean over valid targets; NaN without one */
    double accuracy; /* part of the valid targets that were met */
    bool counted;    /* there is an accuracy */
};

int rb_evaluate(struct rb_model *model, const struct rb_configuration *configuration,
                const atomic_bool *stop, struct rb_evaluation *ret_evaluation, struct rb_why *why);

#endif
