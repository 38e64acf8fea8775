/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves of processors in GPUs' place: files in memory, which live as long as a process has them.
 */
#include "kernels/cuda/gpu.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct rb_gpu_shelf {
    void *memory;
    size_t bytes;
};

int rb_gpu_shelf_new(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_shelf **ret_shelf, int *ret_fd,
                     size_t *ret_bytes, struct rb_why *why)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    int fd = memfd_create("rubato-shelf", MFD_CLOEXEC), err;

    if (fd >= 0 && ftruncate(fd, (off_t)whole)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        return rb_why_set(why, RB_ENOMEM, "no memory for a shelf: %s", strerror(errno));
    err = rb_gpu_shelf_map(gpu, fd, whole, ret_shelf, why);
    if (err) {
        close(fd);
        return err;
    }
    *ret_fd = fd;
    *ret_bytes = whole;
    return 0;
}

int rb_gpu_shelf_map(struct rb_gpu *gpu, int fd, size_t bytes, struct rb_gpu_shelf **ret_shelf,
                     struct rb_why *why)
{
    struct rb_gpu_shelf shelf = {MAP_FAILED, bytes};
    struct stat about;

    (void)gpu;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (size_t)about.st_size == bytes)
        shelf.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shelf.memory == MAP_FAILED)
        return rb_why_set(why, RB_EUNSUPPORTED, "a descriptor is no shelf's");
    *ret_shelf = rb_alloc(sizeof **ret_shelf);
    **ret_shelf = shelf;
    return 0;
}

void *rb_gpu_shelf_memory(const struct rb_gpu_shelf *shelf)
{
    return shelf->memory;
}

void rb_gpu_shelf_free(struct rb_gpu_shelf *shelf)
{
    if (!shelf)
        return;
    munmap(shelf->memory, shelf->bytes);
    free(shelf);
}
