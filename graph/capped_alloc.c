/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/capped_alloc.h"

#include <stdlib.h>

static void *take(void *data, size_t size)
{
    struct rb_capped_alloc *capped = data;

    if (size > capped->left)
        return NULL;
    capped->left -= size;
    return malloc(size ? size : 1);
}

static void give(void *data, void *memory)
{
    (void)data;
    free(memory);
}

void rb_capped_alloc_init(struct rb_capped_alloc *capped, uint64_t bytes)
{
    capped->left = bytes;
    capped->protobuf = (ProtobufCAllocator){.alloc = take, .free = give, .allocator_data = capped};
}
