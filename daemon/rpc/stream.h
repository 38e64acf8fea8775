/* SPDX-License-Identifier: Apache-2.0 */
/* Byte streams on the loop: unix sockets, TCP and TLS, seen as one thing.
 *
 * server, client calls, worker links > [stream] > stream_tls, libuv
 *
 * Addresses are unix:PATH, tcp:HOST:PORT and tls:HOST:PORT (an IPv6 HOST in brackets).  With `tls`
 * no connection is made over tcp:, without it none over tls:.  No callback runs from within a
 * function of this header, and none after rb_stream_close. */
#ifndef RB_DAEMON_RPC_STREAM_H
#define RB_DAEMON_RPC_STREAM_H

#include "base/buffer.h"
#include "base/error.h"
#include "proto/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

/* The time that a new connection has to agree on TLS, and then to say something. */
enum { RB_STREAM_GREET_MS = 10000 };

struct rb_stream;
struct rb_listen;

struct rb_stream_events {
    /* The other side is there, and is the one it should be.  May be NULL. */
    void (*connected)(struct rb_stream *stream, void *context);
    /* More bytes are in `in`: take what is whole with rb_buffer_drop. */
    void (*bytes)(struct rb_stream *stream, struct rb_buffer *in, void *context);
    /* Everything written is on its way.  May be NULL. */
    void (*drained)(struct rb_stream *stream, void *context);
    /* The other side is gone or was never there; close the stream.  Called once, and nothing comes
     * after it. */
    void (*ended)(struct rb_stream *stream, int err, const struct rb_why *why, void *context);
};

struct rb_stream *rb_stream_connect(uv_loop_t *loop, const char *address, struct rb_tls *tls,
                                    const struct rb_stream_events *events, void *context);
void rb_stream_close(struct rb_stream *stream);

/* Hand over what `bytes` holds, and leave it empty.  Until the connection stands the bytes wait. */
void rb_stream_write(struct rb_stream *stream, struct rb_buffer *bytes);
size_t rb_stream_pending(const struct rb_stream *stream); /* bytes not yet written */

void rb_stream_pause(struct rb_stream *stream, bool paused); /* stop reading, go on reading */

/* The stream ends where no byte comes for so long; 0, as at first: it may be silent. */
void rb_stream_expect(struct rb_stream *stream, uint64_t ms);

/* The stream ends, with RB_ETIMEOUT, where the other side takes nothing of what is written for so
 * long; 0, as at first: however long.  This is for what is written from now on. */
void rb_stream_expect_taken(struct rb_stream *stream, uint64_t ms);

/* Process id of the other side of a connected unix socket; 0: unknown. */
pid_t rb_stream_peer(const struct rb_stream *stream);

/* Has the other side hung up behind what has been read?  True before the stream's end is reported;
 * with TLS, which has a closing message of its own, not always. */
bool rb_stream_over(const struct rb_stream *stream);

/* accepted: takes the stream, and gives it events with rb_stream_set.
 * unix sockets get mode 0600; one of a dead process is replaced.  RB_EEXISTS: in use.
 * ret_address: at least 128 bytes; with the port that was chosen for port 0, as in messages.
 * A caller that comes while no descriptor is left waits for one. */
int rb_stream_listen(uv_loop_t *loop, const char *address, struct rb_tls *tls,
                     void (*accepted)(struct rb_stream *stream, void *context), void *context,
                     char *ret_address, struct rb_listen **ret_listen, struct rb_why *why);
void rb_stream_set(struct rb_stream *stream, const struct rb_stream_events *events, void *context);
void rb_listen_close(struct rb_listen *listen);

#endif
