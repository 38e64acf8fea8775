/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/handout.h"

#include "daemon/facts/members.h"

#include <string.h>

/* The export of this job that is at work, or the first that waits; NULL: none. */
static struct rb_handout *find_turn(struct rb_methods *methods, const char *job,
                                    enum rb_handout_turn turn)
{
    struct rb_handout *found = NULL;

    for (struct rb_op *op = methods->ops; op; op = op->next) { /* the newest first */
        struct rb_handout *each = (struct rb_handout *)op;

        if (op->let_go == rb_handout_free && each->turn == turn && !strcmp(each->job, job))
            found = each;
    }
    return found;
}

void rb_handout_take_turn(struct rb_handout *handout)
{
    const struct rb_job_facts *job =
        rb_facts_job(rb_methods_facts(handout->op.methods), handout->job);
    const Rb__Configuration *active = job ? rb_job_active(job) : NULL;

    if (rb_request_gone(handout->op.request)) {
        rb_handout_fail_gone(handout);
    } else if (active && find_turn(handout->op.methods, handout->job, RB_HANDOUT_ALONE)) {
        handout->turn = RB_HANDOUT_WAITS;
    } else if (active) {
        handout->turn = RB_HANDOUT_ALONE;
        rb_handout_save(handout, job, active);
    } else {
        handout->turn = RB_HANDOUT_FREE;
        rb_handout_fetch_kept(handout);
    }
}

void rb_handout_end_turn(struct rb_handout *handout)
{
    struct rb_handout *next;

    if (handout->turn != RB_HANDOUT_ALONE)
        return;
    handout->turn = RB_HANDOUT_FREE;
    while (!find_turn(handout->op.methods, handout->job, RB_HANDOUT_ALONE) &&
           (next = find_turn(handout->op.methods, handout->job, RB_HANDOUT_WAITS)))
        rb_handout_take_turn(next);
}
