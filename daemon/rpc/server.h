/* SPDX-License-Identifier: Apache-2.0 */
/* The RPC server: takes calls on sockets, serves them here or where they belong.
 *
 * rubatoctl, other rubatods > [server] > methods       docs/rpc.md
 *
 * On the loop's thread.  A method may answer at once or later; every request is answered exactly
 * once, also when the caller has hung up (then the answer goes nowhere). */
#ifndef RB_DAEMON_RPC_SERVER_H
#define RB_DAEMON_RPC_SERVER_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct rb_server;
struct rb_store;
struct rb_tls;
struct rb_request;
struct rb_client_call;

struct rb_server_method {
    const char *name;
    bool at_leader; /* else wherever the call says: `node`, or here */
    void (*handle)(struct rb_request *request, void *context);
    bool reads; /* and changes nothing that lasts: until some of its answer has come, it may be
                 * asked again of the next coordinator */
};

/* Finds addresses in facts: nodes and the leader. */
struct rb_server *rb_server_new(uv_loop_t *loop, struct rb_store *store, const char *node);

/* Speak TLS with other nodes; before it listens or calls.  Takes `tls`. */
void rb_server_secure(struct rb_server *server, struct rb_tls *tls);

/* `methods` ends with a NULL name and outlives the server. */
void rb_server_add(struct rb_server *server, const struct rb_server_method *methods, void *context);

/* unix:PATH (mode 0600; the socket of a dead process is replaced), tcp: or tls:HOST:PORT (port 0:
 * any). ret_address: 128 bytes, the address as others reach it.  RB_EEXISTS: in use. */
int rb_server_listen(struct rb_server *server, const char *address, char *ret_address,
                     struct rb_why *why);

/* Stop listening; further calls on open connections are answered with RB_EAGAIN. */
void rb_server_close(struct rb_server *server);
void rb_server_free(struct rb_server *server); /* the loop must run once more behind it */

/* ---- For methods ----------------------------------------------------------------------------- */

const json_t *rb_request_body(const struct rb_request *request); /* an object, never NULL */

/* A member of the body; a message naming it where it is absent or of another type. */
int rb_request_string(struct rb_request *request, const char *key, const char **ret,
                      struct rb_why *why);

/* The last reply; takes the reference to `body`.  The request is gone behind it. */
void rb_request_reply(struct rb_request *request, json_t *body);
void rb_request_fail(struct rb_request *request, int err, const struct rb_why *why);
void rb_request_failf(struct rb_request *request, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A piece of data before the last reply (copied). */
void rb_request_piece(struct rb_request *request, const void *data, size_t size);
/* A piece that came from a call of the method's own, which is held back while the caller takes
 * nothing; rb_request_passed has to be called before that call is over. */
void rb_request_pass(struct rb_request *request, struct rb_client_call *source, const void *data,
                     size_t size);
void rb_request_passed(struct rb_request *request);

/* Answer with the whole file in pieces, as fast as the caller takes them, then {bytes}; the request
 * is gone, later.  folders, NULL behind the last: RB_EREFUSED unless the file, with all links
 * followed, is one of them or below; NULL: it may be anywhere. */
void rb_request_file(struct rb_request *request, const char *path, const char *const *folders);
/* The same of a file of a checkpoint, all of which is read before the first piece goes out:
 * RB_EUNREADABLE where it is not what its manifest beside it lists. */
void rb_request_listed_file(struct rb_request *request, const char *path,
                            const char *const *folders);

/* Let `node` ("leader" or a name) answer this request with method `method` (NULL: the same) and
 * `body` (NULL: the same; the reference is taken).  The request is gone behind it. */
void rb_request_forward(struct rb_request *request, const char *node, const char *method,
                        json_t *body);

/* Has the caller hung up? */
bool rb_request_gone(const struct rb_request *request);
/* Call `gone` once, when the caller hangs up: it may end what is done for that caller alone, the
 * request as well.  NULL: nothing is called any more. */
void rb_request_when_gone(struct rb_request *request, void (*gone)(void *context), void *context);

/* ---- Calling others -------------------------------------------------------------------------- */

struct rb_client_options {
    const char *method;
    json_t *body;     /* the reference is taken */
    const char *node; /* name | "leader"; this node is called without a socket */
    uint32_t hops;
    uint64_t timeout_ms; /* without any reply; 0: 30 s */

    /* A piece of data (may be NULL). */
    void (*piece)(const void *data, size_t size, void *context);
    /* Exactly once, never from within rb_server_call.  `body` is the callee's reply; NULL on
     * errors; json_incref to keep it. */
    void (*done)(int err, const struct rb_why *why, const json_t *body, void *context);
    void *context;
};

/* Call a method on a node, this one included. */
struct rb_client_call *rb_server_call(struct rb_server *server,
                                      const struct rb_client_options *options);

/* From now on the call ends with RB_ETIMEOUT where no reply has come for so long. */
void rb_client_expect(struct rb_client_call *call, uint64_t timeout_ms);

/* End it: `done` is not called any more. */
void rb_client_cancel(struct rb_client_call *call);

#endif
