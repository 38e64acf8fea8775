/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/state/exponent.h"

#include <math.h>
#include <string.h>

static const double decay = 0x1.ae89f995ad3adp-1; /* 2^-0.25 */

static double value_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

int32_t rb_exponent_limit(uint64_t summands)
{
    uint64_t limit = INT32_MAX / (summands ? summands : 1);

    return limit ? (int32_t)limit : 1;
}

static int unclamped(double largest, int32_t limit)
{
    int magnitude, room = 0;

    frexp(largest, &magnitude); /* largest < 2^magnitude */
    while ((INT64_C(2) << room) <= (int64_t)limit + 1)
        room++; /* 2^room <= limit + 1 */
    return room - magnitude - RB_EXPONENT_HEADROOM;
}

int32_t rb_exponent_for(double largest, int32_t limit)
{
    int exponent = unclamped(largest, limit);

    if (exponent < RB_EXPONENT_LOWEST)
        return RB_EXPONENT_LOWEST;
    return exponent > RB_EXPONENT_HIGHEST ? RB_EXPONENT_HIGHEST : exponent;
}

bool rb_exponent_flagged(const struct rb_exponent *exponent, uint32_t largest, bool overflow)
{
    return overflow || (!exponent->known && largest != 0);
}

bool rb_exponent_beyond(uint32_t largest, int32_t limit)
{
    return largest != 0 && unclamped(value_of(largest), limit) < RB_EXPONENT_LOWEST;
}

void rb_exponent_redo(struct rb_exponent *exponent, uint32_t largest, int32_t limit)
{
    if (largest == 0)
        return;
    if (!exponent->known || value_of(largest) > exponent->history)
        exponent->history = value_of(largest);
    exponent->exponent = rb_exponent_for(exponent->history, limit);
    exponent->known = true;
}

void rb_exponent_commit(struct rb_exponent *exponent, uint32_t largest, int32_t limit)
{
    double faded = exponent->known ? exponent->history * decay : 0;

    if (largest == 0)
        return;
    exponent->history = value_of(largest) > faded ? value_of(largest) : faded;
    exponent->exponent = rb_exponent_for(exponent->history, limit);
    exponent->known = true;
}

double rb_exponent_power(double base, uint64_t n)
{
    double power = 1;

    for (; n; n >>= 1, base *= base)
        if (n & 1)
            power *= base;
    return power;
}

float rb_exponent_statistic(float momentum, uint32_t count, uint32_t index)
{
    double kept = (double)momentum;

    return (float)((1 - kept) * rb_exponent_power(kept, (uint64_t)count - 1 - index));
}

float rb_exponent_keep(float momentum, uint32_t count)
{
    return (float)rb_exponent_power((double)momentum, count);
}
