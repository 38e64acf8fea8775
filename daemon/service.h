/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager hears: that the node is ready, how it does, that its loop turns, that it
 * leaves.
 *
 * life > [service] > systemd, by the protocol of sd_notify(3) on NOTIFY_SOCKET
 *
 * Where no such socket is given it does nothing.  The protocol is a few words in datagrams, so
 * there is no library for it.  The socket is ours alone: processes that rubatod starts do not
 * inherit it, among them etcd, which would say that it is ready in our name. */
#ifndef RB_DAEMON_SERVICE_H
#define RB_DAEMON_SERVICE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct rb_service_seen {
    const char *node;
    size_t devices, workers; /* workers: that live here */
    bool started;            /* etcd has answered, and workers are adopted */
    bool ready;              /* other nodes know of this one; once told it is never untold */
    bool connected;          /* etcd answers */
    bool leads;
    bool leaving;
    uint64_t leave_ms; /* how long leaving may take, by the settings */
};

/* One line, without its end: "node a: 4 devices, 3 workers, coordinator".  Pure. */
void rb_service_status(const struct rb_service_seen *seen, struct rb_buffer *out);

struct rb_service;

/* To be called before other threads and processes are started.  `see` says what there is to tell,
 * on the loop, as often as the manager wants to hear that the loop turns, and once a second. */
struct rb_service *rb_service_new(uv_loop_t *loop,
                                  void (*see)(void *context, struct rb_service_seen *ret),
                                  void *context);

/* Tell what is new now. */
void rb_service_look(struct rb_service *service);

void rb_service_free(struct rb_service *service); /* the loop must run once more behind it */

#endif
