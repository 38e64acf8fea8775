/* SPDX-License-Identifier: Apache-2.0 */
/* A job's weights, as safetensors, in pieces.
 *
 * rubatod > [weights] > export, verify */
#ifndef RB_CTL_WEIGHTS_H
#define RB_CTL_WEIGHTS_H

#include "ctl/session.h"

/* Each piece in its order; what `piece` returns ends it if it is not 0.  While the state is on its
 * way to where it is kept it is asked for again, for two minutes.  *ret_reply: {step, bytes,
 * notes?}. */
int rb_weights_fetch(const struct rb_session *session, const char *job, rb_client_piece *piece,
                     void *context, json_t **ret_reply, struct rb_why *why);

enum { RB_WEIGHTS_SHA256 = 65 }; /* in hexadecimal, ended */

/* Of what `export` would write, and the step whose weights these are. */
int rb_weights_sha256(const struct rb_session *session, const char *job,
                      char ret_text[RB_WEIGHTS_SHA256], int64_t *ret_step, struct rb_why *why);

#endif
