/* SPDX-License-Identifier: Apache-2.0 */
/* A step whose gradients are summed three ways: exactly, in float32, and as the product does.
 *
 * job > [three] > sums (errors and costs)
 *
 * The order of work is that of worker/step/step.c on one device: same microbatches, same order,
 * same vote. */
#ifndef RB_TESTS_BENCH_THREE_H
#define RB_TESTS_BENCH_THREE_H

#include "tests/bench/job.h"

enum three_sum {
    THREE_FIXED, /* int32, rb_fixed_add: in model->local */
    THREE_PLAIN, /* float32, in index order */
    THREE_EXACT, /* double */
    THREE_SUMS,
};
enum { THREE_ALL = 7 };

struct three {
    struct bench_job *job;
    float *plain;
    double *exact, *total;   /* total: the sums that change the weights */
    unsigned wanted;         /* a bit for each sum that is kept */
    uint64_t ns[THREE_SUMS]; /* time of adding in the last attempt */
    double loss;             /* of the last attempt: mean over valid targets */
    int64_t count;
    /* of an attempt under way */
    struct rb_vote_shape shape;
    uint8_t *record;
    const struct rb_runner *runner;
    uint32_t microbatch;
    size_t next;
};

void three_open(struct bench_job *job, struct three *ret_three);
void three_done(struct three *three);

/* Compute the wanted sums of the next step; the state is not changed. */
void three_attempt(struct three *three, struct rb_vote_decision *ret_decision);

/* Run attempts until one is committed (FIXED must be wanted); returns how many were voted down. */
uint32_t three_settle(struct three *three, struct rb_vote_decision *ret_decision);

/* Commit with the product's own update.  `checked`: the loops of three_apply must give the same
 * bits from the same sums. */
void three_commit(struct three *three, const struct rb_vote_decision *decision, bool checked);

/* Commit with sums of another kind, by plain loops of the same formulas. */
void three_apply(struct three *three, enum three_sum sum);

/* |sum - exact| / |exact| over one variable, or over all trained variables (variable -1). */
double three_error(const struct three *three, enum three_sum sum, int variable);

/* sum[i] += g[i] * weight: what rb_fixed_add is compared with. */
void three_add_plain(float *sum, const float *g, size_t n, float weight);

#endif
