/* SPDX-License-Identifier: Apache-2.0 */
/* etcd, and how a rubatod sees it.
 *
 * writes > [sim_store] > changes, in order > each client's own mirror, late
 *
 * The store has revisions, leases that run out, guarded transactions and compaction.  A client is
 * daemon/etcd/store.c, watch.c and lease.c as far as others can see them: it lists, watches, is
 * lost and comes back; a transaction whose answer does not come may have been made. */
#ifndef RB_TESTS_DAEMON_SIM_STORE_H
#define RB_TESTS_DAEMON_SIM_STORE_H

#include "sim.h"

struct sim_change {
    int64_t revision, created, lease;
    const char *key, *value; /* value NULL: deleted */
};

void sim_store_begin(struct sim *sim);
void sim_store_end(struct sim *sim);
/* One transaction: RB_OK, or RB_ESTALE. */
int sim_store_txn(struct sim *sim, const struct rb_write *writes, size_t n, int64_t lease,
                  const struct rb_fence *fence, int64_t *ret_revision);
int sim_store_commit(struct sim *sim, struct rb_writes *writes); /* a user's; and empties them */
int64_t sim_store_grant(struct sim *sim);
bool sim_store_keep(struct sim *sim, int64_t lease); /* false: there is none */
void sim_store_revoke(struct sim *sim, int64_t lease);
void sim_store_compact(struct sim *sim);
void sim_store_stand(struct sim *sim, bool up);
bool sim_store_up(const struct sim *sim);
int64_t sim_store_revision(const struct sim *sim);
int64_t sim_store_compacted(const struct sim *sim);
/* Changes from `revision` on, and every key that exists. */
const struct sim_change *sim_store_changes(const struct sim *sim, int64_t revision, size_t *ret_n);
const struct sim_change *sim_store_list(const struct sim *sim, size_t *ret_n);

/* ---- A client (sim_client.c) ------------------------------------------------------------------*/

struct sim_commit;
typedef void sim_committed(struct sim *sim, int err, void *who, void *what);

struct sim_client {
    struct sim *sim;
    struct sim_node *node;
    struct sim_client *next; /* list of all clients */
    struct rb_mirror *mirror;
    int64_t revision;
    bool synced, connected, closed;
    uint64_t stamp;     /* of the watch that is open */
    uint64_t delivered; /* when the last change on its way arrives */
    uint64_t probe;     /* stamp: one clock */
    unsigned unanswered, backoff;
    struct sim_commit *commits; /* that wait for the watch to catch up */
    int64_t lease;
    bool confirmed;
    void (*changed)(struct sim *sim, void *who);
    void (*leased)(struct sim *sim, void *who, int64_t lease);
    void *who;
};

struct sim_client *sim_client_open(struct sim *sim, struct sim_node *node, int64_t lease,
                                   void (*changed)(struct sim *, void *),
                                   void (*leased)(struct sim *, void *, int64_t), void *who);
bool sim_client_reaches(const struct sim_client *client); /* etcd, now */
uint64_t sim_client_way(struct sim *sim);                 /* how long a message takes there */
void sim_client_caught_up(struct sim_client *client);
void sim_client_close(struct sim_client *client); /* no callback is called any more */
const struct rb_facts *sim_client_facts(struct sim_client *client);
int64_t sim_client_lease(const struct sim_client *client);
/* Commit (and empty) `writes`, each transaction behind `fence`; `done` once, unless closed first.
 */
void sim_client_commit(struct sim_client *client, struct rb_writes *writes,
                       const struct rb_fence *fence, sim_committed *done, void *what);
void sim_clients_notice(struct sim *sim); /* the store has something new */
void sim_clients_done(struct sim *sim);

#endif
