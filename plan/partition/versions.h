/* SPDX-License-Identifier: Apache-2.0 */
/* How many updates a pipeline stage's weights are behind: counted from the schedule that runs.
 *
 * times of the stages > [versions] > how many steps ahead weights are predicted
 *
 * One forward, one backward: stage k of n takes n-1-k minibatches forward before its first
 * backward, then forward and backward in turn, and updates its weights behind each backward.  A
 * minibatch aims at the weights that each stage has when its backward has ended on stage 0: an
 * asynchronous pipeline (spectrain) predicts them s updates ahead, W - s lr v. */
#ifndef RB_PLAN_PARTITION_VERSIONS_H
#define RB_PLAN_PARTITION_VERSIONS_H

#include <stdint.h>

struct rb_versions {
    uint32_t forward, backward; /* updates by other minibatches between use and aim */
    uint32_t stale;             /* of the forward ones, those before its own backward here */
};

/* Of a lap of `minibatches`, filling and draining included: ret by stage * minibatches + minibatch.
 * forward, backward: seconds by stage, above 0. */
void rb_versions_lap(const double *forward, const double *backward, uint32_t stages,
                     uint32_t minibatches, struct rb_versions *ret);

/* In the steady state, by stage.  ret_busy: the part of the time that the busiest stage works. */
void rb_versions_count(const double *forward, const double *backward, uint32_t stages,
                       struct rb_versions *ret, double *ret_busy);

/* The closed formula of the paper, which is exact where forward and backward take the same time. */
struct rb_versions rb_versions_paper(uint32_t stages, uint32_t stage);

#endif
