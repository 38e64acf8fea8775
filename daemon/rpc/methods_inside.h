/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of RPC methods share.
 *
 * Each method is a function from the request's body and the facts to a reply, or to writes and a
 * reply once they are committed.  What outlives the call is an `op`: it is on a list until its
 * callback has run, so that a daemon that ends can let go of it. */
#ifndef RB_DAEMON_RPC_METHODS_INSIDE_H
#define RB_DAEMON_RPC_METHODS_INSIDE_H

#include "base/arena.h"
#include "daemon/coordinator.h"
#include "daemon/daemon.h"
#include "daemon/facts/shown.h"
#include "daemon/rpc/methods.h"

struct rb_op;

struct rb_methods {
    struct rb_daemon *daemon;
    struct rb_op *ops;
    struct rb_receipts *receipts;
    size_t asking; /* nodes, just now */
};

/* Something under way.  `request` is NULL once it is answered, `methods` once the daemon ends. */
struct rb_op {
    struct rb_methods *methods;
    struct rb_request *request;
    struct rb_op *next, **self;
    const char *makes; /* the name of a job that may come of it; NULL: none does */
    void (*let_go)(
        struct rb_op *op); /* cancel calls and free; NULL: its callback will come and free */
};
void rb_op_add(struct rb_op *op, struct rb_methods *methods, struct rb_request *request);
void rb_op_remove(struct rb_op *op); /* does not free */

const struct rb_facts *rb_methods_facts(struct rb_methods *methods);

/* The job that the body names under `job`, by name or id; answers the request and returns NULL
 * where there is none.  A deleted job is none. */
const struct rb_job_facts *rb_methods_job(struct rb_methods *methods, struct rb_request *request);
const struct rb_job_facts *rb_methods_job_named(const struct rb_facts *facts, const char *name);

/* Answers and returns true if the job is over. */
bool rb_methods_refuse_final(struct rb_request *request, const struct rb_job_facts *job);
/* Also if it was cancelled and is not over yet, for its state is being saved. */
bool rb_methods_refuse_ending(struct rb_request *request, const struct rb_job_facts *job);

/* A whole number of the body; `absent` where it is not there; answers and returns false for
 * nonsense. */
bool rb_methods_number(struct rb_request *request, const char *key, int64_t absent, int64_t *ret);

/* Commit `writes` (emptied) guarded by leadership, then answer with `body` (reference taken).  When
 * facts changed meanwhile, `again` is called with the same request: each such time another writer
 * got something done.  makes: the name of a job among the writes (NULL: there is none). */
void rb_methods_commit(struct rb_methods *methods, struct rb_request *request,
                       struct rb_writes *writes, const char *makes, json_t *body,
                       void (*again)(struct rb_request *request, void *context));

/* methods_ask.c: ask all nodes that are there, some at a time; `done` gets what came: an array of
 * {node, error?, why?, body?}. */
void rb_methods_ask_nodes(struct rb_methods *methods, struct rb_request *request,
                          const char *method, json_t *body,
                          void (*done)(struct rb_methods *methods, struct rb_request *request,
                                       json_t *answers, void *context),
                          void *context);

/* handout.c: give up on nodes that are to save a state, or to hand it out, and have been without a
 * lease for longer than a moment. */
void rb_methods_look_for_lost(struct rb_methods *methods);

/* What to make of rows. */
struct rb_merge {
    size_t limit; /* steps, at most */
    bool lost;    /* also what a fall back to a checkpoint has lost */
    /* How far the job is; 0: nothing is known.  What an earlier configuration did beyond that is
     * lost. */
    uint32_t configuration;
    int64_t step;
};

/* Rows of several nodes as one list by step.  Of a step committed twice the newest configuration's
 * row counts (`lost`: and behind it come the others'), of a row told twice the earliest.  There is
 * none beyond what each node has told. */
json_t *rb_merge_rows(const json_t *answers, const struct rb_merge *merge, json_t **ret_columns);
int rb_column(const json_t *columns, const char *name); /* -1: none */

/* Rows for people and scripts, shared by get and status. */
json_t *rb_job_row(const struct rb_job_facts *job);
json_t *rb_receipt_json(const Rb__Receipt *receipt); /* spelled as scripts rely on */
void rb_node_describe(const struct rb_facts *facts, const Rb__Node *node, json_t *row);
json_t *rb_rows_of_nodes(const struct rb_facts *facts);
json_t *rb_rows_of_devices(const struct rb_facts *facts);
/* Notes on the list of `kind`, a sentence each: what could be in it and is not, and how old it is.
 */
json_t *rb_notes_on(struct rb_methods *methods, const char *kind);
json_t *rb_json_text(const char *value);
/* null for what is not there; what is not finite is a word, as in proto/reflect.h. */
json_t *rb_json_real(bool there, double value);

extern const struct rb_server_method rb_methods_look[];    /* methods_look.c */
extern const struct rb_server_method rb_methods_get[];     /* methods_get.c */
extern const struct rb_server_method rb_methods_cluster[]; /* methods_cluster.c */
extern const struct rb_server_method rb_methods_resize[];  /* methods_resize.c */
extern const struct rb_server_method rb_methods_change[];  /* methods_change.c */
extern const struct rb_server_method rb_methods_gather[];  /* methods_gather.c */
extern const struct rb_server_method rb_methods_state[];   /* methods_state.c */
extern const struct rb_server_method rb_methods_submit[];  /* submit.c */
extern const struct rb_server_method rb_methods_repeat[];  /* repeat.c */

struct rb_receipts *rb_receipts_new(struct rb_methods *methods); /* receipts.c */
void rb_receipts_free(struct rb_receipts *receipts);
void rb_receipts_look(struct rb_receipts *receipts);

#endif
