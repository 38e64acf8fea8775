/* SPDX-License-Identifier: Apache-2.0 */
/* What tls.c and tls_keys.c share: keys.  A session keeps the keys that it began with. */
#ifndef RB_PROTO_TLS_INSIDE_H
#define RB_PROTO_TLS_INSIDE_H

#include "proto/tls.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

/* What a set of files said. */
struct rb_tls_keys {
    int users;
    gnutls_certificate_credentials_t credentials;
};

/* The newest keys; the caller is one of their users until rb_tls_keys_drop. */
struct rb_tls_keys *rb_tls_keys_take(struct rb_tls *tls);
void rb_tls_keys_drop(struct rb_tls_keys *keys); /* NULL: nothing */

/* What GnuTLS has found wrong with a certificate, in a sentence; free it with gnutls_free. */
char *rb_tls_explain(unsigned found);

#endif
