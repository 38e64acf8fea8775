/* SPDX-License-Identifier: Apache-2.0 */
/* How far a job is, in one line, for a user who waits for it.
 *
 * a reply to `status` > [progress] > stderr; top */
#ifndef RB_CTL_PROGRESS_H
#define RB_CTL_PROGRESS_H

#include "ctl/session.h"

/* "step 1200/50000 | loss 3.2143 | 632 samples/s | 2 devices | eta 11m22s" */
void rb_progress_line(const json_t *status, struct rb_buffer *out);

/* A terminal shows one line that changes; elsewhere a line is printed every ten seconds. */
struct rb_progress {
    const struct rb_session *session;
    uint64_t next; /* ns */
    bool open;     /* a line without an end is on the terminal */
};

void rb_progress_show(struct rb_progress *progress, const json_t *status);

/* To be called before anything else is printed; without an open line it does nothing. */
void rb_progress_end(struct rb_progress *progress);

#endif
