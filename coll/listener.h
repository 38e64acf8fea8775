/* SPDX-License-Identifier: Apache-2.0 */
/* The door's inner side: what rb_coll_open asks of a listener.
 *
 * peers > (its thread) > [listener] > meet
 *
 * A thread accepts connections, reads hellos, and keeps the arrivals by configuration; the thread
 * that opens a configuration takes its arrivals.  Strangers who say nothing or nonsense are shown
 * out.  Safe from any thread. */
#ifndef RB_COLL_LISTENER_H
#define RB_COLL_LISTENER_H

#include "coll/coll.h"
#include "coll/hello.h"

struct rb_arrival {
    int fd;     /* connected, non-blocking, hello read; the taker's to close */
    bool local; /* came by the unix socket */
    struct rb_hello hello;
};

/* Write to `event` (an eventfd) whenever a peer arrives for `configuration`, until forgotten. */
void rb_listener_expect(struct rb_listener *listener, uint32_t configuration, int event);
void rb_listener_forget(struct rb_listener *listener, int event);

/* Take the next arrival for `configuration`; false: there is none. */
bool rb_listener_take(struct rb_listener *listener, uint32_t configuration, struct rb_arrival *ret);

#endif
