/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between callers and rubatod, with certificates of one authority on both sides.
 *
 * rubatod's streams, rubatoctl's client > [tls] > GnuTLS
 *
 * A folder holds this side's identity and the authority it trusts: ca.crt, tls.crt and tls.key, the
 * names that Kubernetes' secrets have (PEM).  The called side must be certified for the name or
 * address that it is called by, and as a server; the caller, as a client.  Only TLS 1.3.  Files
 * that have changed are read again for the next session, so certificates can be renewed while
 * everything runs.
 *
 * A session moves bytes through its line, which never waits. */
#ifndef RB_PROTO_TLS_H
#define RB_PROTO_TLS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rb_tls;
struct rb_tls_session;

/* -1 and EAGAIN in errno: nothing is there, or nothing can be sent, for now.  pull: 0 when nothing
 * more will come. */
struct rb_tls_line {
    ssize_t (*pull)(void *context, void *to, size_t room);
    ssize_t (*push)(void *context, const void *bytes, size_t size);
    void *context;
};

/* RB_EINVAL, RB_ENOTFOUND, RB_EREFUSED: the files are not what they should be, or cannot be
 * read. */
int rb_tls_new(const char *folder, struct rb_tls **ret_tls, struct rb_why *why);
void rb_tls_free(struct rb_tls *tls); /* sessions may go on */

/* Will others with the same authorities take this side's certificate when they call it as `host`,
 * and when it calls them?  RB_EINVAL: no. */
int rb_tls_serves(const struct rb_tls *tls, const char *host, struct rb_why *why);

/* Read the files again if they have changed, as rb_tls_open does by itself.  *ret_new (may be
 * NULL): they have changed, and serve from now on.  Errors as of rb_tls_new: the present files will
 * not do, and the previous ones serve on. */
int rb_tls_renew(struct rb_tls *tls, bool *ret_new, struct rb_why *why);

/* Since when and until when others take this side's certificate: as long as the certificate, its
 * authority and all between them are valid.  Unix seconds. */
void rb_tls_valid(const struct rb_tls *tls, int64_t *ret_from, int64_t *ret_until);

/* Call `host`, or, if it is NULL, be called.  Nothing moves yet. */
int rb_tls_open(struct rb_tls *tls, const char *host, const struct rb_tls_line *line,
                struct rb_tls_session **ret_session, struct rb_why *why);
void rb_tls_close(struct rb_tls_session *session);

/* 0: both sides know each other.  RB_EAGAIN: the line has to move first.  RB_EREFUSED: one side
 * does not trust the other, which has been told.  RB_EPEER: the line broke. */
int rb_tls_shake(struct rb_tls_session *session, struct rb_why *why);

/* Bytes of the other side; *ret_size is 0 at their end.  Errors as above: that the other side does
 * not trust this one may be known only here. */
int rb_tls_read(struct rb_tls_session *session, void *to, size_t room, size_t *ret_size,
                struct rb_why *why);

/* Writes some of the bytes, or returns RB_EAGAIN: then call it once more, with the same bytes. */
int rb_tls_write(struct rb_tls_session *session, const void *bytes, size_t size, size_t *ret_size,
                 struct rb_why *why);

/* After RB_EAGAIN: is room to write missing? */
bool rb_tls_writes(const struct rb_tls_session *session);

#endif
