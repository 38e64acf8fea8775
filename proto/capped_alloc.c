/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/capped_alloc.h"

#include <malloc.h>
#include <stdlib.h>

static void *take(void *data, size_t size)
{
    struct rb_capped_alloc *capped = data;
    void *memory;
    size_t got;

    if (size > capped->left)
        return NULL;
    memory = malloc(size ? size : 1);
    if (!memory)
        return NULL;
    got = malloc_usable_size(memory);
    capped->left -= got < capped->left ? got : capped->left;
    return memory;
}

static void give(void *data, void *memory)
{
    struct rb_capped_alloc *capped = data;

    if (memory)
        capped->left += malloc_usable_size(memory);
    free(memory);
}

void rb_capped_alloc_init(struct rb_capped_alloc *capped, uint64_t bytes)
{
    capped->left = bytes;
    capped->protobuf = (ProtobufCAllocator){.alloc = take, .free = give, .allocator_data = capped};
}
