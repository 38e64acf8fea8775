/* SPDX-License-Identifier: Apache-2.0 */
/* How much each device gets: microbatches by speed, bytes by range or by variable.
 *
 * speeds, sizes > [balance] > counts, loads, bytes to move > step, search */
#ifndef RB_PLAN_PARTITION_BALANCE_H
#define RB_PLAN_PARTITION_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Microbatches ---- */

/* Shares of `total` equal microbatches among n devices, such that the last device is done as early
 * as can be; at equal speeds the shares differ by at most one.  Speeds are above 0. */
void rb_balance_shares(uint32_t total, const double *speeds, uint32_t n, uint32_t *ret_shares);

/* When the last device is done, over when all would be done if they ended at once: 1 is ideal. */
double rb_balance_excess(const uint32_t *shares, const double *speeds, uint32_t n);

/* Does the gain of shares by speed justify new shares?  A smaller gain is as likely noise. */
bool rb_balance_worth(double as_it_is, double by_speed);

/* Standard deviation of the devices' times over their mean. */
double rb_balance_variation(const uint32_t *shares, const double *speeds, uint32_t n);

/* The rank that computes each microbatch: runs, in rank order (plan/schedule.h). */
void rb_balance_owners(const uint32_t *shares, uint32_t n, int32_t *ret_owners);

/* ---- Bytes ---- */

enum rb_balance_order {
    RB_BALANCE_LARGEST_FIRST, /* each to the device that has least, the largest first */
    RB_BALANCE_DECLARED,      /* the same in the order in which they are declared */
    RB_BALANCE_ROUND_ROBIN,
};

/* The largest load over the mean, where whole variables are placed on n devices. */
double rb_balance_whole(const double *sizes, size_t count, uint32_t n, enum rb_balance_order order);

/* The same where the total is cut into n ranges at multiples of `unit`. */
double rb_balance_ranges(uint64_t total, uint64_t unit, uint32_t n);

/* Bytes that change hands where device i of `before` has range i, and then each of `after` devices
 * has one: the newcomers come last. */
double rb_balance_moved(double bytes, uint32_t before, uint32_t after);

/* The least that any placement of equal shares can move, where an owner may have several ranges. */
double rb_balance_moved_least(double bytes, uint32_t before, uint32_t after);

#endif
