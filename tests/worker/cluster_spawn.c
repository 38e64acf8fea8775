/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of workers, and the connection to each. */
#include "tests/worker/cluster.h"

#include "base/clock.h"
#include "proto/frame.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

void cluster_send(struct cluster *cluster, int worker, Rb__ToWorker *message)
{
    struct rb_buffer out = {0};
    size_t at = 0;

    message->fence = cluster->fence;
    rb_frame_put(&out, RB_FRAME_TO_WORKER, &message->base);
    while (at < out.size) {
        ssize_t put = send(cluster->workers[worker].fd, out.data + at, out.size - at, MSG_NOSIGNAL);

        if (put <= 0)
            break; /* the worker is dead: the event will come */
        at += (size_t)put;
    }
    rb_buffer_done(&out);
}

int cluster_spawn(struct cluster *cluster)
{
    int index = cluster->n++;
    struct cluster_worker *one = &cluster->workers[index];
    const char *wanted = getenv("RUBATO_TEST_KIND"), *kind = wanted ? wanted : "cpu";
    pid_t parent = getpid();

    assert_true(index < CLUSTER_WORKERS);
    *one = (struct cluster_worker){.fd = -1, .level = -1};
    snprintf(one->name, sizeof one->name, "w%d", index);
    one->pid = fork();
    if (one->pid == 0) {
        char log[256];
        char *arguments[] = {(char *)cluster->program,
                             "--job",
                             "j",
                             "--worker",
                             one->name,
                             "--device",
                             "0",
                             "--kind",
                             (char *)kind,
                             "--run-dir",
                             cluster->folder,
                             "--host",
                             "127.0.0.1",
                             "--log",
                             log,
                             NULL};

        snprintf(log, sizeof log, "%s/%s.log", cluster->folder, one->name);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            execv(cluster->program, arguments);
        _exit(127);
    }
    one->pidfd = pidfd_open(one->pid, 0);
    assert_true(one->pidfd >= 0);
    cluster_connect(cluster, index, 0);
    return index;
}

void cluster_spare(struct cluster *cluster, int n)
{
    while (cluster->n_spares < n)
        cluster->spares[cluster->n_spares++] = cluster_spawn(cluster);
}

int cluster_newcomer(struct cluster *cluster)
{
    return cluster->n_spares ? cluster->spares[--cluster->n_spares] : cluster_spawn(cluster);
}

static bool said_hello(struct cluster *cluster, int64_t worker)
{
    return cluster->workers[worker].hello != NULL;
}

/* The socket exists once the worker runs: try until it does, or until the worker has ended. */
void cluster_connect(struct cluster *cluster, int worker, int64_t rows_after)
{
    struct cluster_worker *one = &cluster->workers[worker];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t deadline = rb_clock_ns() + (uint64_t)CLUSTER_PATIENCE_MS * 1000000;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Settings settings = RB__SETTINGS__INIT;
    char final[200];

    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s.sock", cluster->folder, one->name);
    one->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(one->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (rb_clock_ns() > deadline || (errno != ENOENT && errno != ECONNREFUSED))
            CLUSTER_FAIL(cluster, "cannot connect to %s", one->name);
        poll(&(struct pollfd){one->pidfd, POLLIN, 0}, 1, 2);
    }
    rb_buffer_clear(&one->in);
    if (one->hello)
        rb__from_worker__free_unpacked(RB_TAKE(one->hello), NULL);
    one->rows = rows_after;
    snprintf(final, sizeof final, "%s/final", cluster->folder);
    settings.final_folder = final;
    settings.checkpoint_path = cluster->checkpoint_path;
    settings.has_checkpoint_every = settings.has_checkpoint_keep = settings.has_rows_after = 1;
    settings.checkpoint_every = cluster->checkpoint_every;
    settings.checkpoint_keep = cluster->checkpoint_keep;
    settings.rows_after = rows_after;
    message.settings = &settings;
    cluster_send(cluster, worker, &message);
    cluster_until(cluster, said_hello, worker, "hello");
}

void cluster_disconnect(struct cluster *cluster, int worker)
{
    close(cluster->workers[worker].fd);
    cluster->workers[worker].fd = -1;
}
