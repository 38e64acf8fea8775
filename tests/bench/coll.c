/* SPDX-License-Identifier: Apache-2.0 */
/* How long a sum over forked processes takes: `coll [RANKS [CORES]]`, for each kind of link.
 *
 * Prints the median time in us and, per rank, vector bytes over that time in GB/s.  With CORES (the
 * default where there are enough) rank r runs on core r: otherwise the kernel may put two ranks
 * that wake each other on one core. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "coll/coll.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 8, TEXT = 200, MAX_ROUNDS = 4000 };

static const char *const links[] = {"shared memory", "unix", "tcp"};

struct board {
    pthread_barrier_t barrier;
    char address[MAX_RANKS][TEXT];
};

struct bench {
    int size, rank, link;
    bool pin;
    struct board *board;
    char folder[64];
};

static void stop(const struct rb_why *why)
{
    fprintf(stderr, "coll: %s\n", why->text);
    exit(1);
}

static struct rb_coll *open_group(struct bench *b, struct rb_listener *listener)
{
    struct rb_coll_member members[MAX_RANKS];
    const char *addresses[MAX_RANKS][1];
    char names[MAX_RANKS][24];
    struct rb_group group = {"bench", 1, "", b->rank, b->size, members, b->link == 1};
    struct rb_coll *coll = NULL;
    struct rb_why why;

    for (int r = 0; r < b->size; r++) {
        snprintf(names[r], sizeof names[r], "%d", r);
        addresses[r][0] = b->board->address[r];
        members[r] = (struct rb_coll_member){names[r], addresses[r], 1};
    }
    if (rb_coll_open(listener, &group, 20000, NULL, &coll, &why))
        stop(&why);
    rb_coll_look_for(coll, 50000); /* as worker/step does */
    return coll;
}

static int order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* In huge pages where the system has any, like a worker's sums. */
static int32_t *get_memory(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20 };
    size_t alignment = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
    int32_t *memory = aligned_alloc(alignment, bytes);

    if (!memory)
        exit(1);
    madvise(memory, bytes, MADV_HUGEPAGE); /* advice only */
    memset(memory, 1, bytes);
    return memory;
}

static void measure(struct bench *b, struct rb_coll *coll, size_t bytes)
{
    static uint64_t took[MAX_ROUNDS];
    size_t rounds = bytes <= 65536 ? MAX_ROUNDS : bytes <= 4 << 20 ? 200 : 20;
    int32_t *in = get_memory(bytes), *out = get_memory(bytes);
    struct rb_why why;

    for (size_t i = 0; i < rounds; i++) {
        uint64_t start = rb_clock_ns();

        if (rb_coll_sum(coll, i, in, out, bytes / 4, &why))
            stop(&why);
        took[i] = rb_clock_ns() - start;
    }
    qsort(took, rounds, sizeof *took, order);
    if (b->rank == 0)
        printf("%-14s %d ranks %8zu KB %10.1f us %8.2f GB/s  (best %.1f us)\n", links[b->link],
               b->size, bytes / 1024, (double)took[rounds / 2] / 1e3,
               (double)bytes / (double)took[rounds / 2], (double)took[0] / 1e3);
    fflush(stdout);
    free(in);
    free(out);
}

static void serve(struct bench *b)
{
    struct rb_listener *listener;
    struct rb_coll *coll;
    struct rb_why why;
    char path[TEXT];
    bool tcp = b->link == 2;

    if (b->pin) {
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(b->rank, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    snprintf(path, sizeof path, "%s/%d", b->folder, b->rank);
    if (rb_listener_open(tcp ? NULL : path, tcp ? "127.0.0.1" : NULL, &listener, &why))
        stop(&why);
    snprintf(b->board->address[b->rank], TEXT, "%s", rb_listener_address(listener, 0));
    pthread_barrier_wait(&b->board->barrier);
    coll = open_group(b, listener);
    for (size_t bytes = 1024; bytes <= 64 << 20; bytes *= 4)
        measure(b, coll, bytes);
    rb_coll_close(coll);
    rb_listener_close(listener);
    exit(0);
}

int main(int argc, char **argv)
{
    struct bench b = {.size = argc > 1 ? atoi(argv[1]) : 2};
    pthread_barrierattr_t attributes;

    if (b.size < 1 || b.size > MAX_RANKS)
        return 2;
    b.pin = argc > 2 ? atoi(argv[2]) : b.size <= sysconf(_SC_NPROCESSORS_ONLN);
    b.board =
        mmap(NULL, sizeof *b.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&b.board->barrier, &attributes, (unsigned)b.size);
    strcpy(b.folder, "/tmp/rubato-bench-XXXXXX");
    if (!mkdtemp(b.folder))
        return 1;
    for (b.link = 0; b.link < 3; b.link++) {
        for (b.rank = 0; b.rank < b.size; b.rank++)
            if (!fork())
                serve(&b);
        while (wait(NULL) > 0)
            ;
    }
    rb_file_remove(b.folder, NULL);
    return 0;
}
