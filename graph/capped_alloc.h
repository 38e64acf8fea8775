/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for protobuf-c that hands out so many bytes and no more.
 *
 * A message can grow 77-fold when it is unpacked; with a cap unpacking fails instead. */
#ifndef RB_GRAPH_CAPPED_ALLOC_H
#define RB_GRAPH_CAPPED_ALLOC_H

#include <protobuf-c/protobuf-c.h>

struct rb_capped_alloc {
    ProtobufCAllocator protobuf; /* points to this struct, which must therefore stay in place */
    uint64_t left;               /* what is freed does not count as given back */
};

void rb_capped_alloc_init(struct rb_capped_alloc *capped, uint64_t bytes);

#endif
