/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs from inside: for daemon/rpc/blobs*.c alone.
 *
 *     blobs.c: the folder, and what stays in it   blobs_fetch.c: what comes from other nodes */
#ifndef RB_DAEMON_RPC_BLOBS_INSIDE_H
#define RB_DAEMON_RPC_BLOBS_INSIDE_H

#include "daemon/rpc/blobs.h"

enum { RB_BLOBS_DIGEST = 32 };

struct rb_blobs {
    uv_loop_t *loop;
    char *folder;
    char *path;
    struct rb_blobs_fetch *fetches;
    struct hold *holds;
};

/* Say whether a blob is still wanted.  If it is on its way and is not wanted, it is not kept. */
void rb_blobs_fetch_want(struct rb_blobs *blobs, const char *digest, bool wanted);

/* No waiter is called back any more; what a thread is writing just now is still written. */
void rb_blobs_fetches_close(struct rb_blobs *blobs);

#endif
