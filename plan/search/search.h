/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run a job on so many devices, each with its price: what `rubatoctl plan` shows.
 *
 * Model + spec + cluster > [search] > candidates, the chosen one first
 *
 * The chosen candidate is what runs: what the job file pins, else the quickest of data parallelism
 * and pipelines that fits; where the job file leaves the state open, with all of it everywhere or
 * with two replicas.  A way that changes the bits, or that cannot run yet, is priced and never
 * chosen.  Nor is data parallelism with all of the state left for another way on several GPUs of
 * one machine, because their sums have no price. */
#ifndef RB_PLAN_SEARCH_SEARCH_H
#define RB_PLAN_SEARCH_SEARCH_H

#include "plan/search/move.h"
#include "plan/simulate/predict.h"
#include "spec.pb-c.h"

#include <stdbool.h>

/* How a job runs, as far as the planner decides it. */
struct rb_search_way {
    uint32_t stages; /* of a pipeline; 0: data parallel */
    uint32_t copies; /* of each block of the state; 0: one a device */
};

struct rb_search_how {
    const Rb__Spec *spec;
    const Rb__Model *model;
    const struct rb_cluster *cluster;
    const struct rb_cost_profile *profile;
    uint32_t from;            /* devices that the job has, for the price of the move */
    uint64_t machine;         /* memory of a device where the cluster does not say; 0: unknown */
    const uint32_t *replicas; /* of each block, as the job has it; NULL: as a submit would decide */
    bool brief;               /* what may be chosen, and nothing else */
    const struct rb_search_way *running; /* left for a clear gain only; NULL: nothing trains */
};

enum rb_search_verdict {
    RB_SEARCH_CHOSEN,
    RB_SEARCH_RUNS,   /* can run, and is not chosen: the reason says why */
    RB_SEARCH_PRICED, /* this release cannot run it */
    RB_SEARCH_MISFIT, /* it does not fit into memory, or into the cluster */
};

const char *rb_search_verdict_text(enum rb_search_verdict verdict);

struct rb_search_candidate {
    char name[96]; /* "data parallel x4, 2 replicas" */
    enum rb_search_verdict verdict;
    bool open; /* for the planner to choose */
    struct rb_search_way way;
    bool recomputes; /* activations, where the Model leaves that open */
    char reason[256];
    double seconds; /* of a step */
    double memory;  /* bytes, of the device that needs most */
    double sent;    /* bytes a step, of the device that sends most */
    double idle;    /* part of the step that devices wait, on average */
    double computing, summing, updating, gathering; /* seconds; 0 where they have no meaning */
    bool moves;                                     /* the price of the move is known */
    struct rb_move move;
    struct rb_simulate *simulate; /* of a step; NULL: not simulated */
};

struct rb_search {
    uint32_t devices;
    struct rb_search_candidate *candidates; /* the chosen one first, then by verdict and time */
    size_t n;
};

int rb_search_run(const struct rb_search_how *how, uint32_t devices, struct rb_search *ret,
                  struct rb_why *why);
void rb_search_done(struct rb_search *search);

#endif
