/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/handout.h"

#include "daemon/facts/members.h"

#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_MS = 300000, /* to save, or to look whether it is whole, */
    LOST_MS = 3000,     /* and of a node whose lease has ended, which may be there again by then */
};

void rb_handout_free(struct rb_op *op)
{
    struct rb_handout *handout = (struct rb_handout *)op;

    if (op->request)
        rb_request_passed(op->request);
    rb_op_remove(op);
    if (op->methods)
        rb_handout_end_turn(handout);
    if (handout->call)
        rb_client_cancel(handout->call);
    for (size_t i = 0; i < handout->n_nodes; i++)
        free(handout->nodes[i]);
    for (size_t i = 0; i < handout->n_tried; i++)
        free(handout->tried[i]);
    free(handout->tried);
    free(handout->nodes);
    free(handout->node);
    free(handout->job);
    free(handout->name);
    free(handout);
}

void rb_handout_fail(struct rb_handout *handout, int err, const struct rb_why *why)
{
    struct rb_request *request = handout->op.request;
    struct rb_why told = *why;

    if (err == RB_ENOTFOUND) /* the job is there; its state is not, just now */
        err = RB_EREFUSED;
    if (err == RB_ETIMEOUT && handout->lost)
        err = rb_why_set(&told, RB_EUNREACHABLE, "node %s is out of reach", handout->node);
    rb_why_add(&told, err, "job %s", handout->name);
    rb_handout_free(&handout->op);
    rb_request_fail(request, err, &told);
}

void rb_handout_fail_gone(struct rb_handout *handout)
{
    struct rb_why why = {{0}};

    rb_why_set(&why, RB_ECANCELED, "the caller has hung up");
    rb_handout_fail(handout, RB_ECANCELED, &why);
}

struct rb_handout *rb_handout_new(struct rb_methods *methods, struct rb_request *request,
                                  const struct rb_job_facts *job, bool exports)
{
    struct rb_handout *handout = rb_alloc(sizeof(*handout));

    handout->op.let_go = rb_handout_free;
    handout->exports = exports;
    handout->job = rb_string(job->id);
    handout->name = rb_string(job->job.job->name);
    rb_op_add(&handout->op, methods, request);
    return handout;
}

void rb_handout_call(struct rb_handout *handout, const char *node,
                     struct rb_client_options *options)
{
    free(handout->node);
    handout->node = rb_string(node);
    handout->lost = false;
    options->node = node;
    options->hops = 2;
    options->timeout_ms = ANSWER_MS;
    options->context = handout;
    handout->call = rb_server_call(handout->op.methods->daemon->server, options);
}

/* No call ends because its node stands still.  But a node that has lost its lease may live, and be
 * there again in a moment, as after an etcd that stood still: what the node is asked for goes on.
 */
void rb_methods_look_for_lost(struct rb_methods *methods)
{
    const struct rb_fact_list *nodes = &rb_methods_facts(methods)->nodes;

    for (struct rb_op *op = methods->ops; op; op = op->next) {
        struct rb_handout *handout = (struct rb_handout *)op;
        bool lost;

        if (op->let_go != rb_handout_free || !handout->call)
            continue;
        lost = !rb_fact_find(nodes, handout->node);
        if (lost != handout->lost)
            rb_client_expect(handout->call, lost ? LOST_MS : ANSWER_MS);
        handout->lost = lost;
    }
}
