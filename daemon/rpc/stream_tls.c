/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/stream_tls.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 16 << 10 }; /* bytes of one record at most */

static ssize_t pull(void *context, void *to, size_t room)
{
    struct rb_stream_tls *tls = context;
    const size_t n = tls->came.size < room ? tls->came.size : room;

    if (!n) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(to, tls->came.data, n);
    rb_buffer_drop(&tls->came, n);
    return (ssize_t)n;
}

static ssize_t push(void *context, const void *bytes, size_t size)
{
    struct rb_stream_tls *tls = context;

    rb_buffer_add(&tls->goes, bytes, size);
    return (ssize_t)size;
}

int rb_stream_tls_new(struct rb_tls *tls, const char *host, struct rb_stream_tls **ret_tls,
                      struct rb_why *why)
{
    struct rb_stream_tls *made = rb_alloc(sizeof *made);
    const struct rb_tls_line line = {pull, push, made};
    int err = rb_tls_open(tls, host, &line, &made->session, why);

    if (err)
        rb_stream_tls_free(made);
    else
        *ret_tls = made;
    return err;
}

void rb_stream_tls_free(struct rb_stream_tls *tls)
{
    if (!tls)
        return;
    rb_tls_close(tls->session);
    rb_buffer_done(&tls->came);
    rb_buffer_done(&tls->goes);
    free(tls);
}

int rb_stream_tls_move(struct rb_stream_tls *tls, struct rb_buffer *in, struct rb_why *why)
{
    int err = tls->stands ? 0 : rb_tls_shake(tls->session, why);

    if (!err)
        tls->stands = true;
    while (!err && !tls->ended) {
        const size_t left = tls->came.size;
        size_t got;

        err = rb_tls_read(tls->session, rb_buffer_reserve(in, RECORD), RECORD, &got, why);
        if (err == RB_EAGAIN && tls->came.size && tls->came.size < left) {
            err = 0; /* it was a message of TLS itself, as of new keys: what came behind it waits */
        } else if (!err) {
            in->size += got;
            tls->ended = !got;
        }
    }
    return err == RB_EAGAIN ? 0 : err;
}

int rb_stream_tls_seal(struct rb_stream_tls *tls, const void *bytes, size_t size,
                       struct rb_why *why)
{
    size_t put;

    for (size_t at = 0; at < size; at += put) {
        int err = rb_tls_write(tls->session, (const char *)bytes + at, size - at, &put, why);

        if (err)
            return err;
    }
    return 0;
}
