/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a search share: one file a way to run a job.
 *
 * search > [data, pipeline, stages, filters] > [choose, explain] */
#ifndef RB_PLAN_SEARCH_INSIDE_H
#define RB_PLAN_SEARCH_INSIDE_H

#include "plan/search/search.h"

/* While one number of devices is looked at. */
struct rb_search_work {
    const struct rb_search_how *how;
    struct rb_search *search;
    uint32_t devices, total;
    double *microbatch;                      /* seconds of one, by device */
    const struct rb_cluster_device *slowest; /* of the devices */
    struct rb_cluster_link link;             /* rb_search_link */
    uint32_t copies[2]; /* numbers of copies that may be chosen, the submit's first */
    uint32_t n_copies;
    bool even;       /* even shares, whatever the devices' speeds */
    uint32_t pinned; /* stages of the pipeline that the job file asks for; 0: none */
    uint32_t split;  /* parts of the filters, in the same way */
    bool open;       /* the planner may choose data parallelism or a pipeline */
    size_t data;     /* the candidate that is data parallel as a submit would have it */
    struct rb_why *why;
};

/* A further candidate; good until the next one is added. */
struct rb_search_candidate *rb_search_add(struct rb_search_work *work,
                                          enum rb_search_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void rb_search_say(struct rb_search_candidate *one, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Do both numbers mean the same on so many devices?  With no more devices than copies each device
 * has all. */
bool rb_search_same_copies(uint32_t a, uint32_t b, uint32_t devices);
/* ", 2 replicas of the state" */
void rb_search_state_text(uint32_t copies, uint32_t devices, char *text, size_t room);

/* Mark the candidate that runs where no pipeline is pinned: the quickest of those that fit and are
 * open. */
void rb_search_choose(const struct rb_search_work *work);

/* Write each candidate's reason: why it has its verdict, and how it compares with the chosen
 * one. */
void rb_search_explain(const struct rb_search_work *work);

/* Is the candidate that was added last to be tried with recomputed activations as well?  Yes where
 * it does not fit, or where all candidates are to be seen. */
bool rb_search_again(const struct rb_search_work *work);

/* A misfit where it needs more memory than the smallest of the devices has. */
void rb_search_check_memory(const struct rb_search_work *work, struct rb_search_candidate *one);

/* The slowest way between the devices.  All send at once, so each has its part of the network of
 * its node and of its rack. */
struct rb_cluster_link rb_search_link(const struct rb_search_work *work);

/* Data parallelism, with shares as the coordinator cuts them when it knows the devices' speeds
 * (daemon/facts/shares.h). */
int rb_search_data(struct rb_search_work *work);
/* Microbatches by rank where n devices have even shares. */
void rb_search_even(const struct rb_search_work *work, uint32_t n, uint32_t *ret_shares);

/* On at least two devices that are alike; adds nothing where the model cannot be cut into stages,
 * or where there is too much to play. */
int rb_search_pipelines(struct rb_search_work *work);
/* Is a pipeline of so many devices and microbatches played?  1,024 and 256 take tenths of a second.
 */
bool rb_search_played(const struct rb_search_work *work);
/* A pipeline of so many stages, as a pin makes it, with each number of copies that may be chosen;
 * pinned: it is what runs. */
int rb_search_stages(struct rb_search_work *work, uint32_t stages, bool pinned);
/* Filters in so many parts, in the same way. */
int rb_search_filters(struct rb_search_work *work, uint32_t parts, bool pinned);

#endif
