/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's step: one forward, one backward, on stages that may have replicas.
 *
 * stages + link > [pipeline] > simulate > seconds, and what each device did when
 *
 * Microbatch i of a stage goes to its replica i mod r.  A replica runs as many microbatches forward
 * ahead as there are devices in later stages for each replica of its own, then backward and forward
 * in turn.  Activations and their gradients go over the sender's own link, one after the other,
 * beside its computing.  Then gradients are summed and the state is updated: by the replicas of
 * each stage for themselves, or by all devices together as plan/traffic.h says. */
#ifndef RB_PLAN_SIMULATE_PIPELINE_H
#define RB_PLAN_SIMULATE_PIPELINE_H

#include "base/error.h"
#include "plan/simulate/simulate.h"
#include "plan/traffic.h"

#include <stdint.h>

struct rb_pipeline_stage {
    double forward, backward; /* seconds of a microbatch on one device */
    double activations;       /* bytes of a microbatch to the next stage; and as many back */
    double weights;           /* bytes of gradients to sum over the replicas, once a step */
    double update;            /* seconds, once a step */
    uint32_t devices;
};

struct rb_pipeline_how {
    const struct rb_pipeline_stage *stages;
    uint32_t n, microbatches;
    double bandwidth, latency;        /* bytes a second of each link, each way; 0: no obstacle */
    const struct rb_traffic *traffic; /* of devices; NULL: stages sum their `weights` alone */
};

struct rb_pipeline_step {
    double seconds;
    double idle;                  /* part of the step that devices wait, on average */
    double sent, all_sent;        /* bytes: of the device that sends most, and of all */
    struct rb_simulate *simulate; /* lanes are devices; the caller frees it */
};

int rb_pipeline_run(const struct rb_pipeline_how *how, struct rb_pipeline_step *ret_step,
                    struct rb_why *why);

/* The most microbatches that a replica of stage k has in flight. */
uint32_t rb_pipeline_ahead(const struct rb_pipeline_stage *stages, uint32_t n, uint32_t k);

#endif
