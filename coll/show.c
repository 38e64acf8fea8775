/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/group.h"

#include "base/arena.h"
#include "base/sealed.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Map a file whose contents nobody can take away again; NULL: it is no such file.  Closes the
 * file. */
static const void *map(int file, size_t bytes)
{
    int64_t size = rb_sealed_size(file);
    void *map = MAP_FAILED;

    if (size >= 0 && (uint64_t)size >= bytes)
        map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return map == MAP_FAILED ? NULL : map;
}

/* Can files go to all others? */
static bool reaches_all(const struct rb_coll *coll)
{
    bool all = true;

    for (int r = 0; r < coll->size; r++)
        all &= !coll->link[r] || coll->link[r]->ops->give;
    return all;
}

/* A file that cannot be given is one that the peer will not find. */
static void give_all(struct rb_coll *coll, int file)
{
    for (int r = 0; r < coll->size; r++)
        if (coll->link[r])
            coll->link[r]->ops->give(coll->link[r], file);
}

/* bytes: how many each rank shows. */
static bool map_all(struct rb_coll *coll, const uint64_t *bytes, struct rb_coll_view *ret_views)
{
    bool all = true;

    for (int r = 0; r < coll->size; r++) {
        if (!coll->link[r])
            continue;
        ret_views[r].bytes = bytes[r];
        ret_views[r].memory = map(coll->link[r]->ops->given(coll->link[r]), bytes[r]);
        all &= ret_views[r].memory != NULL;
    }
    return all;
}

void rb_coll_view_done(struct rb_coll_view *view)
{
    if (view->memory)
        munmap((void *)(uintptr_t)view->memory, view->bytes);
    *view = (struct rb_coll_view){NULL, 0};
}

/* A rank that shows nothing, or cannot show it to all, shows 0 bytes.  All ranks wait for each
 * other after giving their files, and after mapping those of the others. */
int rb_coll_show(struct rb_coll *coll, uint64_t tag, int file, size_t bytes,
                 struct rb_coll_view *ret_views, bool *ret_all, struct rb_why *why)
{
    size_t size = (size_t)coll->size;
    RB_CLEANUP(rb_freep) uint64_t *shown = rb_alloc(size * sizeof *shown);
    uint64_t mine = file >= 0 && reaches_all(coll) ? bytes : 0;
    int err = rb_coll_gather(coll, tag, &mine, shown, sizeof mine, why);

    memset(ret_views, 0, size * sizeof *ret_views);
    *ret_all = !err;
    for (size_t r = 0; r < size; r++)
        *ret_all &= shown[r] != 0;
    if (!*ret_all)
        return err;
    give_all(coll, file);
    err = rb_coll_agree(coll, tag + 1, true, ret_all, why);
    err = err ? err : rb_coll_agree(coll, tag + 2, map_all(coll, shown, ret_views), ret_all, why);
    for (size_t r = 0; r < size && !*ret_all; r++)
        rb_coll_view_done(&ret_views[r]);
    return err;
}
