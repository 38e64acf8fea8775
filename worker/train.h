/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread: what a worker does between its start and its end.
 *
 * mailbox > [train] > opening, step, evaluate, saver > reports
 *
 *             go                    aligned               all votes say n
 *   IDLE -----------> OPENING(n) ------------> TRAINING ------------------> OPENING(n), LEFT for a
 * leaver ^  |  |                 |  |  | go for n      |  |  | lost a peer     |  |  | lost a peer
 *   FROZEN, LEFT, DONE -  |  +---> FROZEN <----+  |  +---> FROZEN
 *                         |                       | level is the last
 *                         +--> DONE <-------------+
 *
 *   OPENING, TRAINING -- broken beyond repair --> FAILED        any -- told to leave --> LEAVING
 *   LEAVING -- it cannot save, and is told to stay --> FROZEN
 *
 * Where n only gathers the state, to be saved, FROZEN follows in the place of TRAINING. */
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
