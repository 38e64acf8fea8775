/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs: models and initial weights, as files named by their content.
 *
 * submit > [blobs] > agent > worker
 *
 * A blob never changes; writing one that is there does nothing.  A node fetches a blob that it
 * lacks from the node that has it, by the RPC method `blob`. */
#ifndef RB_DAEMON_RPC_BLOBS_H
#define RB_DAEMON_RPC_BLOBS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct rb_blobs;
struct rb_server;

/* No other process writes in the folder: what was left half written is removed. */
int rb_blobs_open(uv_loop_t *loop, const char *folder, struct rb_blobs **ret_blobs,
                  struct rb_why *why);
void rb_blobs_close(struct rb_blobs *blobs); /* pending fetches end without their callback */

int rb_blobs_put(struct rb_blobs *blobs, const void *bytes, size_t size, char ret_digest[33],
                 struct rb_why *why);

/* The same into a folder of blobs, on any thread: large blobs take longer than the daemon's loop
 * may.  *ret_new (may be NULL): the blob was not there. */
int rb_blobs_write(const char *folder, const void *bytes, size_t size, char ret_digest[33],
                   bool *ret_new, struct rb_why *why);
const char *rb_blobs_folder(const struct rb_blobs *blobs);

/* A blob that is held stays: a job that is being submitted needs blobs that no fact names yet.
 * Holds are counted. */
void rb_blobs_hold(struct rb_blobs *blobs, const char *digest);
void rb_blobs_release(struct rb_blobs *blobs, const char *digest);

/* Remove a blob unless it is held.  One that is on its way is not kept either: callers that wait
 * for it hear RB_ECANCELED. */
void rb_blobs_remove(struct rb_blobs *blobs, const char *digest);

bool rb_blobs_has(const struct rb_blobs *blobs, const char *digest);

/* Where a blob is, or would be; owned by `blobs`, valid until the next call. */
const char *rb_blobs_path(struct rb_blobs *blobs, const char *digest);

/* 32 lower-case hex digits?  Anything else is no blob and never becomes a path. */
bool rb_blobs_digest_valid(const char *digest);

/* Make the blob be here: from `node` if it is missing.  `done` runs exactly once, later. */
void rb_blobs_fetch(struct rb_blobs *blobs, struct rb_server *server, const char *node,
                    const char *digest,
                    void (*done)(int err, const struct rb_why *why, void *context), void *context);

#endif
