/* SPDX-License-Identifier: Apache-2.0 */
/* Feeding newcomers while training goes on: blocks, then what each step did to them.
 *
 * update (log) > [feed] > the links of a configuration that is prepared > follow, in newcomers
 *
 * A feed is a thread of a member that trains.  It copies a block under the window's lock, sends it,
 * and goes on; the sums of each step go into a queue, and through the links before the next block.
 * Training does not wait for it: a newcomer that says nothing or dies ends the feed, and the agent
 * hears Unready.  Only where newcomers are so slow, on a busy machine or a busy link, that more
 * entries wait than there is room for, training pauses for as long as they catch up.  Until the
 * flip only the feed uses the links; a step that needs them first waits for the last entry to be
 * out (rb_feed_settle).
 *
 * Where the state is in shards, each newcomer is given what it is to hold, by members that hold it.
 *
 * A feed begins anew with each configuration. */
#ifndef RB_WORKER_JOIN_FEED_H
#define RB_WORKER_JOIN_FEED_H

#include "coll/coll.h"
#include "worker/control/reports.h"
#include "worker/join/roster.h"
#include "worker/model.h"
#include "worker/state/placement.h"
#include "worker/step/update.h"
#include "worker/step/vote.h"

#include <stdatomic.h>
#include <stdbool.h>

struct rb_feed;

enum {
    RB_FEED_SILENCE_MS = 10000, /* newcomers give a sign of life each second */
    RB_FEED_QUEUE = 4,          /* entries that may wait in any case, */
    RB_FEED_BYTES = 128 << 20,  /* and how many bytes of sums beyond */
    RB_FEED_EASE_MS = 10000,    /* how long training waits for a feed where that many wait, */
    RB_FEED_STUCK_MS = 500,     /* and how long while nothing moves in it */
};

/* Feed the newcomers of `roster` what they are to hold by `placement` (both must outlive the feed)
 * as its source `rank`, through `coll`, which belongs to configuration `number`.  RB_EAGAIN: this
 * member does not train in `term` any more. */
int rb_feed_open(struct rb_model *model, struct rb_coll *coll, uint32_t number, uint32_t rank,
                 const struct rb_roster *roster, const struct rb_placement *placement,
                 uint32_t term, struct rb_reports *reports, struct rb_feed **ret_feed,
                 struct rb_why *why);

/* Do all newcomers of the feed have everything at `level`?  A source states this in its vote. */
bool rb_feed_level(struct rb_feed *feed, int64_t level);

/* The same, after waiting for newcomers that have all blocks already, or until `stop`: a step may
 * be shorter than the way to them and back.  Waits 20 ms at most, and twice as long after each wait
 * in vain, up to 640. */
bool rb_feed_wait_level(struct rb_feed *feed, int64_t level, const atomic_bool *stop);

/* Before a vote, without the window's lock.  If as many entries wait as may: wait until the
 * newcomers of the window's feed have everything at `level`, the present one, until they do not get
 * any nearer, or until `stop`. */
void rb_feed_ease(struct rb_window *window, int64_t level, const atomic_bool *stop);

/* Wait until the links are free: the newcomers have acknowledged the entry of the step that
 * flipped.  0, or why they have not. */
int rb_feed_settle(struct rb_feed *feed, struct rb_why *why);

/* Free the feed; where it still runs it is given up, without a report.  NULL is fine. */
void rb_feed_close(struct rb_feed *feed);

/* ---- With the window's lock held --------------------------------------------------------------*/

/* An update has brought the state to a new level: tell the window's feed, if it has one.  terms:
 * those of a commit, whose sums are in model->reduced (which is another buffer afterwards); NULL: a
 * skip. */
void rb_feed_log(struct rb_window *window, struct rb_model *model,
                 const struct rb_update_terms *terms, const struct rb_vote_decision *decision);

/* Give the feed up; the agent is told why. */
void rb_feed_halt(struct rb_feed *feed, const char *reason);

#endif
