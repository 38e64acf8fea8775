/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` shows: all jobs and nodes, or one job with its losses and its devices.
 *
 * top > [top_view] > lines > terminal
 *
 * Pure.  What rubatod has not said is left out, so a view without any data is possible. */
#ifndef RB_CTL_TOP_VIEW_H
#define RB_CTL_TOP_VIEW_H

#include "ctl/history.h"
#include "ctl/lines.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum rb_top_order {
    RB_TOP_AS_TOLD,
    RB_TOP_BY_NAME,
    RB_TOP_BY_PHASE,
    RB_TOP_BY_STEP,
    RB_TOP_BY_DEVICES,
    RB_TOP_ORDERS,
};

struct rb_top_seen {
    const json_t *jobs, *nodes, *devices; /* lists of items, of all jobs */
    const char *chosen;                   /* id of the job under the cursor; NULL: the first */
    enum rb_top_order order;

    const char *job;                  /* the job that is shown; NULL: all */
    const json_t *status, *events;    /* of that job: a reply, a list of items */
    const struct rb_history *history; /* its rows; never NULL */

    const char *trouble; /* NULL: rubatod answers */
    bool help;
    uint64_t heard; /* unix ms: when this was the state */
};

/* Up to as many lines as a terminal has; `blocks`: it shows more than ASCII. */
void rb_top_view(const struct rb_top_seen *seen, int width, int height, bool blocks,
                 struct rb_lines *out);

/* The id of the job `by` lines below the cursor, or the nearest one; NULL: no job. */
const char *rb_top_move(const struct rb_top_seen *seen, int by);

#endif
