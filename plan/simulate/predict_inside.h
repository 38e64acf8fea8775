/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is made of, as tasks on the resources of a cluster.
 *
 * predict: a step > [predict_tasks]: work and exchanges > simulate */
#ifndef RB_PLAN_SIMULATE_PREDICT_INSIDE_H
#define RB_PLAN_SIMULATE_PREDICT_INSIDE_H

#include "plan/simulate/predict.h"

/* Which links a rank's messages to all others pass, as parts of its bytes. */
struct rb_predict_way {
    double inside, network, rack;
};

/* While the tasks of a step are made. */
struct rb_predict_tasks {
    const struct rb_predict_how *how;
    struct rb_simulate *simulate;
    int *slots, *inside;   /* by rank; no resource: -1, here and below */
    int *network, *memory; /* by node */
    int *racks;
    struct rb_predict_way *ways; /* by rank */
    int *last;                   /* by rank, its newest task; -1: none */
    double latency;
    double *sent; /* by rank */
    double *out,
        *busy; /* by rank, bytes of an exchange: sent; sent or received, whichever is more */
};

/* Make the resources of the cluster, and no task yet. */
void rb_predict_open(struct rb_predict_tasks *tasks);
/* Free all but the simulation, which is the caller's. */
void rb_predict_close(struct rb_predict_tasks *tasks);

/* Something that the rank's device does by itself. */
void rb_predict_work(struct rb_predict_tasks *tasks, uint32_t rank, int kind, uint32_t number,
                     struct rb_cost cost);

/* In the next exchange each rank sends and receives `bytes`. */
void rb_predict_fill(struct rb_predict_tasks *tasks, double bytes);
/* All ranks wait for each other; then each sends its bytes (`out`, `busy`), evenly to all
 * others. */
void rb_predict_exchange(struct rb_predict_tasks *tasks, int kind, uint32_t number, int crossings);

#endif
