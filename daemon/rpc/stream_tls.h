/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream of tls: does to its bytes on their way: for stream.c alone.
 *
 * stream > [stream_tls] > proto/tls
 *
 * Nothing here touches a socket: what has come lies in `came`, and what is to go in `goes`. */
#ifndef RB_DAEMON_RPC_STREAM_TLS_H
#define RB_DAEMON_RPC_STREAM_TLS_H

#include "base/buffer.h"
#include "proto/tls.h"

struct rb_stream_tls {
    struct rb_tls_session *session;
    struct rb_buffer came, goes;
    bool stands; /* each knows who the other is */
    bool ended;  /* the other has said that nothing more comes */
};

/* host: the one that we call; NULL: the other side calls. */
int rb_stream_tls_new(struct rb_tls *tls, const char *host, struct rb_stream_tls **ret_tls,
                      struct rb_why *why);
void rb_stream_tls_free(struct rb_stream_tls *tls);

/* Go on with what has come: agree with the other side, then add what it says to `in`.  What is in
 * `goes` has to be sent, after an error, too. */
int rb_stream_tls_move(struct rb_stream_tls *tls, struct rb_buffer *in, struct rb_why *why);

/* Add the bytes, sealed, to `goes`.  The session stands. */
int rb_stream_tls_seal(struct rb_stream_tls *tls, const void *bytes, size_t size,
                       struct rb_why *why);

#endif
