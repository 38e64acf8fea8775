/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: GET and HEAD of /livez, /readyz, /metrics, and of the status page with what it
 * asks for below /api, for any client that reaches it.
 *
 * store, presence, agent, server > [http] > kubelet, Prometheus, browsers
 *
 * On the loop's thread, and on no other.  In the clear, and without authentication: the server only
 * tells, and changes nothing.  A connection is for one request, and over within 10 s however slow
 * its client is; 64 are served at a time, and further ones wait, for a second at most where those
 * before them ask nothing.  Half of the places never wait for the cluster. */
#ifndef RB_DAEMON_HTTP_HTTP_H
#define RB_DAEMON_HTTP_HTTP_H

#include "base/error.h"

struct rb_daemon;
struct rb_http;
struct rb_presence;

/* address: ADDRESS:PORT, port 0: any.  RB_EEXISTS: in use. */
int rb_http_new(struct rb_daemon *daemon, struct rb_presence *presence, const char *address,
                struct rb_http **ret_http, struct rb_why *why);

/* The address really taken; the server's. */
const char *rb_http_taken(const struct rb_http *http);

/* The node stops: not ready from now on. */
void rb_http_leave(struct rb_http *http);

/* Before the store and the server are freed; the loop must run once more behind it.  NULL is a
 * no-op. */
void rb_http_free(struct rb_http *http);

#endif
