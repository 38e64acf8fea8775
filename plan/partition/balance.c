/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/balance.h"

#include "base/arena.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Microbatches ----------------------------------------------------------------------------*/

static double sum_of(const double *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* The whole parts of the ideal shares are never too many; each remaining microbatch goes where it
 * is done soonest. */
void rb_balance_shares(uint32_t total, const double *speeds, uint32_t n, uint32_t *ret_shares)
{
    double all = sum_of(speeds, n);
    uint32_t given = 0;

    for (uint32_t i = 0; i < n; i++) {
        double ideal = floor(total * (speeds[i] / all) * (1 - 1e-12));

        ret_shares[i] = ideal < total - given ? (uint32_t)ideal : total - given;
        given += ret_shares[i];
    }
    for (; given < total; given++) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < n; i++)
            if ((ret_shares[i] + 1) / speeds[i] < (ret_shares[best] + 1) / speeds[best])
                best = i;
        ret_shares[best]++;
    }
}

double rb_balance_excess(const uint32_t *shares, const double *speeds, uint32_t n)
{
    double latest = 0, total = 0;

    for (uint32_t i = 0; i < n; i++) {
        total += shares[i];
        latest = fmax(latest, shares[i] / speeds[i]);
    }
    return total > 0 ? latest / (total / sum_of(speeds, n)) : 1;
}

bool rb_balance_worth(double as_it_is, double by_speed)
{
    return as_it_is > 1.05 * by_speed;
}

double rb_balance_variation(const uint32_t *shares, const double *speeds, uint32_t n)
{
    double mean = 0, squares = 0;

    for (uint32_t i = 0; i < n; i++)
        mean += shares[i] / speeds[i] / n;
    for (uint32_t i = 0; i < n; i++)
        squares += (shares[i] / speeds[i] - mean) * (shares[i] / speeds[i] - mean) / n;
    return mean > 0 ? sqrt(squares) / mean : 0;
}

void rb_balance_owners(const uint32_t *shares, uint32_t n, int32_t *ret_owners)
{
    uint32_t m = 0;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < shares[i]; k++)
            ret_owners[m++] = (int32_t)i;
}

/* ---- Bytes -----------------------------------------------------------------------------------*/

static int larger_first(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

double rb_balance_whole(const double *sizes, size_t count, uint32_t n, enum rb_balance_order order)
{
    RB_CLEANUP(rb_freep) double *loads = rb_alloc(n * sizeof *loads);
    RB_CLEANUP(rb_freep) double *sorted = rb_alloc((count + 1) * sizeof *sorted);
    double most = 0;

    memcpy(sorted, sizes, count * sizeof *sorted);
    if (order == RB_BALANCE_LARGEST_FIRST)
        qsort(sorted, count, sizeof *sorted, larger_first);
    for (size_t i = 0; i < count; i++) {
        uint32_t to = (uint32_t)(i % n);

        for (uint32_t d = 0; order != RB_BALANCE_ROUND_ROBIN && d < n; d++)
            if (!d || loads[d] < loads[to])
                to = d;
        loads[to] += sorted[i];
    }
    for (uint32_t d = 0; d < n; d++)
        most = fmax(most, loads[d]);
    return most / (sum_of(loads, n) / n);
}

/* Where the i-th of n ranges begins. */
static double range_start(double total, double unit, uint32_t n, uint32_t i)
{
    return i == n ? total : fmin(total, floor(total * i / n / unit + 0.5) * unit);
}

double rb_balance_ranges(uint64_t total, uint64_t unit, uint32_t n)
{
    double most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, range_start((double)total, (double)unit, n, i + 1) -
                              range_start((double)total, (double)unit, n, i));
    return most / ((double)total / n);
}

/* Counts what each device had already of its new range; the rest is moved. */
double rb_balance_moved(double bytes, uint32_t before, uint32_t after)
{
    uint32_t both = before < after ? before : after;
    double kept = 0;

    for (uint32_t i = 0; i < both; i++) {
        double from = fmax(bytes * i / before, bytes * i / after);
        double to = fmin(bytes * (i + 1) / before, bytes * (i + 1) / after);

        kept += fmax(0, to - from);
    }
    return bytes - kept;
}

double rb_balance_moved_least(double bytes, uint32_t before, uint32_t after)
{
    return after > before ? bytes * (after - before) / after : bytes * (before - after) / before;
}
