/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/decide/receipt.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int by_time(const void *left, const void *right)
{
    const struct rb_receipt_row *a = left, *b = right;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->configuration != b->configuration)
        return a->configuration < b->configuration ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

/* Configuration, step, time. */
static int by_commit(const void *left, const void *right)
{
    const struct rb_receipt_row *a = left, *b = right;

    if (a->configuration != b->configuration)
        return a->configuration < b->configuration ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->time > b->time) - (a->time < b->time);
}

static int by_step(const void *left, const void *right)
{
    const struct rb_receipt_row *a = left, *b = right;

    return (a->step > b->step) - (a->step < b->step);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median_step(const struct rb_receipt_row *rows, size_t begin, size_t end,
                          uint32_t configuration)
{
    double *values = rb_alloc((end - begin + 1) * sizeof(*values));
    double median = 0;
    size_t count = 0;

    for (size_t i = begin; i < end; i++)
        if (rows[i].configuration == configuration)
            values[count++] = rows[i].step_ms;
    if (count) {
        qsort(values, count, sizeof(*values), by_value);
        median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    }
    free(values);
    return median;
}

/* rows: by time; `begin`: the last one before the request; `end`: one beyond the last that
 * counts. */
static double stall(const struct rb_receipt_row *rows, size_t begin, size_t end, uint64_t asked)
{
    size_t from = begin + 1 > RB_RECEIPT_BEFORE ? begin + 1 - RB_RECEIPT_BEFORE : 0;
    uint64_t longest = 0;
    size_t ends_at = 0;

    for (size_t i = begin + 1; i < end; i++) {
        uint64_t gap = rows[i].time - rows[i - 1].time;

        if (rows[i].time >= asked && gap > longest) {
            longest = gap;
            ends_at = i;
        }
    }
    if (!ends_at)
        return 0;
    double over = (double)longest - median_step(rows, from, end, rows[ends_at].configuration);
    return over > 0 ? over : 0;
}

/* Samples that no committed step holds although steps around them are committed, among the steps of
 * rows begin .. end - 1.  A step's row may lie outside of those: the node that told of it had the
 * time of its own commit, when others were ahead. */
static int64_t skipped(const struct rb_receipt_row *rows, size_t n, size_t begin, size_t end)
{
    struct rb_receipt_row *sorted = rb_alloc((n + 1) * sizeof(*sorted));
    int64_t lowest = rows[begin].step, highest = lowest, lost = 0;
    uint64_t next;
    size_t kept = 0;

    for (size_t i = begin; i < end; i++) {
        lowest = rows[i].step < lowest ? rows[i].step : lowest;
        highest = rows[i].step > highest ? rows[i].step : highest;
    }
    for (size_t i = 0; i < n; i++)
        if (rows[i].step >= lowest && rows[i].step <= highest)
            sorted[kept++] = rows[i];
    qsort(sorted, kept, sizeof(*sorted), by_step);
    next = sorted[0].first_sample;
    for (size_t i = 0; i < kept; i++) {
        if (sorted[i].first_sample > next)
            lost += (int64_t)(sorted[i].first_sample - next);
        if (sorted[i].first_sample + sorted[i].samples > next)
            next = sorted[i].first_sample + sorted[i].samples;
    }
    free(sorted);
    return lost;
}

/* Steps of the new set that were committed before it, and how far the old sets had come beyond its
 * first step.  Steps are committed without gaps, so the highest one before tells. */
static void count_repeats(const struct rb_receipt_row *rows, size_t first, size_t end,
                          uint32_t configuration, int64_t *ret_lost, int64_t *ret_samples)
{
    int64_t highest = -1;

    *ret_lost = *ret_samples = 0;
    for (size_t i = 0; i < end; i++) {
        if (i == first && highest >= rows[first].step)
            *ret_lost = highest - rows[first].step + 1;
        if (rows[i].configuration == configuration && rows[i].step <= highest)
            *ret_samples += rows[i].samples;
        if (rows[i].configuration != configuration && rows[i].step > highest)
            highest = rows[i].step; /* steps of a lap may be told of in another order */
    }
}

/* The same commit, told by several nodes, counts once; the earliest telling stays. */
static size_t drop_doubles(struct rb_receipt_row *rows, size_t n)
{
    size_t kept = 0;

    qsort(rows, n, sizeof(*rows), by_commit);
    for (size_t i = 0; i < n; i++)
        if (!kept || rows[kept - 1].step != rows[i].step ||
            rows[kept - 1].configuration != rows[i].configuration)
            rows[kept++] = rows[i];
    return kept;
}

int rb_receipt_compute(const struct rb_receipt_input *input, Rb__Receipt *ret_receipt)
{
    struct rb_receipt_row *rows = rb_alloc((input->n + 1) * sizeof(*rows));
    size_t n, first = 0, begin = 0, end = 0, of_new = 0;

    if (input->n)
        memcpy(rows, input->rows, input->n * sizeof(*rows));
    n = drop_doubles(rows, input->n);
    qsort(rows, n, sizeof(*rows), by_time);
    for (size_t i = 0; i < n && of_new < RB_RECEIPT_STEPS; i++) {
        if (rows[i].configuration != input->configuration)
            continue;
        if (!of_new++)
            first = i;
        end = i + 1;
    }
    if (!of_new || (of_new < RB_RECEIPT_STEPS && !input->ended)) {
        free(rows);
        return RB_EAGAIN;
    }
    while (begin + 1 < end && rows[begin + 1].time < input->asked)
        begin++;

    rb__receipt__init(ret_receipt);
    ret_receipt->from = input->from;
    ret_receipt->to = input->to;
    ret_receipt->configuration = input->configuration;
    ret_receipt->step = rows[first].step;
    ret_receipt->stall_ms = stall(rows, begin, end, input->asked);
    ret_receipt->ready_ms =
        rows[first].time > input->asked ? (double)(rows[first].time - input->asked) : 0;
    ret_receipt->bytes_moved = input->bytes_moved;
    count_repeats(rows, first, end, input->configuration, &ret_receipt->steps_lost,
                  &ret_receipt->samples_repeated);
    ret_receipt->samples_skipped = skipped(rows, n, begin, end);
    free(rows);
    return 0;
}
