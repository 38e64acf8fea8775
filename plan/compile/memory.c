/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/memory.h"

#include "base/arena.h"

#include <stdlib.h>

struct slot {
    struct rb_memory_life *life;
    int place;
};

static int by_size(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    if (x->life->bytes != y->life->bytes)
        return x->life->bytes < y->life->bytes ? 1 : -1;
    if (x->life->first != y->life->first)
        return x->life->first < y->life->first ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static int by_offset(const void *a, const void *b)
{
    const struct rb_memory_life *x = *(struct rb_memory_life *const *)a;
    const struct rb_memory_life *y = *(struct rb_memory_life *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + RB_MEMORY_ALIGN - 1) / RB_MEMORY_ALIGN * RB_MEMORY_ALIGN;
}

static uint64_t lowest_fit(const struct slot *placed, int n, const struct rb_memory_life *life,
                           struct rb_memory_life **scratch)
{
    uint64_t offset = 0;
    int overlapping = 0;

    for (int i = 0; i < n; i++)
        if (placed[i].life->first <= life->last && life->first <= placed[i].life->last)
            scratch[overlapping++] = placed[i].life;
    qsort(scratch, (size_t)overlapping, sizeof(*scratch), by_offset);
    for (int i = 0; i < overlapping; i++) {
        uint64_t end = scratch[i]->offset + round_up(scratch[i]->bytes);

        if (scratch[i]->offset >= offset + round_up(life->bytes))
            break;
        if (end > offset)
            offset = end;
    }
    return offset;
}

uint64_t rb_memory_place(struct rb_memory_life *lives, int n)
{
    struct slot *slots = rb_alloc(sizeof(*slots) * (size_t)(n + 1));
    struct rb_memory_life **scratch = rb_alloc(sizeof(*scratch) * (size_t)(n + 1));
    uint64_t whole = 0;

    for (int i = 0; i < n; i++)
        slots[i] = (struct slot){&lives[i], i};
    qsort(slots, (size_t)n, sizeof(*slots), by_size);
    for (int i = 0; i < n; i++) {
        struct rb_memory_life *life = slots[i].life;
        uint64_t end;

        life->offset = lowest_fit(slots, i, life, scratch);
        end = life->offset + round_up(life->bytes);
        if (end > whole)
            whole = end;
    }
    free(slots);
    free(scratch);
    return whole;
}
