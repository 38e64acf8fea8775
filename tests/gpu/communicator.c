/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/communicator.h"

#include "base/clock.h"
#include "kernels/device.h"
#include "tests/bench/job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, SUMS = 5, COUNT = 1 << 22, PATIENCE_S = 60 };

/* fds: the first rank's connection to each of the others; another rank's to the first is fds[0]. */
struct crew {
    int rank, size, fds[MOST];
};

static bool is_over(void *context)
{
    return bench_since(*(uint64_t *)context) > 1e3 * PATIENCE_S;
}

static struct rb_circle *enter(struct rb_device *device, const uint8_t *ticket, int rank, int size)
{
    const struct timespec moment = {0, 1000000};
    uint64_t start = rb_clock_ns();
    struct rb_circle *circle;
    bool ready = false;
    struct rb_why why = {{0}};

    bench_check(rb_circle_enter(device, ticket, rank, size, &circle, &why), &why);
    while (!ready) {
        bench_check(rb_circle_ready(circle, &ready, &why), &why);
        if (is_over(&start))
            bench_check(rb_why_set(&why, RB_EPEER, "not everyone came in"), &why);
        nanosleep(&moment, NULL);
    }
    return circle;
}

/* A word to the first rank and back: no rank leaves while another may still be at a sum. */
static void wait_for_all(const struct crew *crew)
{
    char word = 1;

    for (int r = 1; crew->rank == 0 && r < crew->size; r++)
        if (read(crew->fds[r], &word, 1) != 1)
            exit(1);
    for (int r = 1; crew->rank == 0 && r < crew->size; r++)
        if (write(crew->fds[r], &word, 1) != 1)
            exit(1);
    if (crew->rank > 0 && (write(crew->fds[0], &word, 1) != 1 || read(crew->fds[0], &word, 1) != 1))
        exit(1);
}

/* The first rank prints the times. */
static void run_rank(struct rb_device *device, const uint8_t *ticket, const struct crew *crew)
{
    const struct rb_circle_range all = {RB_CIRCLE_ALL, RB_CIRCLE_ALL, 0, COUNT};
    uint64_t start = rb_clock_ns();
    struct rb_circle *circle = enter(device, ticket, crew->rank, crew->size);
    double entered = bench_since(start), took[SUMS], first;
    int32_t *in = rb_device_alloc(device, COUNT * sizeof *in);
    int32_t *out = rb_device_alloc(device, COUNT * sizeof *out);
    struct rb_why why = {{0}};

    for (int i = 0; i < SUMS; i++) {
        uint64_t begun = rb_clock_ns();

        bench_check(rb_circle_sum(circle, in, out, &all, 1, is_over, &begun, &why), &why);
        took[i] = bench_since(begun);
    }
    first = took[0];
    if (crew->rank == 0)
        printf("TABLE   cold start: a communicator of %d ranks %.0f ms; a sum of %d MB %.1f ms at "
               "first, then %.1f ms\n",
               crew->size, entered, (int)(COUNT * sizeof *in >> 20), first,
               bench_median(took, SUMS));
    wait_for_all(crew);
    rb_circle_stop(circle);
    rb_circle_leave(circle);
    rb_device_free(device, in);
    rb_device_free(device, out);
}

/* A process touches the GPU only after the fork. */
static void be_rank(const struct crew *crew)
{
    uint8_t ticket[RB_CIRCLE_TICKET];
    struct rb_device *device;
    struct rb_why why = {{0}};

    bench_check(rb_device_open("cuda", crew->rank, &device, &why), &why);
    if (crew->rank > 0 && read(crew->fds[0], ticket, sizeof ticket) != sizeof ticket)
        exit(1);
    if (crew->rank == 0)
        bench_check(rb_circle_ticket(device, ticket, &why), &why);
    for (int r = 1; crew->rank == 0 && r < crew->size; r++)
        if (write(crew->fds[r], ticket, sizeof ticket) != sizeof ticket)
            exit(1);
    run_rank(device, ticket, crew);
    bench_check(rb_device_check(device, &why), &why);
    rb_device_close(device);
}

int communicator_times(int ranks)
{
    struct crew crew = {.size = ranks};
    int fds[2], status, bad = 0;

    if (ranks < 2 || ranks > MOST)
        return 2;
    for (int r = 1; r < ranks; r++) {
        pid_t child = socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ? -1 : fork();

        if (child < 0)
            return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(fds[0]);
            crew.rank = r;
            crew.fds[0] = fds[1];
            be_rank(&crew);
            exit(0);
        }
        close(fds[1]);
        crew.fds[r] = fds[0];
    }
    be_rank(&crew);
    while (wait(&status) > 0)
        bad |= status;
    return bad ? 1 : 0;
}
