/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/memory.h"

#include "base/sealed.h"
#include "kernels/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

void *rb_cpu_scratch(size_t bytes)
{
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
    void *memory = NULL;

    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    if (posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0)
        return NULL;
    if (alignment == HUGE_PAGE) /* advice only: fewer TLB misses where the kernel can */
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

int rb_cpu_need(struct rb_cpu_room *room, size_t bytes)
{
    void *larger;

    if (bytes <= room->bytes)
        return 0;
    larger = rb_cpu_scratch(bytes);
    if (!larger)
        return RB_ENOMEM; /* kernels prepared before still have what they need */
    free(room->memory);
    *room = (struct rb_cpu_room){larger, bytes};
    return 0;
}

/* What lies in front of the memory: how it was got. */
struct origin {
    void *base;
    size_t bytes; /* mapped; 0: it comes from posix_memalign */
    int file;     /* that others can map; -1: there is none */
};

_Static_assert(sizeof(struct origin) <= LINE, "an origin takes at most a line");

static struct origin *origin_of(const void *memory)
{
    return (struct origin *)((uintptr_t)memory - LINE);
}

/* Mapped and not written: zero, and no memory is taken before it is used.  file: has the contents;
 * -1: memory of this process alone. */
static void *map(size_t bytes, int file)
{
    size_t whole = bytes + 2 * (size_t)HUGE_PAGE;
    char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *at;

    if (base == MAP_FAILED)
        return NULL;
    at = (void *)(((uintptr_t)base + LINE + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1));
    if (file >= 0 &&
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        munmap(base, whole);
        return NULL;
    }
    madvise(at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    *origin_of(at) = (struct origin){base, whole, file};
    return at;
}

void *rb_cpu_alloc(struct rb_device *device, size_t bytes)
{
    char *base;

    (void)device;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    if (bytes >= HUGE_PAGE)
        return map(bytes, -1);
    base = rb_cpu_scratch(bytes + LINE);
    if (!base)
        return NULL;
    memset(base, 0, bytes + LINE);
    *origin_of(base + LINE) = (struct origin){base, 0, -1};
    return base + LINE;
}

void *rb_cpu_alloc_shown(struct rb_device *device, size_t bytes)
{
    int file = bytes && bytes <= SIZE_MAX / 2 ? rb_sealed_create("rubato-shown", bytes) : -1;
    void *memory = file >= 0 ? map(bytes, file) : NULL;

    if (!memory && file >= 0)
        close(file);
    if (memory && madvise(memory, 1, MADV_REMOVE) != 0) { /* gVisor: it could not be let go */
        rb_cpu_release(device, memory);
        memory = NULL;
    }
    return memory ? memory : rb_cpu_alloc(device, bytes);
}

int rb_cpu_shown(struct rb_device *device, const void *memory)
{
    (void)device;
    return origin_of(memory)->file;
}

void rb_cpu_release(struct rb_device *device, void *memory)
{
    struct origin origin;

    (void)device;
    if (!memory)
        return;
    origin = *origin_of(memory);
    if (origin.bytes)
        munmap(origin.base, origin.bytes);
    else
        free(origin.base);
    if (origin.file >= 0)
        close(origin.file);
}

/* Pages of a file have to be removed from it, else they come back as they were.  For memory of this
 * process alone that is invalid, or the call is not there at all (then no memory is of a file):
 * letting the pages go is enough. */
static bool drop(void *memory, size_t bytes)
{
    return madvise(memory, bytes, MADV_REMOVE) == 0 ||
           ((errno == EINVAL || errno == ENOSYS) && madvise(memory, bytes, MADV_DONTNEED) == 0);
}

/* Whole pages go back; the rest of the range is zeroed. */
void rb_cpu_discard(struct rb_device *device, void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory, end = first + bytes;
    uintptr_t from = (first + page - 1) & ~(page - 1), to = end & ~(page - 1);

    (void)device;
    if (from >= to || !drop((void *)from, to - from)) {
        memset(memory, 0, bytes);
        return;
    }
    memset(memory, 0, from - first);
    memset((void *)to, 0, end - to);
}

/* A large page is worth its room where three quarters of it are written. */
void rb_cpu_expect(struct rb_device *device, void *memory, size_t bytes,
                   const struct rb_extent *extents, size_t n)
{
    size_t k = 0;

    (void)device;
    for (size_t page = 0; page + HUGE_PAGE <= bytes; page += HUGE_PAGE) {
        const size_t end = page + HUGE_PAGE;
        size_t written = 0;

        while (k < n && extents[k].first + extents[k].bytes <= page)
            k++;
        for (size_t i = k; i < n && extents[i].first < end; i++) {
            size_t from = extents[i].first > page ? extents[i].first : page;
            size_t to = extents[i].first + extents[i].bytes;

            written += (to < end ? to : end) - from;
        }
        madvise((char *)memory + page, HUGE_PAGE,
                written >= HUGE_PAGE / 4 * 3 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
}
