/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection to one worker: proto/control.proto on the socket that it listens on.
 *
 * agent > [worker_link] > rubato-worker
 *
 * Connects, again and again until it is closed; each connection begins with the greeting. */
#ifndef RB_DAEMON_AGENT_WORKER_LINK_H
#define RB_DAEMON_AGENT_WORKER_LINK_H

#include "control.pb-c.h"

#include <sys/types.h>
#include <uv.h>

struct rb_worker_link;

struct rb_worker_link_events {
    /* A connection stands: say the first words with rb_worker_link_send.  pid: the other side's. */
    void (*connected)(pid_t pid, void *context);
    void (*message)(const Rb__FromWorker *message, void *context);
    /* The connection broke, or was refused; another try follows. */
    void (*lost)(void *context);
};

struct rb_worker_link *rb_worker_link_new(uv_loop_t *loop, const char *socket_path,
                                          const struct rb_worker_link_events *events,
                                          void *context);

/* The message is lost silently where no connection stands. */
void rb_worker_link_send(struct rb_worker_link *link, const Rb__ToWorker *message);
void rb_worker_link_close(struct rb_worker_link *link);

#endif
