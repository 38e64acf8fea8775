/* SPDX-License-Identifier: Apache-2.0 */
/* Between the threads of a worker: orders to the step thread, and its status to the other threads.
 *
 * control thread > [mailbox] > preparing thread > [mailbox] > step thread
 *
 * Nothing here blocks except a wait for orders, by either thread, and that wait ends when the
 * worker is told to leave. */
#ifndef RB_WORKER_CONTROL_MAILBOX_H
#define RB_WORKER_CONTROL_MAILBOX_H

#include "coll/coll.h"
#include "control.pb-c.h"
#include "worker/configuration.h"
#include "worker/control/reports.h"
#include "worker/model.h"
#include "worker/step/vote.h"

#include <stdatomic.h>

struct rb_mailbox;

struct rb_mailbox *rb_mailbox_new(struct rb_reports *reports);
void rb_mailbox_free(struct rb_mailbox *mailbox);

/* ---- The control thread: orders --------------------------------------------------------------*/

/* False for an order of a leader that is older than one seen before. */
bool rb_mailbox_fence(struct rb_mailbox *mailbox, uint64_t fence);

void rb_mailbox_settings(struct rb_mailbox *mailbox, const Rb__Settings *settings);
/* Takes `order` over.  A newer order replaces one whose configuration was not told to go yet. */
void rb_mailbox_configure(struct rb_mailbox *mailbox, Rb__Configure *order);
/* foreseen: this came together with the order to prepare, before any member is ready, so a rank
 * that computes finishes its microbatches first. */
void rb_mailbox_go(struct rb_mailbox *mailbox, uint32_t number, bool foreseen);
void rb_mailbox_abandon(struct rb_mailbox *mailbox, uint32_t number);
void rb_mailbox_save(struct rb_mailbox *mailbox, const Rb__Save *save);
/* folder: where to save first, or NULL.  code: what the process exits with.  Both count only in the
 * first call. */
void rb_mailbox_leave(struct rb_mailbox *mailbox, const char *folder, int code);
/* A worker that was told to save and leave, and has not saved, is to stay (see
 * rb_mailbox_stays). */
void rb_mailbox_stay(struct rb_mailbox *mailbox);
/* Cancels the group that the step thread trains in or opens, if the thread is still at this
 * level.  A worker that has left its configuration at this level, and is in no call, gets
 * RB_EVENT_FREEZE. */
void rb_mailbox_freeze(struct rb_mailbox *mailbox, int64_t level);
/* For how many more ms the worker hears out a vote before it saves and leaves; -1: it hears none
 * out.  When the time is over the vote is given up: a peer may be out of reach although no link has
 * ended. */
int rb_mailbox_hears_out(struct rb_mailbox *mailbox);

struct rb_status {
    uint32_t configured, ready, active;
    uint32_t said;  /* the newest configuration whose entry it has reported */
    uint64_t fence; /* the newest that it has obeyed */
    int64_t level;
    bool frozen, done;
    bool saving;   /* it was told to save and leave */
    bool in_group; /* it opens or trains a configuration */
};
void rb_mailbox_status(struct rb_mailbox *mailbox, struct rb_status *ret_status);

/* ---- The preparing thread -------------------------------------------------------------------*/

/* The next configuration to prepare; NULL: leave.  A worker that is to save and leave may be told
 * to stay, so this waits until it has left.  Free it with rb__configure__free_unpacked. */
Rb__Configure *rb_mailbox_next_order(struct rb_mailbox *mailbox);
/* True once the order that is being prepared is not wanted any more. */
const atomic_bool *rb_mailbox_unwanted(const struct rb_mailbox *mailbox);
/* The group that the preparing thread may be blocked in; NULL: none.  The group is cancelled with
 * the order. */
void rb_mailbox_meet(struct rb_mailbox *mailbox, struct rb_coll *group);
/* Has this worker no state, and nothing to do but wait for some?  First waits for the end of a
 * following that was cancelled. */
