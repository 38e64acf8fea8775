/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/pace.h"

#include <stdlib.h>
#include <string.h>

void rb_pace_note(struct rb_pace *pace, uint64_t ns, uint32_t microbatches)
{
    if (!microbatches)
        return;
    pace->ns[pace->at] = ns / microbatches;
    pace->at = (pace->at + 1) % RB_PACE_STEPS;
    pace->n += pace->n < RB_PACE_STEPS;
}

static int smaller_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

uint32_t rb_pace_us(const struct rb_pace *pace)
{
    uint64_t sorted[RB_PACE_STEPS], us;

    if (pace->n < RB_PACE_LEAST)
        return 0;
    memcpy(sorted, pace->ns, pace->n * sizeof *sorted);
    qsort(sorted, pace->n, sizeof *sorted, smaller_first);
    us = sorted[pace->n / 2] / 1000;
    return us < 1 ? 1 : us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}
