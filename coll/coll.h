/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: what a step may ask of the other workers of its configuration.
 *
 * worker > [coll] > links (shared memory, unix, TCP)
 *
 * A `struct rb_coll` is one group of ranks at one configuration.  It never changes size; a new
 * configuration opens a new group, and frames of the old one cannot reach it.  Calls block the
 * calling thread and may be made by one thread at a time.  No call can hang: a peer whose link ends
 * makes every call that still needs it return RB_EPEER, rb_coll_cancel makes calls return
 * RB_ECANCELED, and a peer that sends anything but this group's protocol ends the group with
 * RB_EINTERNAL.  After an error the group can only be asked which peers are lost, and closed: the
 * others hear of the error when it is closed.  What a rank sent before it closed still arrives.
 *
 * Sums are of integers modulo 2^32, so the algorithm cannot change a bit of them. */
#ifndef RB_COLL_COLL_H
#define RB_COLL_COLL_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rb_coll;
struct rb_listener;

/* ---- Meeting ---------------------------------------------------------------------------------
 * A listener is a worker's door for its peers: a unix socket at `path` and a TCP port at `host`
 * (port 0: any), one for the life of the process; either may be NULL.  Its thread keeps connections
 * by the number of the configuration that they name until rb_coll_open asks for them.  A socket
 * that an earlier process left at `path` is removed. */
int rb_listener_open(const char *path, const char *host, struct rb_listener **ret_listener,
                     struct rb_why *why);
/* "unix:PATH", "tcp:HOST:PORT": the addresses for peers, best first; NULL past the last. */
const char *rb_listener_address(const struct rb_listener *listener, int i);
void rb_listener_close(struct rb_listener *listener);

struct rb_coll_member {
    const char *worker; /* unique name of the process */
    const char *const *addresses;
    int n_addresses;
};

struct rb_group {
    const char *job;
    uint32_t configuration;
    const char *digest; /* of members and plan: peers with another digest are refused */
    int rank, size;
    const struct rb_coll_member *members; /* by rank */
    bool no_shared_memory;                /* only unix sockets between ranks of one host */
};

/* Connect to every member of `group` (copied).  Blocks until all are there, at most `timeout_ms`;
 * *cancel (may be NULL) set to true by another thread ends the wait within 50 ms.  Workers on one
 * host get shared memory, else unix, else TCP.  May run beside the step of another group.
 *
 * RB_ETIMEOUT names the missing members; RB_EREFUSED: the peer has another job, digest or member
 * list; RB_EPEER: a member left again. */
int rb_coll_open(struct rb_listener *listener, const struct rb_group *group, int timeout_ms,
                 const atomic_bool *cancel, struct rb_coll **ret_coll, struct rb_why *why);

/* From now on look for `ns` before sleeping, where every rank of this host has a core (waking up
 * takes 30 to 50 us on a virtual machine).  It is 2 us at first, because a newcomer and the member
 * that feeds it wait beside threads that compute, whose cores they would take. */
void rb_coll_look_for(struct rb_coll *coll, uint64_t ns);

int rb_coll_rank(const struct rb_coll *coll);
int rb_coll_size(const struct rb_coll *coll);

/* How `rank` is reached: "shared memory", "unix", "tcp", "none" for this rank itself. */
const char *rb_coll_link(const struct rb_coll *coll, int rank);

/* ---- Calls ----------------------------------------------------------------------------------
 * Every rank makes the same calls in the same order.  `tag` says which (step, attempt, bucket ...
 * mixed as the caller likes); ranks that disagree on a tag or a length get RB_EINTERNAL. */

/* out[i] = sum over ranks of in[i]; `in` is left as it is.  in != out. */
int rb_coll_sum(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out, size_t n,
                struct rb_why *why);

/* The same for ranges, all at once: in each range `rank` alone has out[first ..] = sum over ranks
 * of in[first ..], and no other rank's `out` is touched there; or all have the sum.  Ranges may
 * overlap where their ranks differ; every rank gives the same list.
 *
 * The traffic for a range of b bytes that `makers` of n ranks send: for one rank, each other maker
 * sends it b.  For all ranks: of a small range (8 KB) each maker sends all to every rank; else a
 * single maker sends b in all, and each other rank passes on b / (n - 1) to each of the rest; and
 * each of several makers sends b / n to every rank, as every rank then does with its sum. */
enum { RB_COLL_ALL = -1 };
struct rb_coll_range {
    int rank; /* or RB_COLL_ALL */
    size_t first, count;
    const bool *from; /* by rank: makers, which send `in`; it is 0 at others; NULL: all */
};
int rb_coll_sum_ranges(struct rb_coll *coll, uint64_t tag, const int32_t *in, int32_t *out,
                       const struct rb_coll_range *ranges, size_t n, struct rb_why *why);

