/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan takes on a cluster, told event by event: the planner's judge.
 *
 * step, stages, tests > tasks > [simulate] > start and end of each > search, timeline
 *
 * A task begins when all tasks before it have ended and its slot is free; of the tasks that wait
 * for a slot the one that was added first goes first.  A task spends its latency, then it flows: at
 * most at its own rate, and only as fast as the resources that it uses allow.  Tasks that use the
 * same resource share it by max-min fairness.  Pure: the same tasks, the same times. */
#ifndef RB_PLAN_SIMULATE_SIMULATE_H
#define RB_PLAN_SIMULATE_SIMULATE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { RB_SIMULATE_USES = 8, RB_SIMULATE_NO_SLOT = -1 };

struct rb_simulate_use {
    int resource;
    double amount; /* of the resource's units, for a unit of work */
};

struct rb_simulate_task {
    int slot;       /* does one thing at a time; or RB_SIMULATE_NO_SLOT */
    double latency; /* seconds before it flows */
    double work;    /* seconds, bytes */
    double rate;    /* of work a second, at most; 0: as the resources allow */
    struct rb_simulate_use uses[RB_SIMULATE_USES];
    int n_uses;
    int kind;          /* the caller's: not looked at */
    uint32_t lane;     /* the caller's */
    uint32_t number;   /* the caller's */
    double start, end; /* out: seconds */
};

struct rb_simulate;

struct rb_simulate *rb_simulate_new(void);
void rb_simulate_free(struct rb_simulate *simulate);

int rb_simulate_slot(struct rb_simulate *simulate);
int rb_simulate_resource(struct rb_simulate *simulate, double capacity); /* units a second, > 0 */
int rb_simulate_add(struct rb_simulate *simulate, const struct rb_simulate_task *task);
void rb_simulate_use(struct rb_simulate_task *task, int resource, double amount);

/* `task` begins after `before` has ended. */
void rb_simulate_after(struct rb_simulate *simulate, int task, int before);

/* Fill in starts and ends.  RB_EINVAL: tasks that wait for each other. */
int rb_simulate_run(struct rb_simulate *simulate, double *ret_seconds, struct rb_why *why);

size_t rb_simulate_count(const struct rb_simulate *simulate);
const struct rb_simulate_task *rb_simulate_task(const struct rb_simulate *simulate, size_t i);

#endif
