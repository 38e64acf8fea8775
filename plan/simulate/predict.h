/* SPDX-License-Identifier: Apache-2.0 */
/* A data-parallel step on a cluster, as workers take it: microbatches, sums, vote, update, and
 * weights where the state is in shards.
 *
 * Model + shares + cluster > [predict] > simulate > seconds, and what each rank did when
 *
 * A rank does one thing at a time, and a collective begins when the last rank has come to it.  The
 * model is worker/step/step.c; the bytes are those of coll/sum.c. */
#ifndef RB_PLAN_SIMULATE_PREDICT_H
#define RB_PLAN_SIMULATE_PREDICT_H

#include "plan.pb-c.h"
#include "plan/simulate/cost.h"
#include "plan/simulate/simulate.h"

/* Kinds of task, for the drawing. */
#define RB_PREDICT_KINDS(X)                                                                        \
    X(COMPUTE, "compute")                                                                          \
    X(BACKWARD, "backward")                                                                        \
    X(SUM, "sum gradients")                                                                        \
    X(VOTE, "vote")                                                                                \
    X(UPDATE, "update")                                                                            \
    X(GATHER, "gather weights")                                                                    \
    X(SEND, "send activations")                                                                    \
    X(MEET, "")

enum rb_predict_kind {
#define X(name, text) RB_PREDICT_##name,
    RB_PREDICT_KINDS(X)
#undef X
        RB_PREDICT_COUNT
};

const char *rb_predict_kind_text(int kind);

struct rb_predict_how {
    const Rb__Model *model;
    const struct rb_cluster *cluster;
    const struct rb_cost_profile *profile;
    uint32_t ranks;         /* the first so many devices of the cluster */
    const uint32_t *shares; /* microbatches by rank */
    uint32_t copies;        /* of each block of the state; 0: one a rank */
    bool recomputes;        /* by the programs that compute activations again */
};

struct rb_predict_step {
    double seconds;
    double computing;                    /* until the last rank has computed */
    double summing, updating, gathering; /* of the rank that needs longest, waits included */
    double sent;                         /* bytes, of the rank that sends most */
    double idle;                         /* part of the step that ranks wait, on average */
    struct rb_simulate *simulate;        /* lanes are ranks; the caller frees it */
};

/* RB_EINVAL where shares are not the model's microbatches. */
int rb_predict_data(const struct rb_predict_how *how, struct rb_predict_step *ret_step,
                    struct rb_why *why);

/* Seconds that a device needs for one microbatch of this model, sums included. */
double rb_predict_microbatch(const Rb__Model *model, const struct rb_cluster_device *device,
                             const struct rb_cost_profile *profile);

#endif
