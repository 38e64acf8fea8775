/* SPDX-License-Identifier: Apache-2.0 */
/* What is saved and when: saves that the agent asks for, periodic ones, at the end, on leaving.
 *
 * step thread, mailbox > [saves] > saver
 *
 * Weights are everywhere, so an export can be made at any time, except in a pipeline whose state is
 * in shards.  Such an export, and a checkpoint of any state in shards, needs all ranks: the rank
 * that has one to write asks for it in the vote, and is given the whole state after the step. */
#ifndef RB_WORKER_CHECKPOINT_SAVES_H
#define RB_WORKER_CHECKPOINT_SAVES_H

#include "worker/checkpoint/collect.h"
#include "worker/checkpoint/saver.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"

/* Owned by the step thread.  `model` and `saver` are NULL before the first configuration. */
struct rb_saves {
    const struct rb_worker_options *options;
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    const struct rb_model *model;
    struct rb_saver *saver;
    struct rb_save_order waiting; /* the save that needs all ranks; folder NULL: none */
    int64_t begun;                /* the level of the newest periodic checkpoint */
    bool gathered; /* the saver has a copy of the whole of the last step's state in shards */
};

/* Once the model is loaded: start the saver.  A second call is fine. */
int rb_saves_open(struct rb_saves *saves, const struct rb_model *model, struct rb_why *why);
void rb_saves_close(struct rb_saves *saves);

/* Can a save begin now?  For rb_mailbox_wait. */
bool rb_saves_ready(void *saves);

/* Begin the saves that the agent asked for, as far as the saver has time; refuse them without
 * state.  trains: a save that needs all ranks waits for the next vote; else it is refused. */
void rb_saves_serve(struct rb_saves *saves, bool trains);

/* Does this rank want the whole state of the next level?  The rank says so in the vote.  Without
 * memory for the state the answer is no, and the saves that need it are refused. */
bool rb_saves_want(struct rb_saves *saves, uint32_t rank, int64_t next);

/* All ranks call this: the state goes to the `collector`, which begins to save it. */
int rb_saves_collect(struct rb_saves *saves, const struct rb_configuration *configuration,
                     uint32_t collector, struct rb_why *why);

/* Rank 0 writes the periodic checkpoint; a slow disk holds up the training rather than leave one
 * out. */
void rb_saves_periodically(struct rb_saves *saves, uint32_t rank);

/* Save a checkpoint into `folder` before this returns.  ret_saved says how it went, in any case.
 * RB_EREFUSED: the whole state is not here; RB_EIO: it could not be written. */
int rb_saves_now(struct rb_saves *saves, const char *folder, struct rb_saved *ret_saved);

/* Removes what was saved in `folder` before.  Call it only when the new checkpoint was reported: a
 * worker that dies before that leaves the checkpoint that the facts name. */
void rb_saves_prune(const struct rb_saves *saves, const char *folder);

/* rb_saves_now at the end of a run whose state is in shards: all ranks call this, rank 0 saves.
 * folder: NULL where nothing is to be saved; then, and at other ranks, ret_saved is left alone. */
int rb_saves_last(struct rb_saves *saves, const struct rb_configuration *configuration,
                  const char *folder, struct rb_saved *ret_saved, struct rb_why *why);

/* Before the state changes: wait until the saver has its copy. */
void rb_saves_wait_copied(struct rb_saves *saves);

#endif
