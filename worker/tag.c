/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/tag.h"

#include "base/hash.h"

uint64_t rb_tag(enum rb_tag purpose, int64_t level, uint32_t attempt, uint64_t part)
{
    uint64_t parts[4] = {(uint64_t)purpose, (uint64_t)level, attempt, part};

    return rb_hash64(parts, sizeof parts);
}
