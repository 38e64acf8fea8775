/* SPDX-License-Identifier: Apache-2.0 */
/* A job's weights, as safetensors, in pieces.
 *
 * rubatod > [weights] > export, verify */
#ifndef RB_CTL_WEIGHTS_H
#define RB_CTL_WEIGHTS_H

#include "ctl/session.h"

/* Calls `piece` with each piece in order; a result other than 0 ends the fetch.  While the state is
 * on its way to where it is kept the request is repeated, for two minutes.  *ret_reply: {step,
 * bytes, notes?}. */
int rb_weights_fetch(const struct rb_session *session, const char *job, rb_client_piece *piece,
                     void *context, json_t **ret_reply, struct rb_why *why);

enum { RB_WEIGHTS_SHA256 = 65 }; /* in hexadecimal, ended */

/* The SHA-256 of the file that `export` would write, and the step of its weights. */
int rb_weights_sha256(const struct rb_session *session, const char *job,
                      char ret_text[RB_WEIGHTS_SHA256], int64_t *ret_step, struct rb_why *why);

#endif
