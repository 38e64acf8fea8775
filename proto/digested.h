/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that carries a digest of itself: the manifests of checkpoints.
 *
 * writers > [digested] > text > [digested] > readers who find any byte that has changed
 *
 * Integers and strings alone, keys sorted: there is one way to write it, and only that is read. */
#ifndef RB_PROTO_DIGESTED_H
#define RB_PROTO_DIGESTED_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

/* Gives an object its "digest"; the text, ending in a newline, is the caller's to free.  NULL: it
 * holds strings that are no UTF-8. */
char *rb_digested_text(json_t *object);

/* `object` was read from `text`: it loses its "digest".  RB_EINVAL: it is not what was written. */
int rb_digested_check(json_t *object, const char *text, size_t size, struct rb_why *why);

/* ---- In a checkpoint's folder ---- */

/* Its manifest, state.json; json_decref it.  RB_ENOTFOUND: there is none, it is no checkpoint.
 * RB_EINVAL: it is damaged. */
int rb_digested_open(const char *folder, json_t **ret_manifest, struct rb_why *why);

/* Is the file there what the manifest lists?  Reads all of it. */
int rb_digested_file(const char *folder, const char *name, const json_t *manifest,
                     struct rb_why *why);

#endif