/* Bytes from some ranks to others, all at once.  Every rank gives the same list, in which `bytes`
 * is the place at this rank; a rank that has no part in a move does not look at its `bytes`. */
struct rb_coll_move {
    int from, to;
    void *bytes;
    size_t size;
};
int rb_coll_move(struct rb_coll *coll, uint64_t tag, const struct rb_coll_move *moves, size_t n,
                 struct rb_why *why);

/* all[r * bytes ..] = what rank r gave. */
int rb_coll_gather(struct rb_coll *coll, uint64_t tag, const void *mine, void *all, size_t bytes,
                   struct rb_why *why);

/* Do all ranks say yes?  No rank has the answer before all have come here. */
int rb_coll_agree(struct rb_coll *coll, uint64_t tag, bool yes, bool *ret_all, struct rb_why *why);

/* Every rank gets root's bytes. */
int rb_coll_broadcast(struct rb_coll *coll, uint64_t tag, int root, void *bytes, size_t size,
                      struct rb_why *why);

/* From one rank to another.  Sending may wait for the receiver; two ranks that send to each other
 * at once wait for ever if neither message fits the link. */
int rb_coll_send(struct rb_coll *coll, uint64_t tag, int to, const void *bytes, size_t size,
                 struct rb_why *why);
int rb_coll_receive(struct rb_coll *coll, uint64_t tag, int from, void *bytes, size_t size,
                    struct rb_why *why);

/* The same without waiting: what the link does not take now is copied, and goes while this rank is
 * in other calls or nudges the group.  Posts arrive in front of anything that this rank sends there
 * later, in the order of posting, and are received like messages of rb_coll_send.  Posts to a rank
 * that never receives them take memory until the group is closed. */
int rb_coll_post(struct rb_coll *coll, uint64_t tag, int to, const void *bytes, size_t size,
                 struct rb_why *why);

/* The same for one message whose bytes lie apart at either end: `pieces` in their order; the two
 * ends need not cut the message alike. */
int rb_coll_post_pieces(struct rb_coll *coll, uint64_t tag, int to, const struct iovec *pieces,
                        size_t n, struct rb_why *why);
int rb_coll_receive_pieces(struct rb_coll *coll, uint64_t tag, int from, const struct iovec *pieces,
                           size_t n, struct rb_why *why);

/* Send what was posted as far as links take it now. */
int rb_coll_nudge(struct rb_coll *coll, struct rb_why *why);

/* Send all that was posted, waiting for the receivers: for a caller that is about to wait for the
 * others in another way than by these calls.  Each receiver must come to what was posted to it
 * without anything else from this rank, and without first waiting in such a way itself. */
int rb_coll_flush(struct rb_coll *coll, struct rb_why *why);

/* Wait until a message of one of `from` (by rank) has begun to arrive, and return its rank; -1:
 * `fd` (-1: none) has become readable, or the time is up.  RB_EPEER: the link of one of `from` has
 * ended, with nothing left in it. */
int rb_coll_wait(struct rb_coll *coll, const bool *from, int fd, int timeout_ms, int *ret_rank,
                 struct rb_why *why);

/* ---- Views -----------------------------------------------------------------------------------
 * Memory that the ranks of one host show each other.  A rank that has a view reads the memory as it
 * lies, beside all calls, whatever becomes of the group and of the rank that shows it. */
struct rb_coll_view {
    const void *memory; /* NULL: there is none */
    size_t bytes;
};

/* Every rank gives a file (a memfd that cannot shrink; -1: none) and its bytes, and gets views of
 * the others' files, by rank, none of its own.  *ret_all: every rank got all views; else no rank
 * got any.  All links must be shared memory. */
int rb_coll_show(struct rb_coll *coll, uint64_t tag, int file, size_t bytes,
                 struct rb_coll_view *ret_views, bool *ret_all, struct rb_why *why);
void rb_coll_view_done(struct rb_coll_view *view);

/* ---- Ends -----------------------------------------------------------------------------------*/

/* From any thread: pending and later calls return RB_ECANCELED. */
void rb_coll_cancel(struct rb_coll *coll);

/* Has the link to `rank` ended?  Looks without blocking; safe from any thread.  Over TCP the end of
 * a dead process shows behind what it sent: soon after a call has failed, perhaps not before. */
bool rb_coll_lost(struct rb_coll *coll, int rank);

/* Was the group canceled, or has any link ended?  For a caller that waits for the others in another
 * way than by these calls; from the thread that makes the calls. */
bool rb_coll_over(struct rb_coll *coll);

uint64_t rb_coll_bytes_sent(const struct rb_coll *coll);
void rb_coll_close(struct rb_coll *coll);

#endif
