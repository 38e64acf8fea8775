/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that carries a digest of itself: the manifests of checkpoints.
 *
 * writers > [digested] > text > [digested] > readers, which notice any changed byte
 *
 * Only integers and strings, with sorted keys: there is one way to write an object, and only that
 * text is read. */
#ifndef RB_PROTO_DIGESTED_H
#define RB_PROTO_DIGESTED_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

/* Gives an object its "digest" and returns the text, which ends in a newline; the caller frees it.
 * NULL: the object holds strings that are no UTF-8. */
char *rb_digested_text(json_t *object);

/* `object` was read from `text`: it loses its "digest".  RB_EINVAL: the text is not what was
 * written. */
int rb_digested_check(json_t *object, const char *text, size_t size, struct rb_why *why);

/* ---- In a checkpoint's folder ---- */

/* The manifest of the checkpoint in `folder`, state.json; json_decref it.  RB_ENOTFOUND: there is
 * none, so the folder is no checkpoint.  RB_EINVAL: it is damaged. */
int rb_digested_open(const char *folder, json_t **ret_manifest, struct rb_why *why);

/* Is the file in `folder` what the manifest lists?  Reads all of it. */
int rb_digested_file(const char *folder, const char *name, const json_t *manifest,
                     struct rb_why *why);

#endif
