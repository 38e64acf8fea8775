/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/names.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Where the name is, or the free slot where it would go. */
static struct rb_names_slot *find(const struct rb_names *names, const char *name)
{
    size_t at = rb_hash64(name, strlen(name)) & (names->room - 1);

    while (names->slots[at].name && strcmp(names->slots[at].name, name))
        at = (at + 1) & (names->room - 1);
    return &names->slots[at];
}

void *rb_names_get(const struct rb_names *names, const char *name)
{
    for (; names; names = names->outer) {
        const struct rb_names_slot *slot = names->room ? find(names, name) : NULL;

        if (slot && slot->name)
            return slot->item;
    }
    return NULL;
}

static void widen(struct rb_names *names)
{
    struct rb_names wide = {
        .n = names->n, .room = names->room ? 2 * names->room : 64, .outer = names->outer};

    wide.slots = rb_alloc(sizeof *wide.slots * wide.room);
    for (size_t i = 0; i < names->room; i++)
        if (names->slots[i].name)
            *find(&wide, names->slots[i].name) = names->slots[i];
    free(names->slots);
    *names = wide;
}

bool rb_names_add(struct rb_names *names, const char *name, void *item)
{
    struct rb_names_slot *slot;

    if (2 * (names->n + 1) > names->room)
        widen(names);
    slot = find(names, name);
    if (slot->name)
        return false;
    *slot = (struct rb_names_slot){.name = name, .item = item};
    names->n++;
    return true;
}

void rb_names_done(struct rb_names *names)
{
    free(names->slots);
    *names = (struct rb_names){0};
}
