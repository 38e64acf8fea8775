/* SPDX-License-Identifier: Apache-2.0 */
/* Between the threads of a worker: orders to the step thread, its standing to the others.
 *
 * control thread > [mailbox] > preparing thread > [mailbox] > step thread
 *
 * Nothing here blocks but what waits for orders, of either thread, and that ends when the worker is
 * told to leave. */
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

/* False for an order of a leader older than one seen before. */
bool rb_mailbox_fence(struct rb_mailbox *mailbox, uint64_t fence);

void rb_mailbox_settings(struct rb_mailbox *mailbox, const Rb__Settings *settings);
/* Takes `order` over.  A newer one takes the place of one that was not told to go yet. */
void rb_mailbox_configure(struct rb_mailbox *mailbox, Rb__Configure *order);
/* foreseen: told together with the order to prepare it, before anybody is ready: who computes comes
 * to the end of its microbatches first. */
void rb_mailbox_go(struct rb_mailbox *mailbox, uint32_t number, bool foreseen);
void rb_mailbox_abandon(struct rb_mailbox *mailbox, uint32_t number);
void rb_mailbox_save(struct rb_mailbox *mailbox, const Rb__Save *save);
/* folder: where to save first, or NULL.  code: what the process exits with.  The first call counts.
 */
void rb_mailbox_leave(struct rb_mailbox *mailbox, const char *folder, int code);
/* Whoever was told to save and leave, and has not saved, is to stay (see rb_mailbox_stays). */
void rb_mailbox_stay(struct rb_mailbox *mailbox);
/* The group that the step thread trains in or opens is cancelled, if it stands at this level still;
 * and who has left its configuration there, and is in no call, is told (RB_EVENT_FREEZE). */
void rb_mailbox_freeze(struct rb_mailbox *mailbox, int64_t level);
/* How many ms it still hears out a vote before it saves and leaves, -1: it does not.  When the time
 * is over the vote is given up: somebody may be out of reach, and no link has ended. */
int rb_mailbox_hears_out(struct rb_mailbox *mailbox);

struct rb_status {
    uint32_t configured, ready, active;
    uint32_t said;  /* the newest configuration that it has said it entered */
    uint64_t fence; /* the newest that it has obeyed */
    int64_t level;
    bool frozen, done;
    bool saving;   /* it was told to save and leave */
    bool in_group; /* it opens or trains a configuration */
};
void rb_mailbox_status(struct rb_mailbox *mailbox, struct rb_status *ret_status);

/* ---- The preparing thread -------------------------------------------------------------------*/

/* The next configuration to prepare; NULL: leave.  Who is to save before may be told to stay: until
 * it has left this waits.  Free it with rb__configure__free_unpacked. */
Rb__Configure *rb_mailbox_next_order(struct rb_mailbox *mailbox);
/* True once the order that is being prepared is not wanted any more. */
const atomic_bool *rb_mailbox_unwanted(const struct rb_mailbox *mailbox);
/* The group that the preparing thread may be blocked in; NULL: none.  It is cancelled with the
 * order. */
void rb_mailbox_meet(struct rb_mailbox *mailbox, struct rb_coll *group);
/* Has this worker no state, and nothing to do but to wait for some?  Waits for the end of a
 * following that was cancelled. */
bool rb_mailbox_fresh(struct rb_mailbox *mailbox);
/* Hand over what was prepared; false (and it stays the caller's) where it is not wanted any more.
 */
bool rb_mailbox_prepared(struct rb_mailbox *mailbox, struct rb_configuration *configuration);
/* Free what is prepared. */
void rb_mailbox_clear(struct rb_mailbox *mailbox);
/* The model is loaded; it never changes again. */
void rb_mailbox_loaded(struct rb_mailbox *mailbox, struct rb_model *model);

/* ---- The step thread ------------------------------------------------------------------------*/

enum rb_event { RB_EVENT_LEAVE, RB_EVENT_OPEN, RB_EVENT_SAVE, RB_EVENT_FREEZE };

/* Wait for something to do outside of training: to leave, a configuration that was told to go or
 * that has a roster, when `can_save` a save, or to freeze. */
enum rb_event rb_mailbox_wait(struct rb_mailbox *mailbox, bool (*can_save)(void *owner),
                              void *owner);
/* Look again: can_save has changed.  From any thread. */
void rb_mailbox_kick(struct rb_mailbox *mailbox);

/* Takes out the configuration that was told to go or has a roster; NULL: none. */
struct rb_configuration *rb_mailbox_take(struct rb_mailbox *mailbox);

/* What to say in a vote.  *next is what this rank holds for the flip: taken out of the mailbox when
 * it is told to go; freed and NULL again when it was abandoned, replaced, or lost a member. */
void rb_mailbox_ready(struct rb_mailbox *mailbox, struct rb_configuration **next,
                      struct rb_vote_ready *ret_ready);
/* From there to here whoever is to save and leave waits for what comes of the vote: others may
 * commit by what it has said, and what it saves must not lack that step. */
void rb_mailbox_voted(struct rb_mailbox *mailbox);

/* The group that blocking calls may be in, so that others can cancel them; NULL before it is
 * closed. */
enum rb_group_use {
    RB_GROUP_TRAINING,  /* leaving counts, and going to a recovery that is not foreseen */
    RB_GROUP_OPENING,   /* an abandon too, and the order to go to another recovery */
    RB_GROUP_FOLLOWING, /* and, before it is told to go, a newer order to prepare */
};
void rb_mailbox_enter(struct rb_mailbox *mailbox, const struct rb_configuration *configuration,
                      enum rb_group_use use);

/* Does a save wait? */
bool rb_mailbox_has_save(struct rb_mailbox *mailbox);
/* Takes out the oldest save; false: none.  Strings in it are the caller's. */
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
/* Once that is set: the folder to save in first (NULL: none) and the exit code. */
const char *rb_mailbox_leave_folder(const struct rb_mailbox *mailbox, int *ret_code);
/* How often it was told to leave: whoever says so again does not know how it went so far. */
unsigned rb_mailbox_leaves(struct rb_mailbox *mailbox);
/* Was that taken back?  Then nothing of it is left, the folder neither. */
bool rb_mailbox_stays(struct rb_mailbox *mailbox);

#endif
