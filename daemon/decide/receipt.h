/* SPDX-License-Identifier: Apache-2.0 */
/* What a change of the device set cost, computed from the rows of committed steps and nothing else.
 *
 * rows of metrics + configuration > [receipt] > Receipt
 *
 * Anyone who has `metrics` and the ledger (first sample and samples of each step) gets the same
 * numbers:
 *
 *     commits  | | | |  (request)  | |        |   | | | | | | | | | |
 *     active     c                 c           n  first step        tenth step
 *                                   <-longest->
 *
 * stall = longest gap between commits, from the gap in which the request falls to the tenth step of
 * the new set, minus the median step of the configuration in which that gap ends.  The median is
 * over that configuration's rows among the last 200 before the request and all later ones up to
 * that tenth step, by time.  Rows of steps that were lost and done again (`metrics --lost`) count
 * too. */
#ifndef RB_DAEMON_DECIDE_RECEIPT_H
#define RB_DAEMON_DECIDE_RECEIPT_H

#include "facts.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RB_RECEIPT_STEPS = 10,   /* of the new set that a receipt waits for */
    RB_RECEIPT_BEFORE = 200, /* rows before the request that medians look at */
};

/* One committed step.  A step that was lost and committed again has two. */
struct rb_receipt_row {
    int64_t step;
    uint64_t time; /* unix ms of the commit */
    double step_ms;
    uint32_t configuration;
    uint64_t first_sample;
    uint32_t samples;
};

struct rb_receipt_input {
    const struct rb_receipt_row *rows; /* in any order */
    size_t n;
    uint64_t asked;         /* unix ms of the request */
    uint32_t configuration; /* the new one */
    uint32_t from, to;      /* devices before and after */
    uint64_t bytes_moved;   /* the sum over its members' reports */
    bool ended; /* no more rows will come: the job ended or a later configuration took over */
};

/* RB_EAGAIN: there are fewer than ten steps of the new set and more may come, or there are none. */
int rb_receipt_compute(const struct rb_receipt_input *input, Rb__Receipt *ret_receipt);

#endif
