/* SPDX-License-Identifier: Apache-2.0 */
/* A job on its way from its file to facts: what the files of `submit` share.
 *
 *     submit.c: checked > submit_place.c: where it may run > submit_compile.c, on threads
 *     (submit_folder.c: alone in its folder) > submit_write.c: what goes into facts
 *     repeat.c: one that is there already, once more > submit_write.c
 *
 * Private to daemon/rpc/submit*.c and repeat.c. */
#ifndef RB_DAEMON_RPC_SUBMIT_INSIDE_H
#define RB_DAEMON_RPC_SUBMIT_INSIDE_H

#include "base/buffer.h"
#include "daemon/facts/facts.h"
#include "daemon/facts/writes.h"
#include "plan/compile/compile.h"

#include <jansson.h>

struct rb_methods;

/* A checkpoint folder that another job has, as its job file has it. */
struct rb_submission_claim {
    char *folder, *name;
    const char *phase;
};

struct rb_submission {
    char *name;
    Rb__Spec *spec;
    char *folder; /* of blobs */
    struct rb_submission_claim *claims;
    size_t n_claims;

    /* Where it may run. */
    char *numeric_class;
    char *worker;     /* the program that times models; NULL: nothing here is of the job's class */
    char *kind;       /* of the device here that times */
    uint32_t ordinal; /* and which of its kind it is */
    uint64_t memory;  /* of a device of the class, the smallest; 0: unknown */

    /* What came of it. */
    struct rb_compiled compiled;
    bool has_compiled;
    uint32_t replicas;
    Rb__Footprint *footprint;        /* NULL: activations are not for each configuration to keep */
    struct rb_buffer model, profile; /* messages; no profile: empty */
    char *resume;                    /* the checkpoint that it goes on from; NULL: none */
    int64_t resume_step;
    char written[3][33]; /* model, weights, profile: blobs, */
    bool is_new[3];      /* of which these were not there */
};

/* A job runs in one class for good: that of the best devices of its kind (NULL or "any": of any
 * kind) that it may have; where there are none, `own`, the class of the cores of node `here`.
 * RB_EREFUSED: no node has a device of that kind. */
int rb_submission_class(const struct rb_facts *facts, const char *here, const char *own,
                        const char *kind, const char **ret_class, struct rb_why *why);

/* Find where a job of its class will be timed, and what memory the job may take. */
void rb_submission_place(struct rb_submission *job, const struct rb_facts *facts, const char *here,
                         const char *own);

/* Note what folder another job has: one that is being submitted, or each that is not over. */
void rb_submission_claim(struct rb_submission *job, const Rb__Spec *other, const char *name,
                         const char *phase);
void rb_submission_claim_all(struct rb_submission *job, const struct rb_facts *facts);
void rb_submission_claims_done(struct rb_submission *job);

/* On a thread, for a folder may be on a file system that does not answer.  RB_EREFUSED: a noted
 * folder is the job's own, be it by another name. */
int rb_submission_alone(const struct rb_submission *job, struct rb_why *why);

/* On a thread: compile it, look for a checkpoint to go on from, and write its blobs.  What is wrong
 * with the model or the data is the error. */
int rb_submission_compile(struct rb_submission *job, struct rb_why *why);

/* On a thread, when the blobs are held (else the deletion of a job of the same model takes the
 * model away from the program that times it): measure what a microbatch takes, by which the planner
 * may choose how the job runs.  Where there is nothing to choose, or timing fails, there is no
 * profile, and the job is data parallel. */
void rb_submission_time(struct rb_submission *job);

/* Put the job into `writes`, as a new one whose files node `node` has; and make the answer that
 * goes out when facts have it, the caller's. */
int rb_submission_write(struct rb_submission *made, const char *node, struct rb_writes *writes,
                        json_t **ret_reply, struct rb_why *why);

/* A new job's identifier: random. */
int rb_submission_id(char ret_id[13], struct rb_why *why);

/* A new job, the wish for what its spec wants, its state, and the event that tells of it. */
void rb_submission_put(const Rb__Job *job, const char *text, struct rb_writes *writes);

/* RB_EEXISTS: a job has the name, or one that is being submitted. */
int rb_submission_name_free(struct rb_methods *methods, const char *name, struct rb_why *why);

#endif
