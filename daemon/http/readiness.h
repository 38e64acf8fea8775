/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness: may this node be counted on?  And if not, why, in words for people.
 *
 * presence, store > [readiness] > /readyz, metrics
 *
 * Pure. */
#ifndef RB_DAEMON_HTTP_READINESS_H
#define RB_DAEMON_HTTP_READINESS_H

#include "base/buffer.h"

#include <stdbool.h>

struct rb_readiness {
    bool leaving;       /* told to stop, and draining */
    bool synced;        /* facts were there once */
    bool connected;     /* etcd answers */
    bool registered;    /* the node's key stands in etcd */
    const char *leader; /* node that coordinates; NULL: none is known */
};

/* Write the reasons against it, a line each, or "ok" where there is none; true: there is none. */
bool rb_readiness_say(const struct rb_readiness *seen, struct rb_buffer *out);

#endif
