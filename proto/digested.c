/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/digested.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/checkpoint_folder.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MOST = 64 << 20 };

static char *text_of(const json_t *object)
{
    char *json = json_dumps(object, JSON_SORT_KEYS | JSON_INDENT(1));
    char *text = json ? rb_format("%s\n", json) : NULL;

    free(json);
    return text;
}

/* Digest of the object without its "digest", which it does not have yet or any more. */
static int digest_of(const json_t *object, char ret_digest[33])
{
    RB_CLEANUP(rb_freep) char *text = text_of(object);

    if (!text)
        return RB_EINVAL;
    rb_hash_digest(text, strlen(text), ret_digest);
    return 0;
}

char *rb_digested_text(json_t *object)
{
    char digest[33];

    if (digest_of(object, digest))
        return NULL;
    json_object_set_new(object, "digest", json_string(digest));
    return text_of(object);
}

int rb_digested_check(json_t *object, const char *text, size_t size, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *again = text_of(object);
    const char *stored = json_string_value(json_object_get(object, "digest"));
    char kept[33], digest[33];

    if (!again || strlen(again) != size || memcmp(again, text, size) != 0)
        return rb_why_set(why, RB_EINVAL, "it is not as it was written");
    if (!stored || strlen(stored) != sizeof kept - 1)
        return rb_why_set(why, RB_EINVAL, "it has no digest");
    memcpy(kept, stored, sizeof kept);
    json_object_del(object, "digest");
    if (digest_of(object, digest) || strcmp(digest, kept) != 0)
        return rb_why_set(why, RB_EINVAL, "its digest is another");
    return 0;
}

int rb_digested_open(const char *folder, json_t **ret_manifest, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/" RB_CHECKPOINT_MANIFEST, folder);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    json_t *manifest;
    int err = rb_file_read(path, MANIFEST_MOST, &text, why);

    if (err)
        return err;
    manifest = json_loadb(text.size ? text.data : "", text.size, JSON_REJECT_DUPLICATES, NULL);
    err = json_is_object(manifest) ? rb_digested_check(manifest, text.data, text.size, why)
                                   : rb_why_set(why, RB_EINVAL, "it is no JSON object");
    if (err) {
        json_decref(manifest);
        return rb_why_add(why, err, RB_CHECKPOINT_MANIFEST);
    }
    *ret_manifest = manifest;
    return 0;
}

int rb_digested_file(const char *folder, const char *name, const json_t *manifest,
                     struct rb_why *why)
{
    const json_t *listed = json_object_get(json_object_get(manifest, "files"), name);
    const char *digest = json_string_value(json_object_get(listed, "digest"));
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    uint64_t bytes;
    char is[33];
    int err = rb_hash_file(path, is, &bytes, why);

    if (err)
        return err;
    if (json_integer_value(json_object_get(listed, "bytes")) != (json_int_t)bytes || !digest ||
        strcmp(is, digest) != 0)
        return rb_why_set(why, RB_EINVAL, "%s is not the file that its state.json lists", name);
    return 0;
}
