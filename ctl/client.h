/* SPDX-License-Identifier: Apache-2.0 */
/* One call to rubatod: connect, send, read replies.
 *
 * verbs > [client] > line > rubatod */
#ifndef RB_CTL_CLIENT_H
#define RB_CTL_CLIENT_H

#include "base/error.h"
#include "ctl/line.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Takes one piece of a file; a result other than 0 ends the call, and is its result. */
typedef int rb_client_piece(void *context, const void *bytes, size_t size, struct rb_why *why);

struct rb_client_call {
    struct rb_line_to to;
    const char *method;
    const char *node;       /* NULL: the node that is called */
    const json_t *body;     /* NULL: {} */
    int64_t quiet_ms;       /* RB_ETIMEOUT after so long without a reply */
    rb_client_piece *piece; /* NULL: pieces are an error */
    void *context;
};

/* *ret_body: the last reply's body, an object.  RB_EUNREACHABLE where rubatod does not answer or
 * the line breaks; otherwise the daemon's own code and sentence. */
int rb_client_call(const struct rb_client_call *call, json_t **ret_body, struct rb_why *why);

#endif
