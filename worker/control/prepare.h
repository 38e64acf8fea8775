/* SPDX-License-Identifier: Apache-2.0 */
/* The preparing thread: loads the model and meets the members of the next configurations, while
 * training goes on in the present one.
 *
 * mailbox (Configure) > [prepare] > mailbox (a prepared configuration), Ready or Unready */
#ifndef RB_WORKER_CONTROL_PREPARE_H
#define RB_WORKER_CONTROL_PREPARE_H

#include "coll/coll.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"
#include "worker/control/reports.h"

struct rb_preparer;

int rb_preparer_open(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                     struct rb_reports *reports, struct rb_listener *listener,
                     struct rb_preparer **ret_preparer, struct rb_why *why);
/* Waits for the thread, which ends when the worker is told to leave, then frees the model. */
void rb_preparer_close(struct rb_preparer *preparer);

#endif
