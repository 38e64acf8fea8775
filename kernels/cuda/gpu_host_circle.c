/* SPDX-License-Identifier: Apache-2.0 */
/* Circles of processors in GPUs' place, through a file that all map: what a rank gives lies there
 * while the others add it.  The ticket is the file's name.
 *
 * Ranks come to each line together, or one of them says that it is over:
 *
 *     give a part | all have given | add the parts of all | all have added | give the next ... */
#include "kernels/cuda/gpu_host.h"

#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PART = 1 << 16, RANKS = 64 };

struct shared {
    atomic_uint in;
    atomic_ullong lines; /* that ranks have come to, all together */
    int32_t parts[RANKS][PART];
};

struct rb_gpu_circle {
    struct rb_gpu *gpu;
    struct shared *shared;
    char path[128];
    int rank, size;
    unsigned long long lines; /* this rank's */
};

int rb_gpu_circle_ticket(struct rb_gpu *gpu, void *ret_ticket, struct rb_why *why)
{
    const char *wanted = getenv("RUBATO_NCCL");
    struct timespec now;

    (void)gpu;
    if (wanted && !*wanted)
        return rb_why_set(why, RB_EUNSUPPORTED, "NCCL is not wanted");
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(ret_ticket, 0, 128);
    snprintf(ret_ticket, 128, "/dev/shm/rubato-circle-%ld-%lld.%09ld", (long)getpid(),
             (long long)now.tv_sec, now.tv_nsec);
    return 0;
}

static int enter(struct rb_gpu *gpu, const char *path, int rank, int size,
                 struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    struct rb_gpu_circle *circle;
    int fd;

    if (size > RANKS)
        return rb_why_set(why, RB_EUNSUPPORTED, "more than %d ranks", RANKS);
    circle = rb_alloc(sizeof *circle);
    *circle = (struct rb_gpu_circle){.gpu = gpu, .rank = rank, .size = size};
    snprintf(circle->path, sizeof circle->path, "%s", path);
    fd = open(circle->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    circle->shared = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *circle->shared) == 0)
        circle->shared =
            mmap(NULL, sizeof *circle->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (circle->shared == MAP_FAILED) {
        free(circle);
        return rb_why_set(why, RB_EIO, "%s: %s", path, strerror(errno));
    }
    atomic_fetch_add(&circle->shared->in, 1);
    *ret_circle = circle;
    return 0;
}

int rb_gpu_circle_enter(struct rb_gpu *gpu, const void *ticket, int rank, int size,
                        struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    char path[128];

    snprintf(path, sizeof path, "%.127s", (const char *)ticket);
    return enter(gpu, path, rank, size, ret_circle, why);
}

/* A rank that sees all ranks in takes the file's name away: no other rank will look for it. */
int rb_gpu_circle_ready(struct rb_gpu_circle *circle, bool *ret_ready, struct rb_why *why)
{
    (void)why;
    *ret_ready = atomic_load(&circle->shared->in) >= (unsigned)circle->size;
    if (*ret_ready)
        unlink(circle->path);
    return 0;
}

/* The next line: 0 when all have come to it. */
static int meet(struct rb_gpu_circle *circle, bool (*over)(void *context), void *context,
                struct rb_why *why)
{
    const struct timespec moment = {0, 20000};

    circle->lines += (unsigned long long)circle->size;
    atomic_fetch_add(&circle->shared->lines, 1);
    while (atomic_load(&circle->shared->lines) < circle->lines) {
        if (over(context))
            return rb_why_set(why, RB_EPEER, "another rank is gone");
        nanosleep(&moment, NULL);
    }
    return 0;
}

/* Adds up the parts of all ranks, or of one. */
static void add_parts(const struct rb_gpu_circle *circle, int from, int32_t *out, size_t n)
{
    memset(out, 0, n * sizeof *out);
    for (int r = 0; r < circle->size; r++)
        for (size_t i = 0; i < n && (from == RB_CIRCLE_ALL || from == r); i++)
            out[i] = (int32_t)((uint32_t)out[i] + (uint32_t)circle->shared->parts[r][i]);
}

static int sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
               const struct rb_circle_range *range, bool (*over)(void *context), void *context,
               struct rb_why *why)
{
    size_t end = range->first + range->count;
    int err = 0;

    for (size_t at = range->first; !err && at < end; at += PART) {
        size_t count = end - at < PART ? end - at : PART;

        memcpy(circle->shared->parts[circle->rank], in + at, count * sizeof *in);
        err = meet(circle, over, context, why);
        if (!err && (range->to == RB_CIRCLE_ALL || range->to == circle->rank))
            add_parts(circle, range->from, out + at, count);
        if (!err)
            err = meet(circle, over, context, why);
    }
    return err;
}

int rb_gpu_circle_sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why)
{
    int err = 0;

    rb_gpu_host_arrive(circle->gpu);
    for (size_t i = 0; !err && i < n; i++)
        err = sum(circle, in, out, &ranges[i], over, context, why);
    return err;
}

/* Piece by piece: what m->from gives lies in its part while m->to takes it. */
static int move(struct rb_gpu_circle *circle, const struct rb_circle_move *m,
                bool (*over)(void *context), void *context, struct rb_why *why)
{
    size_t room = sizeof circle->shared->parts[0];
    char *memory = m->memory;
    int err = 0;

    for (size_t at = 0; !err && at < m->bytes; at += room) {
        size_t bytes = m->bytes - at < room ? m->bytes - at : room;

        if (m->from == circle->rank)
            memcpy(circle->shared->parts[m->from], memory + at, bytes);
        err = meet(circle, over, context, why);
        if (!err && m->to == circle->rank)
            memcpy(memory + at, circle->shared->parts[m->from], bytes);
        if (!err)
            err = meet(circle, over, context, why);
    }
    return err;
}

int rb_gpu_circle_move(struct rb_gpu_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why)
{
    int err = 0;

    rb_gpu_host_arrive(circle->gpu);
    for (size_t i = 0; !err && i < n; i++)
        if (moves[i].from != moves[i].to)
            err = move(circle, &moves[i], over, context, why);
    return err;
}

void rb_gpu_circle_leave(struct rb_gpu_circle *circle)
{
    if (!circle)
        return;
    unlink(circle->path);
    munmap(circle->shared, sizeof *circle->shared);
    free(circle);
}

/* Nothing of it is under way except during a sum or a move. */
void rb_gpu_circle_stop(struct rb_gpu_circle *circle)
{
    (void)circle;
}

/* All ranks know the old file's name: the new one is a little longer.  RUBATO_HOST_SHRINKS=0: as an
 * NCCL that cannot shrink. */
int rb_gpu_circle_shrink(struct rb_gpu_circle *circle, const int *gone, int n,
                         struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    const char *text = getenv("RUBATO_HOST_SHRINKS");
    size_t length = strlen(circle->path);
    char path[128];
    int rank = circle->rank, err;

    for (int i = 0; i < n; i++)
        rank -= gone[i] < circle->rank;
    snprintf(path, sizeof path, "%.126s+", circle->path);
    if ((text && strcmp(text, "0") == 0) || length + 2 > sizeof path)
        err = rb_why_set(why, RB_EUNSUPPORTED, "this stand-in was told not to");
    else
        err = enter(circle->gpu, path, rank, circle->size - n, ret_circle, why);
    rb_gpu_circle_leave(circle);
    return err;
}
