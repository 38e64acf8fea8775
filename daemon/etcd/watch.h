/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror of facts that is kept level with etcd, by list and watch.
 *
 * etcd client > [watch] > store
 *
 * On the loop's thread.  When etcd does not answer, what is known stays and the watch tries again
 * for ever. */
#ifndef RB_DAEMON_ETCD_WATCH_H
#define RB_DAEMON_ETCD_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct rb_etcd;
struct rb_mirror;
struct rb_watch;

/* `changed` runs, from within etcd's callbacks, when the mirror is replaced or its contents change,
 * and when the watch is lost and found. */
struct rb_watch *rb_watch_new(uv_loop_t *loop, struct rb_etcd *etcd, void (*changed)(void *context),
                              void *context);

/* `changed` runs no more; the watch goes, with its mirror, when the loop runs again. */
void rb_watch_free(struct rb_watch *watch);

struct rb_mirror *rb_watch_mirror(const struct rb_watch *watch);

/* The mirror is level with etcd up to here; 0: that is not known, and the keys are listed anew. */
int64_t rb_watch_revision(const struct rb_watch *watch);

bool rb_watch_synced(const struct rb_watch *watch);    /* the first list has come */
bool rb_watch_connected(const struct rb_watch *watch); /* it stands now */

#endif
