/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `get jobs`, for other views that show it.
 *
 * a reply to `get` > [get] > top_view */
#ifndef RB_CTL_GET_H
#define RB_CTL_GET_H

#include "base/buffer.h"

#include <jansson.h>

/* A head, and one line a job. */
void rb_get_jobs(const json_t *items, struct rb_buffer *out);

#endif
