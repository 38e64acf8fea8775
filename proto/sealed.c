/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/sealed.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static char *text_of(const json_t *object)
{
    char *json = json_dumps(object, JSON_SORT_KEYS | JSON_INDENT(1));
    char *text = json ? rb_format("%s\n", json) : NULL;

    free(json);
    return text;
}

/* Of all that is in it; the digest is not, yet or any more. */
static int digest_of(const json_t *object, char ret_digest[33])
{
    RB_CLEANUP(rb_freep) char *text = text_of(object);

    if (!text)
        return RB_EINVAL;
    rb_hash_digest(text, strlen(text), ret_digest);
    return 0;
}

char *rb_sealed_text(json_t *object)
{
    char digest[33];

    if (digest_of(object, digest))
        return NULL;
    json_object_set_new(object, "digest", json_string(digest));
    return text_of(object);
}

int rb_sealed_check(json_t *object, const char *text, size_t size, struct rb_why *why)
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
