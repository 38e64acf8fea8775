/* SPDX-License-Identifier: Apache-2.0 */
/* state.json: the counters, exponents and files of a checkpoint, with a digest of itself.
 *
 * checkpoint > [manifest] > state.json > [manifest] > restore */
#ifndef RB_WORKER_CHECKPOINT_MANIFEST_H
#define RB_WORKER_CHECKPOINT_MANIFEST_H

#include "worker/state/state.h"

struct rb_manifest_file {
    const char *name; /* in the checkpoint's folder */
    uint64_t bytes;
    char digest[33];
};

/* The text, ending in a newline; the caller frees it.  RB_EINVAL for names that are no UTF-8. */
int rb_manifest_text(const Rb__Model *model, const struct rb_state *state,
                     const struct rb_manifest_file *files, int n, char **ret_text,
                     struct rb_why *why);

/* Read text that nobody has to trust.  `files` come in with their names and get bytes and digest;
 * exactly these must be listed.  Fills counters and exponents of `state`, which must be of `model`.
 *
 * RB_EINVAL: not a manifest, or damaged.  RB_EREFUSED: the checkpoint is of another job file. */
int rb_manifest_read(const char *text, size_t size, const Rb__Model *model, struct rb_state *state,
                     struct rb_manifest_file *files, int n, struct rb_why *why);

#endif
