/* SPDX-License-Identifier: Apache-2.0 */
/* The store: facts in memory, kept level with etcd, and changed by transactions.
 *
 * watch, etcd client > [store] > coordinator, agent, RPC methods
 *
 * On the loop's thread.  When etcd does not answer, the last known facts stay and the store tries
 * again for ever. */
#ifndef RB_DAEMON_ETCD_STORE_H
#define RB_DAEMON_ETCD_STORE_H

#include "daemon/facts/facts.h"
#include "daemon/facts/writes.h"

#include <uv.h>

struct rb_etcd;
struct rb_store;

struct rb_store *rb_store_new(uv_loop_t *loop, struct rb_etcd *etcd);

/* Ends the watch and drops what is pending: callbacks get RB_ECANCELED, and what was sent
 * may have been written. */
void rb_store_free(struct rb_store *store);

/* Call `changed` after every change of facts (at most once for what came together), after the first
 * list, and when the watch is lost and found.  Up to 16 watchers, called in order of arrival. */
void rb_store_watch(struct rb_store *store, void (*changed)(void *context), void *context);

/* The snapshot: valid until the loop runs again. */
const struct rb_facts *rb_store_facts(struct rb_store *store);

bool rb_store_synced(const struct rb_store *store);    /* the first list has come */
bool rb_store_connected(const struct rb_store *store); /* the watch stands now */

/* Why etcd, which answers, did not take a write a moment ago: it is out of room.  NULL: it did. */
const char *rb_store_refused(const struct rb_store *store);

/* The lease of leased writes; 0: none, they fail with RB_EUNREACHABLE. */
void rb_store_set_lease(struct rb_store *store, int64_t lease);
int64_t rb_store_lease(const struct rb_store *store);

/* The outcome of a commit.
 *
 * RB_OK: made; facts have it already (so that what is read next contains what was written), unless
 * the watch takes longer than CATCH_UP_MS (store.c) to tell of it.
 * RB_ESTALE: a guard did not hold, nothing was written; look at the facts again.
 * RB_EUNREACHABLE, RB_ETIMEOUT: etcd did not answer: it may or may not have been made.
 * RB_ELIMIT: more than RB_WRITES_MOST in a transaction, or a value of more than 1 MiB. */
typedef void rb_store_committed(int err, const struct rb_why *why, void *context);

/* Commit each transaction of `writes` (copied), in order, each behind `fence` (copied; NULL: none).
 * Where a transaction was made, the fence of the next one has its revision.  `done` (may be NULL)
 * runs exactly once, later, with the first error.  Transactions after a refused one are still
 * tried, those after an unreachable etcd are not. */
void rb_store_commit(struct rb_store *store, const struct rb_writes *writes,
                     const struct rb_fence *fence, rb_store_committed *done, void *context);

#endif
