/* SPDX-License-Identifier: Apache-2.0 */
/* What a path below /api asks for: one of the methods of docs/rpc.md that change nothing.
 *
 * path and arguments > [query] > method and body > api
 *
 * Pure.  What is not in its table cannot be asked for. */
#ifndef RB_DAEMON_HTTP_QUERY_H
#define RB_DAEMON_HTTP_QUERY_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

enum { RB_QUERY_ROWS = 4096 }; /* of metrics at a time, at most */

/* As they stand behind the `?`, unescaped. */
struct rb_query_argument {
    const char *name, *value; /* value NULL: there is no `=` */
};

/* ret_body: the caller's.  RB_ENOTFOUND: no such path; RB_EINVAL: an argument that it does not
 * take, that is missing, comes twice or says nothing. */
int rb_query_read(const char *path, const struct rb_query_argument *arguments, size_t n,
                  const char **ret_method, json_t **ret_body, struct rb_why *why);

/* The status of HTTP that an error is told with. */
unsigned rb_query_status(int err);

#endif
