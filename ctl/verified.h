/* SPDX-License-Identifier: Apache-2.0 */
/* The result of training a job once more, in words and as JSON.
 *
 * verify > [verified] > stdout
 *
 * Pure. */
#ifndef RB_CTL_VERIFIED_H
#define RB_CTL_VERIFIED_H

#include "base/buffer.h"
#include "ctl/same_rows.h"
#include "ctl/weights.h"

#include <stdbool.h>

struct rb_verified {
    const char *job; /* its name */
    struct rb_same_rows rows;
    char there[RB_WEIGHTS_SHA256], again[RB_WEIGHTS_SHA256]; /* of the weights; empty: not asked */
};

bool rb_verified_same(const struct rb_verified *verified);

void rb_verified_text(const struct rb_verified *verified, struct rb_buffer *out);

/* {job, same, first, last, rows, devices: {least, most}, again: {least, most}, difference: null |
 * {step, column, job, again}, sha256: null | {job, again}} */
json_t *rb_verified_json(const struct rb_verified *verified);

#endif
