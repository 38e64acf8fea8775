/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves by the host's names of memory, and how another process comes to one.
 *
 * The address says which descriptor of which process names the memory.  A process that is told the
 * address takes the descriptor over from that process (the kernel allows it where it allows reading
 * memory), maps what it names, takes some pages of it to its own device, and compares them with
 * what the address says lies there: process numbers mean something else in other namespaces, and
 * there are machines on which devices read one another wrongly without an error. */
#include "base/arena.h"
#include "base/clock.h"
#include "kernels/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    PAGE = 4096,     /* bytes that are compared, */
    APART = 2 << 20, /* this far from the next ones: devices map memory in such pieces */
};

struct address {
    int64_t pid, fd;
    uint64_t bytes; /* mapped */
    uint64_t word;  /* a random number, from which follows what lies there at first */
};

_Static_assert(sizeof(struct address) <= RB_SHELF_ADDRESS, "an address has room for it");

struct shelf {
    struct rb_shelf base;
    struct rb_cuda *cuda;
    struct rb_gpu_shelf *gpu;
    int fd; /* which others take over; -1: the shelf is another process's */
};

/* RUBATO_SHELVES: "" for none. */
static bool are_wanted(void)
{
    const char *wanted = getenv("RUBATO_SHELVES");

    return !wanted || *wanted;
}

static struct shelf *make(struct rb_device *device)
{
    struct shelf *shelf = rb_alloc(sizeof *shelf);

    *shelf = (struct shelf){{device->ops}, (struct rb_cuda *)device, NULL, -1};
    return shelf;
}

/* What lies at first in the page at `at`. */
static void sign(const struct address *address, uint64_t at,
                 uint64_t ret_words[PAGE / sizeof(uint64_t)])
{
    for (uint64_t i = 0; i < PAGE / sizeof *ret_words; i++)
        ret_words[i] = (address->word + at / sizeof *ret_words + i) * UINT64_C(0x9e3779b97f4a7c15);
}

/* From one signed page to the next; the last one is the last page of the memory. */
static bool next_page(const struct address *address, uint64_t *at)
{
    uint64_t last = address->bytes - PAGE;

    if (*at >= last)
        return false;
    *at = last - *at > APART ? *at + APART : last;
    return true;
}

/* ---- Its owner --------------------------------------------------------------------------------*/

int rb_cuda_shelf_open(struct rb_device *device, size_t bytes, void *ret_address,
                       struct rb_shelf **ret_shelf, struct rb_why *why)
{
    struct address address = {.pid = getpid()};
    struct shelf *shelf = make(device);
    uint64_t words[PAGE / sizeof(uint64_t)], at = 0;
    size_t mapped = 0;
    int err;

    if (!are_wanted())
        err = rb_why_set(why, RB_EUNSUPPORTED, "shelves are not wanted");
    else
        err = rb_gpu_shelf_new(shelf->cuda->gpu, bytes, &shelf->gpu, &shelf->fd, &mapped, why);
    if (err) {
        free(shelf);
        return err;
    }
    if (getrandom(&address.word, sizeof address.word, 0) != sizeof address.word)
        address.word = rb_clock_ns();
    address.fd = shelf->fd;
    address.bytes = mapped;
    do {
        sign(&address, at, words);
        rb_gpu_in(shelf->cuda->gpu, (char *)rb_gpu_shelf_memory(shelf->gpu) + at, words, PAGE);
    } while (next_page(&address, &at));
    memset(ret_address, 0, RB_SHELF_ADDRESS);
    memcpy(ret_address, &address, sizeof address);
    *ret_shelf = &shelf->base;
    return 0;
}

/* ---- Others -----------------------------------------------------------------------------------*/

static int take_over(const struct address *address, int *ret_fd, struct rb_why *why)
{
    int process = pidfd_open((pid_t)address->pid, 0), failed = errno;

    *ret_fd = -1;
    if (process >= 0) {
        *ret_fd = pidfd_getfd(process, (int)address->fd, 0);
        failed = errno;
        close(process);
    }
    if (*ret_fd >= 0)
        return 0;
    return rb_why_set(why, RB_EUNSUPPORTED, "its memory cannot be taken over: %s",
                      strerror(failed));
}

/* Compares by the way that parcels go: from its device to ours. */
static int look_for_sign(const struct shelf *shelf, const struct address *address,
                         struct rb_why *why)
{
    struct rb_gpu *gpu = shelf->cuda->gpu;
    uint64_t words[PAGE / sizeof(uint64_t)], seen[PAGE / sizeof(uint64_t)], at = 0;
    void *here = rb_gpu_alloc(gpu, PAGE);
    bool same;

    if (!here)
        return rb_why_set(why, RB_ENOMEM, "no memory to take what lies there");
    do {
        rb_gpu_copy(gpu, here, (char *)rb_gpu_shelf_memory(shelf->gpu) + at, PAGE);
        rb_gpu_copied(gpu);
        rb_gpu_out(gpu, seen, here, PAGE);
        sign(address, at, words);
        same = !memcmp(seen, words, PAGE);
    } while (same && next_page(address, &at));
    rb_gpu_free(gpu, here);
    return same ? 0
                : rb_why_set(why, RB_EUNSUPPORTED,
                             "another's memory lies where it is said to be, or it is read wrongly");
}

int rb_cuda_shelf_find(struct rb_device *device, const void *told, size_t bytes,
                       struct rb_shelf **ret_shelf, struct rb_why *why)
{
    struct shelf *shelf;
    struct address address;
    int fd, err;

    memcpy(&address, told, sizeof address);
    if (!are_wanted())
        return rb_why_set(why, RB_EUNSUPPORTED, "shelves are not wanted");
    if (address.bytes < bytes || address.bytes < PAGE)
        return rb_why_set(why, RB_EUNSUPPORTED, "it is too small");
    err = take_over(&address, &fd, why);
    if (err)
        return err;
    shelf = make(device);
    err = rb_gpu_shelf_map(shelf->cuda->gpu, fd, address.bytes, &shelf->gpu, why);
    close(fd);
    if (!err)
        err = look_for_sign(shelf, &address, why);
    if (err) {
        rb_cuda_shelf_close(&shelf->base);
        return err;
    }
    *ret_shelf = &shelf->base;
    return 0;
}

/* ---- Both -------------------------------------------------------------------------------------*/

static void copy(const struct shelf *shelf, size_t at, const struct iovec *pieces, int n, bool put)
{
    struct rb_gpu *gpu = shelf->cuda->gpu;
    char *there = (char *)rb_gpu_shelf_memory(shelf->gpu) + at;

    for (int i = 0; i < n; there += pieces[i++].iov_len) {
        char *here = rb_twins_gpu(shelf->cuda, pieces[i].iov_base);

        if (here)
            rb_gpu_copy(gpu, put ? there : here, put ? here : there, pieces[i].iov_len);
    }
    rb_gpu_copied(gpu);
}

void rb_cuda_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n)
{
    copy((struct shelf *)shelf, at, from, n, true);
}

void rb_cuda_shelf_take(struct rb_shelf *shelf, size_t at, const struct iovec *to, int n)
{
    copy((struct shelf *)shelf, at, to, n, false);
}

void rb_cuda_shelf_close(struct rb_shelf *base)
{
    struct shelf *shelf = (struct shelf *)base;

    rb_gpu_shelf_free(shelf->gpu);
    if (shelf->fd >= 0)
        close(shelf->fd);
    free(shelf);
}