bool rb_mailbox_fresh(struct rb_mailbox *mailbox);
/* Hand over what was prepared.  False: it is not wanted any more, and stays the caller's. */
bool rb_mailbox_prepared(struct rb_mailbox *mailbox, struct rb_configuration *configuration);
/* Free what is prepared. */
void rb_mailbox_clear(struct rb_mailbox *mailbox);
/* The model is loaded; it never changes again. */
void rb_mailbox_loaded(struct rb_mailbox *mailbox, struct rb_model *model);

/* ---- The step thread ------------------------------------------------------------------------*/

enum rb_event { RB_EVENT_LEAVE, RB_EVENT_OPEN, RB_EVENT_SAVE, RB_EVENT_FREEZE };

/* Wait for something to do outside of training: to leave, to take a configuration that was told to
 * go or that has a roster, to save (if `can_save`), or to freeze. */
enum rb_event rb_mailbox_wait(struct rb_mailbox *mailbox, bool (*can_save)(void *owner),
                              void *owner);
/* Make the wait ask can_save again.  From any thread. */
void rb_mailbox_kick(struct rb_mailbox *mailbox);

/* Takes out the configuration that was told to go or that has a roster; NULL: none. */
struct rb_configuration *rb_mailbox_take(struct rb_mailbox *mailbox);

/* What to say in a vote.  *next is the configuration that this rank holds for the flip: taken out
 * of the mailbox when it is told to go; freed and NULL again when it was abandoned, replaced, or
 * lost a member. */
void rb_mailbox_ready(struct rb_mailbox *mailbox, struct rb_configuration **next,
                      struct rb_vote_ready *ret_ready);
/* Ends what rb_mailbox_ready begins: in between, a worker that is to save and leave waits for the
 * outcome of the vote.  Others may commit by what this rank has said, and its save must not lack
 * that step. */
void rb_mailbox_voted(struct rb_mailbox *mailbox);

/* The group that blocking calls of the step thread may be in, so that other threads can cancel
 * them.  Set it to NULL before the group is closed. */
enum rb_group_use {
    RB_GROUP_TRAINING,  /* cancelled by leaving, and by going to a recovery not foreseen */
    RB_GROUP_OPENING,   /* by leaving, by an abandon, and by going to another recovery */
    RB_GROUP_FOLLOWING, /* by leaving, by an abandon, and before its go by a newer order */
};
void rb_mailbox_enter(struct rb_mailbox *mailbox, const struct rb_configuration *configuration,
                      enum rb_group_use use);

/* Is a save waiting? */
bool rb_mailbox_has_save(struct rb_mailbox *mailbox);
/* Takes out the oldest save; false: none.  The caller owns its strings. */
struct rb_save_order {
    uint64_t request;
    char *folder;
    bool export_only;
};
bool rb_mailbox_take_save(struct rb_mailbox *mailbox, struct rb_save_order *ret_save);

struct rb_settings {
    char *checkpoint_path; /* NULL: none */
    int64_t checkpoint_every, checkpoint_keep;
    char *final_folder; /* NULL: the agent has not said */
};
/* A copy; free it with rb_settings_done. */
void rb_mailbox_copy_settings(struct rb_mailbox *mailbox, struct rb_settings *ret_settings);
void rb_settings_done(struct rb_settings *settings);

struct rb_model *rb_mailbox_model(struct rb_mailbox *mailbox);
void rb_mailbox_stand(struct rb_mailbox *mailbox, const struct rb_status *status);

/* Set when the worker is to leave. */
const atomic_bool *rb_mailbox_stop(const struct rb_mailbox *mailbox);
/* Once rb_mailbox_stop is set: the folder to save in first (NULL: none) and the exit code. */
const char *rb_mailbox_leave_folder(const struct rb_mailbox *mailbox, int *ret_code);
/* How often the worker was told to leave: a sender that repeats the order does not know how the
 * leaving went so far. */
unsigned rb_mailbox_leaves(struct rb_mailbox *mailbox);
/* Was the order to leave taken back?  Then all of it is cleared, the folder too. */
bool rb_mailbox_stays(struct rb_mailbox *mailbox);

#endif
