/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/rate.h"

#include <math.h>

double rb_rate_at(const Rb__Optimizer *optimizer, int64_t steps, int64_t step)
{
    int64_t top = optimizer->warmup > 1 ? optimizer->warmup : 1;
    double lr = optimizer->lr, least = optimizer->min_ratio, done = 1;

    if (step < top)
        return lr * (double)step / (double)top;
    if (steps > top)
        done = step >= steps ? 1 : (double)(step - top) / (double)(steps - top);
    else if (step == top)
        done = 0; /* a run no longer than its warm-up ends at the top */
    switch (optimizer->schedule) {
    case RB__OPTIMIZER__SCHEDULE__LINEAR:
        return lr * (1 - (1 - least) * done);
    case RB__OPTIMIZER__SCHEDULE__COSINE:
        return lr * (least + (1 - least) * 0.5 * (1 + cos(3.14159265358979323846 * done)));
    default:
        return lr;
    }
}
