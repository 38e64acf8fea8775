/* SPDX-License-Identifier: Apache-2.0 */
/* A job's state, handed out to a caller: what checkpoint and export have in common.
 *
 *     methods_state.c > handout_turn.c > handout_save.c > handout_fetch.c > node-file, the caller
 *
 * While the job trains, a node that has one of its workers is asked to save (handout_save.c); the
 * export is then fetched from that node.  Otherwise what was parked, finished or checkpointed last
 * is fetched from where it lies, if it is whole (handout_fetch.c), and a checkpoint is a copy of
 * what was parked.
 *
 * Private to daemon/rpc: methods_state.c, handout*.c.  Each function below may answer the request
 * and free the handout; after it the handout is not to be touched. */
#ifndef RB_DAEMON_RPC_HANDOUT_H
#define RB_DAEMON_RPC_HANDOUT_H

#include "daemon/rpc/methods_inside.h"

/* Of exports while a job trains, see rb_handout_take_turn. */
enum rb_handout_turn { RB_HANDOUT_FREE, RB_HANDOUT_WAITS, RB_HANDOUT_ALONE };

struct rb_handout {
    struct rb_op op;
    struct rb_client_call *call;
    bool exports;
    enum rb_handout_turn turn;
    char *job, *name;
    char *node;   /* that the call is to, */
    bool lost;    /* and has no lease */
    char **nodes; /* still to be asked */
    size_t n_nodes, asked;
    char **tried; /* paths of what is kept, NULL behind the last; NULL: it trains */
    size_t n_tried;
    struct rb_why unfit; /* the first of these that was not there, or damaged */
    int64_t step;
    uint64_t bytes;
};

/* ---- handout.c: from its request to its end ---------------------------------------------------*/

struct rb_handout *rb_handout_new(struct rb_methods *methods, struct rb_request *request,
                                  const struct rb_job_facts *job, bool exports);
void rb_handout_free(struct rb_op *op); /* its let_go, by which it is known among other ops */

/* Answers with the error, and frees. */
void rb_handout_fail(struct rb_handout *handout, int err, const struct rb_why *why);
/* The caller has hung up: what there is left to do for it ends. */
void rb_handout_fail_gone(struct rb_handout *handout);

/* Its one call under way; the callbacks of `options` get the handout as their context. */
void rb_handout_call(struct rb_handout *handout, const char *node,
                     struct rb_client_options *options);

/* ---- handout_turn.c: one export of a job after the other --------------------------------------*/

/* A worker writes each export over the one before it.  So the next export waits until the file of
 * this one is open: else the next file, of another step, would be taken for this one.  Begins, now
 * or in its turn. */
void rb_handout_take_turn(struct rb_handout *handout);
/* The handout's file is open, or the handout is over: the next one begins.  Frees nothing. */
void rb_handout_end_turn(struct rb_handout *handout);

/* ---- handout_save.c: a worker saves -----------------------------------------------------------*/

/* Ask the members' nodes by rank, until one can save; before all others the node of the worker that
 * saves before it leaves, for which the other workers wait. */
void rb_handout_save(struct rb_handout *handout, const struct rb_job_facts *job,
                     const Rb__Configuration *active);
/* Of a job without processes: the node that has the state that it goes on from makes a copy. */
void rb_handout_save_parked(struct rb_handout *handout, const Rb__Checkpoint *parked);

/* What a checkpoint is answered with. */
json_t *rb_handout_place(int64_t step, const char *path, const char *node);

/* ---- handout_fetch.c: a file goes to the caller -----------------------------------------------*/

/* A state that a worker has just saved is as it was written; one that was kept has to be whole. */
void rb_handout_fetch(struct rb_handout *handout, const char *node, const char *path);
/* Of a job that does not train: the state that it would go on from, or ended with; where that is
 * gone or damaged, the next best. */
void rb_handout_fetch_kept(struct rb_handout *handout);

#endif
