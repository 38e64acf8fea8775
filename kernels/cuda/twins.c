/* SPDX-License-Identifier: Apache-2.0 */
/* Memory with two sides.  The host's side is mapped and not written, so it takes up memory only
 * where something is pulled or filled in. */
#include "base/arena.h"
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void *rb_twins_alloc(struct rb_cuda *cuda, size_t bytes)
{
    struct rb_twins *twins = &cuda->twins;
    struct rb_twin twin = {.bytes = bytes};

    if (bytes > SIZE_MAX / 2)
        return NULL;
    twin.host = map(bytes);
    if (!twin.host)
        return NULL;
    twin.gpu = rb_gpu_alloc(cuda->gpu, bytes);
    if (!twin.gpu) {
        munmap(twin.host, bytes ? bytes : 1);
        return NULL;
    }
    pthread_mutex_lock(&twins->lock);
    if (twins->n == twins->room) {
        twins->room = twins->room ? twins->room * 2 : 32;
        twins->at = rb_realloc(twins->at, twins->room * sizeof *twins->at);
    }
    twins->at[twins->n++] = twin;
    pthread_mutex_unlock(&twins->lock);
    return twin.host;
}

void rb_twins_release(struct rb_cuda *cuda, void *memory)
{
    struct rb_twins *twins = &cuda->twins;
    struct rb_twin twin = {0};

    pthread_mutex_lock(&twins->lock);
    for (size_t i = 0; i < twins->n; i++)
        if (twins->at[i].host == memory) {
            twin = twins->at[i];
            twins->at[i] = twins->at[--twins->n];
            break;
        }
    pthread_mutex_unlock(&twins->lock);
    if (!twin.host)
        return;
    rb_gpu_free(cuda->gpu, twin.gpu);
    munmap(twin.host, twin.bytes ? twin.bytes : 1);
}

/* The GPU's address of what the host names; NULL: it is not the device's. */
static char *find(struct rb_cuda *cuda, const void *host)
{
    const char *at = host;
    char *found = NULL;

    pthread_mutex_lock(&cuda->twins.lock);
    for (size_t i = 0; i < cuda->twins.n && !found; i++) {
        const struct rb_twin *twin = &cuda->twins.at[i];

        if (at >= twin->host && at < twin->host + (twin->bytes ? twin->bytes : 1))
            found = twin->gpu + (at - twin->host);
    }
    pthread_mutex_unlock(&cuda->twins.lock);
    return found;
}

/* The host's whole pages go back; the rest of the range is zeroed. */
void rb_twins_discard(struct rb_cuda *cuda, void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory, end = first + bytes;
    uintptr_t from = (first + page - 1) & ~(page - 1), to = end & ~(page - 1);
    char *gpu = find(cuda, memory);

    if (gpu)
        rb_gpu_zero(cuda->gpu, gpu, bytes);
    if (from >= to || madvise((void *)from, to - from, MADV_DONTNEED)) {
        memset(memory, 0, bytes);
        return;
    }
    memset(memory, 0, from - first);
    memset((void *)to, 0, end - to);
}

void rb_twins_pull(struct rb_cuda *cuda, void *memory, size_t bytes)
{
    char *gpu = find(cuda, memory);

    if (gpu)
        rb_gpu_out(cuda->gpu, memory, gpu, bytes);
}

void rb_twins_push(struct rb_cuda *cuda, void *memory, size_t bytes)
{
    char *gpu = find(cuda, memory);

    if (gpu)
        rb_gpu_send(cuda->gpu, gpu, memory, bytes);
}

void *rb_twins_gpu(struct rb_cuda *cuda, const void *host)
{
    char *gpu = host ? find(cuda, host) : NULL;

    if (host && !gpu)
        rb_gpu_fail(cuda->gpu, "an address that is not its own");
    return gpu;
}

void rb_twins_copy(struct rb_cuda *cuda, void *to, const void *from, size_t bytes)
{
    void *there = rb_twins_gpu(cuda, to);
    const void *here = rb_twins_gpu(cuda, from);

    if (there && here)
        rb_gpu_within(cuda->gpu, there, here, bytes);
}
