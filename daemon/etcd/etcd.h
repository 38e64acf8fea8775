/* SPDX-License-Identifier: Apache-2.0 */
/* The etcd client: calls and watches over HTTP, on the loop.
 *
 * store, lease, presence > [etcd] > libcurl > etcd's gateway
 *
 * Endpoints are tried in turn: one that does not answer hands over to the next.  Nothing is retried
 * here that might have been done already. */
#ifndef RB_DAEMON_ETCD_ETCD_H
#define RB_DAEMON_ETCD_ETCD_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct rb_etcd;
struct rb_etcd_call;

/* endpoints: http://HOST:PORT, https://HOST:PORT, unix:PATH. */
int rb_etcd_new(uv_loop_t *loop, const char *const *endpoints, size_t n, struct rb_etcd **ret_etcd,
                struct rb_why *why);

/* Trust https:// endpoints by `folder`/ca.crt alone, and show them tls.crt with tls.key where those
 * files are there.  To be called before anything is asked.  RB_EINVAL, RB_ENOTFOUND: the files are
 * not what they should be. */
int rb_etcd_secure(struct rb_etcd *etcd, const char *folder, struct rb_why *why);

/* Ends all calls without their callbacks.  The loop must run once more behind it. */
void rb_etcd_free(struct rb_etcd *etcd);

/* "http://a:2379, http://b:2379": for messages. */
const char *rb_etcd_names(const struct rb_etcd *etcd);

/* err: 0 with the answer (borrowed), or what rb_etcd_error_read says, or RB_EUNREACHABLE, or
 * RB_ETIMEOUT, or RB_EINVAL for an answer that is no JSON or is larger than 64 MiB. */
typedef void rb_etcd_answered(int err, const struct rb_why *why, const json_t *answer,
                              void *context);

/* POST `body` (taken and freed) to `path` ("/v3/kv/range").  `done` runs exactly once, later,
 * unless the call is cancelled. */
struct rb_etcd_call *rb_etcd_post(struct rb_etcd *etcd, const char *path, char *body,
                                  uint64_t timeout_ms, rb_etcd_answered *done, void *context);

/* Open a watch with `create` (a create_request; taken and freed).  `line` runs for each message;
 * the call may be cancelled in it.  `ended` runs exactly once when the stream is over.  A stream
 * that is silent because its server hangs does not end: a caller that needs to know must ask by
 * another call.  (A watch takes no further requests: the gateway answers only when the request is
 * over.) */
struct rb_etcd_call *rb_etcd_watch(struct rb_etcd *etcd, char *create,
                                   void (*line)(const json_t *message, void *context),
                                   rb_etcd_answered *ended, void *context);

/* No callback of the call runs any more. */
void rb_etcd_cancel(struct rb_etcd_call *call);

/* What was asked at the present endpoint is to be asked at the next one from now on. */
void rb_etcd_turn(struct rb_etcd *etcd);

#endif
