/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step.  Pure: of the step alone, whatever the devices did.
 *
 * Model.optimizer, step > [rate] > update
 *
 * Steps count from 1.  Up to `warmup` the rate climbs in equal parts: lr * step / warmup.  From its
 * top at step max(warmup, 1) it stays (constant), or falls to lr * minRatio at the last step: in a
 * straight line (linear), or as lr * (r + (1 - r) * (1 + cos(pi p)) / 2) (cosine), p being the part
 * of the way done; what PyTorch's LambdaLR gives for these formulas. */
#ifndef RB_WORKER_STEP_RATE_H
#define RB_WORKER_STEP_RATE_H

#include "plan.pb-c.h"

#include <stdint.h>

double rb_rate_at(const Rb__Optimizer *optimizer, int64_t steps, int64_t step);

#endif
