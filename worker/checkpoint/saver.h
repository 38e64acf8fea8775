/* SPDX-License-Identifier: Apache-2.0 */
/* Saving beside the training: a thread takes a snapshot of the state, and then writes it at its
 * leisure.
 *
 * step thread > [saver] > checkpoint > Saved to the agent
 *
 * One save at a time; the step thread asks rb_saver_ready first.  Updates of a whole state may go
 * on at once; before the step thread changes the state in any other way, it calls
 * rb_saver_wait_copied. */
#ifndef RB_WORKER_CHECKPOINT_SAVER_H
#define RB_WORKER_CHECKPOINT_SAVER_H

#include "worker/control/options.h"
#include "worker/control/reports.h"
#include "worker/model.h"

struct rb_saver;

struct rb_save {
    uint64_t request; /* the agent's number of the request; 0: this worker's own save */
    const char *folder;
    bool export_only;
    bool prune; /* a periodic checkpoint: keep the newest `keep` of them */
    int64_t keep;
};

/* How a save went, as it is reported to the agent.  The caller owns the strings. */
struct rb_saved {
    uint64_t request;
    int64_t step;
    char *folder; /* of the checkpoint itself, FOLDER/step-N; of an export: FOLDER */
    uint64_t bytes;
    char *error; /* NULL: it went well */
};

/* Save `state` now, on the calling thread. */
void rb_save_run(const Rb__Model *model, const struct rb_state *state, const struct rb_save *save,
                 const char *job, const char *worker, struct rb_saved *ret_saved);
void rb_saved_done(struct rb_saved *saved);
/* The message borrows from `saved`. */
void rb_saved_message(const struct rb_saved *saved, Rb__Saved *message);
void rb_saved_post(const struct rb_saved *saved, struct rb_reports *reports);

/* idle(owner) is called from the thread each time it becomes idle. */
int rb_saver_open(const struct rb_model *model, const struct rb_worker_options *options,
                  struct rb_reports *reports, void (*idle)(void *owner), void *owner,
                  struct rb_saver **ret_saver, struct rb_why *why);
/* Is the thread idle, with memory for a copy?  The first call makes it get that memory: ask again
 * when it is idle. */
bool rb_saver_ready(struct rb_saver *saver);
/* Begin; the saver must be idle.  `save` is copied; for the state see worker/checkpoint/snapshot.h.
 */
void rb_saver_start(struct rb_saver *saver, const struct rb_save *save);
void rb_saver_wait_copied(struct rb_saver *saver);

/* Where no rank has the whole state.  lend: waits until the saver is idle and returns its copy, for
 * the caller to fill, counters included; NULL: no memory.  write: writes the filled copy. */
struct rb_state *rb_saver_lend(struct rb_saver *saver);
void rb_saver_write(struct rb_saver *saver, const struct rb_save *save);
void rb_saver_wait(struct rb_saver *saver);
void rb_saver_close(struct rb_saver *saver); /* first finishes what the thread does; NULL is fine */

#endif
