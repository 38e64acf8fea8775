/* SPDX-License-Identifier: Apache-2.0 */
/* A reply, with the headers that all have: no browser guesses its type or puts it in a frame, and
 * no page of ours loads or runs what is not ours.
 *
 * answer, api > [reply] > libmicrohttpd */
#ifndef RB_DAEMON_HTTP_REPLY_H
#define RB_DAEMON_HTTP_REPLY_H

#include "base/buffer.h"

#include <microhttpd.h>

struct rb_reply {
    unsigned status;
    const char *type, *allow; /* allow NULL: nothing is said of it */
    struct rb_buffer body;
};

/* {"error": text} */
void rb_reply_error(struct rb_reply *reply, unsigned status, const char *text);

/* Queue the reply; its body is gone after that. */
enum MHD_Result rb_reply_send(struct rb_reply *reply, struct MHD_Connection *connection);

#endif
