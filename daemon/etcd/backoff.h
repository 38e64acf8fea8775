/* SPDX-License-Identifier: Apache-2.0 */
/* How long to wait before trying again: 50 ms, doubling to 2 s.
 *
 * lease, watch, private_etcd > [backoff] */
#ifndef RB_DAEMON_ETCD_BACKOFF_H
#define RB_DAEMON_ETCD_BACKOFF_H

#include <stdint.h>

struct rb_backoff {
    uint64_t ms; /* 0: no failure since the last success */
};

/* Another failure: how long to wait now. */
static inline uint64_t rb_backoff_next(struct rb_backoff *backoff)
{
    backoff->ms = backoff->ms ? backoff->ms * 2 : 50;
    if (backoff->ms > 2000)
        backoff->ms = 2000;
    return backoff->ms;
}

static inline void rb_backoff_reset(struct rb_backoff *backoff)
{
    backoff->ms = 0;
}

#endif
