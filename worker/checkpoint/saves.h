/* SPDX-License-Identifier: Apache-2.0 */
/* What is saved and when: what the agent asks for, every so many steps, at the end, on leaving.
 *
 * step thread, mailbox > [saves] > saver
 *
 * Weights are everywhere, so an export can be made at any time, but in a pipeline whose state is in
 * shards.  That, and a checkpoint of any state in shards, needs all ranks: who has one to write
 * asks for it in the vote, and is given the whole behind the step. */
#ifndef RB_WORKER_CHECKPOINT_SAVES_H
#define RB_WORKER_CHECKPOINT_SAVES_H

#include "worker/checkpoint/collect.h"
#include "worker/checkpoint/saver.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"

/* The step thread's.  `model` and `saver` are NULL before the first configuration. */
struct rb_saves {
    const struct rb_worker_options *options;
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    const struct rb_model *model;
    struct rb_saver *saver;
    struct rb_save_order waiting; /* what needs all ranks; folder NULL: none */
    int64_t begun;                /* the level of the newest of those of every so many steps */
    bool gathered; /* the saver has a copy of the whole of the last step's state in shards */
};

/* The model is there: start the saver.  The second time is fine. */
int rb_saves_open(struct rb_saves *saves, const struct rb_model *model, struct rb_why *why);
void rb_saves_close(struct rb_saves *saves);

/* Can a save be begun now?  For rb_mailbox_wait. */
bool rb_saves_ready(void *saves);

/* Begin what the agent asked for, as far as the saver has time; refuse it without state.  trains:
 * what needs all ranks waits for the next vote, else it is refused. */
void rb_saves_serve(struct rb_saves *saves, bool trains);

/* Does this rank want the whole state of the next level?  What it says in the vote; without memory
 * for it, no, and what it was for is refused. */
bool rb_saves_want(struct rb_saves *saves, uint32_t rank, int64_t next);

/* All ranks: the state goes to the `collector`, which begins to save it. */
int rb_saves_collect(struct rb_saves *saves, const struct rb_configuration *configuration,
                     uint32_t collector, struct rb_why *why);

/* Rank 0 writes the checkpoint of every so many steps; a slow disk holds the training back rather
 * than leave one out. */
void rb_saves_periodically(struct rb_saves *saves, uint32_t rank);

/* Save a checkpoint into `folder` before this returns.  ret_saved says what came of it, in any
 * case. RB_EREFUSED: there is not the whole state here; RB_EIO: it could not be written. */
int rb_saves_now(struct rb_saves *saves, const char *folder, struct rb_saved *ret_saved);

/* What was saved there before goes.  Not before this one is told of: who dies in between leaves the
 * one that facts name. */
void rb_saves_prune(const struct rb_saves *saves, const char *folder);

/* The same at the end of a run whose state is in shards: all ranks, rank 0 saves.  folder: NULL
 * where nothing is to be saved; then, and elsewhere, ret_saved is left alone. */
int rb_saves_last(struct rb_saves *saves, const struct rb_configuration *configuration,
                  const char *folder, struct rb_saved *ret_saved, struct rb_why *why);

/* The state is about to change: wait until the saver has its copy. */
void rb_saves_wait_copied(struct rb_saves *saves);

#endif
