/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread: what a worker does between its start and its end.
 *
 * mailbox > [train] > opening, step, evaluate, saver > reports
 *
 *   IDLE, FROZEN, LEFT, DONE  wait for a configuration to go into:
 *                             OPENING, or FOLLOWING where its training members feed this newcomer
 *   OPENING, FOLLOWING        the state is here: TRAINING, or FROZEN where it was only gathered to
 *                             be saved; it cannot be had: FROZEN, a newcomer is IDLE as before
 *   TRAINING                  a step: TRAINING; the last one: DONE; a lost peer: FROZEN; all votes
 *                             name n: FLIPPING, or OPENING without a roster; LEFT where this worker
 *                             is not in n
 *   FLIPPING                  TRAINING in n
 *   LEAVING (from any)        ENDED, its state saved if that was asked for; it cannot be saved, and
 *                             this worker is to stay: FROZEN
 *   FAILED (from any)         broken beyond repair: ENDED, once an agent has heard why */
#ifndef RB_WORKER_TRAIN_H
#define RB_WORKER_TRAIN_H

#include "worker/control/control.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"
#include "worker/control/reports.h"

/* Runs until the worker is to end; returns its exit code. */
int rb_train_run(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                 struct rb_reports *reports, struct rb_control *control);

enum rb_exit { RB_EXIT_OK = 0, RB_EXIT_USAGE = 64, RB_EXIT_DATA = 65, RB_EXIT_INTERNAL = 70 };

#endif
