/* SPDX-License-Identifier: Apache-2.0 */
/* Which settings of the job that wrote a checkpoint are not those of a new one.
 *
 * state.json, Model > [differs] > resume
 *
 * Both keep the settings that their spec digest is made of (plan/compile/job.h), key by key. */
#ifndef RB_DAEMON_RPC_DIFFERS_H
#define RB_DAEMON_RPC_DIFFERS_H

#include "plan.pb-c.h"

#include <jansson.h>

/* "train.seed is 1 there and 2 here, ..." by the names that job files have for them, the first few;
 * of a checkpoint that was written without its settings, as much as can be told.  The caller frees
 * it. */
char *rb_differs_say(const json_t *manifest, const Rb__Model *model);

#endif
