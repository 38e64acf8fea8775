/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/cluster.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "proto/frame.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void cluster_show_logs(struct cluster *cluster)
{
    for (int i = 0; i < cluster->n; i++) {
        struct cluster_worker *one = &cluster->workers[i];
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s.log", cluster->folder, one->name);
        struct rb_buffer text = {0};

        print_message(
            "---- %s: exited %d code %d ready %u flipped %u frozen %d level %lld done %d\n",
            one->name, one->exited, one->code, one->ready, one->flipped, one->frozen,
            (long long)one->level, one->done);
        if (rb_file_read(path, 1 << 20, &text, NULL) == 0)
            print_message("%s", text.data);
        rb_buffer_done(&text);
    }
}

void cluster_open(struct cluster *cluster, const char *program)
{
    *cluster = (struct cluster){.program = program, .fence = 1};
    strcpy(cluster->folder, "/tmp/rubato-worker-XXXXXX");
    assert_non_null(mkdtemp(cluster->folder));
}

void cluster_close(struct cluster *cluster)
{
    for (int i = 0; i < cluster->n; i++) {
        struct cluster_worker *one = &cluster->workers[i];

        if (!one->exited) {
            kill(one->pid, SIGKILL);
            waitpid(one->pid, NULL, 0);
        }
        if (one->fd >= 0)
            close(one->fd);
        if (one->pidfd >= 0)
            close(one->pidfd);
        rb_buffer_done(&one->in);
        if (one->hello)
            rb__from_worker__free_unpacked(one->hello, NULL);
    }
    for (int64_t i = 0; i < cluster->n_rows; i++)
        if (cluster->rows[i])
            rb__row__free_unpacked(cluster->rows[i], NULL);
    free(cluster->rows);
    rb_file_remove(cluster->folder, NULL);
}

/* ---- What workers say -----------------------------------------------------------------------*/

static Rb__Row *copy_row(const Rb__Row *row)
{
    size_t size = rb__row__get_packed_size(row);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size);

    rb__row__pack(row, bytes);
    return rb__row__unpack(NULL, size, bytes);
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Everything but times and the rank that computed it. */
static bool same_row(const Rb__Row *a, const Rb__Row *b)
{
    return a->step == b->step && same_bits(a->loss, b->loss) &&
           same_bits(a->grad_norm, b->grad_norm) && same_bits(a->lr, b->lr) &&
           a->first_sample == b->first_sample && a->samples == b->samples &&
           a->skipped == b->skipped && a->redone == b->redone &&
           (!a->has_eval_loss || !b->has_eval_loss || same_bits(a->eval_loss, b->eval_loss)) &&
           (!a->has_eval_accuracy || !b->has_eval_accuracy ||
            same_bits(a->eval_accuracy, b->eval_accuracy));
}

static void take_row(struct cluster *cluster, struct cluster_worker *one, const Rb__Row *row)
{
    if (row->step <= one->rows)
        CLUSTER_FAIL(cluster, "%s sent row %lld after row %lld", one->name, (long long)row->step,
                     (long long)one->rows);
    /* A worker that lives through a death also reports the step that the death tore. */
    if (one->rows > 0 && row->step != one->rows + 1)
        CLUSTER_FAIL(cluster, "%s sent row %lld after row %lld: a gap", one->name,
                     (long long)row->step, (long long)one->rows);
    one->rows = one->level = row->step;
    one->kept += row->kept;
    while (cluster->n_rows <= row->step) {
        cluster->rows =
            rb_realloc(cluster->rows, (size_t)(cluster->n_rows + 1) * sizeof *cluster->rows);
        cluster->rows[cluster->n_rows++] = NULL;
    }
    if (!cluster->rows[row->step])
        cluster->rows[row->step] = copy_row(row);
    else if (!same_row(cluster->rows[row->step], row))
        CLUSTER_FAIL(cluster,
                     "step %lld: %s says loss %.17g, norm %.17g; before it was %.17g, %.17g",
                     (long long)row->step, one->name, row->loss, row->grad_norm,
                     cluster->rows[row->step]->loss, cluster->rows[row->step]->grad_norm);
}

static void take_saved(struct cluster_worker *one, const Rb__Saved *saved)
{
    int i = one->n_saved++ % CLUSTER_SAVED;

    one->saved[i].request = saved->request;
    one->saved[i].step = saved->step;
    snprintf(one->saved[i].folder, sizeof one->saved[i].folder, "%s", saved->folder);
    snprintf(one->saved[i].error, sizeof one->saved[i].error, "%s",
             saved->error ? saved->error : "");
}

static void take_message(struct cluster *cluster, struct cluster_worker *one,
                         Rb__FromWorker *message)
{
    const char *reason = message->unready  ? message->unready->reason
                         : message->frozen ? message->frozen->reason
                         : message->failed ? message->failed->reason
                                           : NULL;

    if (reason)
        snprintf(one->reason, sizeof one->reason, "%s", reason);
    if (message->ready)
        one->ready = message->ready->number;
    if (message->unready)
        one->unready = message->unready->number;
    if (message->flipped) {
        one->flipped = one->active = message->flipped->number;
        one->level = message->flipped->level;
        one->bytes = message->flipped->bytes_moved;
        one->frozen = message->flipped->stands;
        if (one->frozen)
            one->frozen_in = one->flipped;
    }
    if (message->frozen) {
        one->frozen = true;
        one->frozen_in = message->frozen->number;
        one->level = message->frozen->level;
    }
    if (message->saved)
        take_saved(one, message->saved);
    if (message->done) {
        one->done = true;
        one->level = message->done->level;
        if (message->done->final)
            snprintf(one->final, sizeof one->final, "%s", message->done->final->folder);
    }
    if (message->failed)
        one->failed = true;
    for (size_t i = 0; i < message->n_rows; i++)
        take_row(cluster, one, message->rows[i]);
}

static void read_worker(struct cluster *cluster, struct cluster_worker *one)
{
    char *room = rb_buffer_reserve(&one->in, 65536);
    ssize_t got = recv(one->fd, room, 65536, 0);
    ProtobufCMessage *message;
    struct rb_why why = {0};
    int err;

    if (got <= 0) {
        close(one->fd);
        one->fd = -1;
        return;
    }
    one->in.size += (size_t)got;
    while ((err = rb_frame_take(&one->in, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor,
                                &message, &why)) == 0) {
        Rb__FromWorker *from = (Rb__FromWorker *)message;

        if (!from->hello) {
            take_message(cluster, one, from);
            rb__from_worker__free_unpacked(from, NULL);
            continue;
        }
        if (one->hello)
            rb__from_worker__free_unpacked(one->hello, NULL);
        one->hello = from;
        one->hellos++;
        one->level = from->hello->level;
    }
    if (err != RB_EAGAIN)
        CLUSTER_FAIL(cluster, "%s: %s", one->name, why.text);
}

static void reap(struct cluster_worker *one)
{
    int status;

    if (waitpid(one->pid, &status, 0) != one->pid)
        return;
    one->exited = true;
    one->code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    close(one->pidfd);
    one->pidfd = -1;
}

static void turn(struct cluster *cluster, int timeout)
{
    struct pollfd fds[2 * CLUSTER_WORKERS];

    for (int i = 0; i < cluster->n; i++) {
        fds[2 * i] = (struct pollfd){cluster->workers[i].fd, POLLIN, 0};
        fds[2 * i + 1] = (struct pollfd){cluster->workers[i].pidfd, POLLIN, 0};
    }
    if (poll(fds, (nfds_t)(2 * cluster->n), timeout) <= 0)
        return;
    for (int i = 0; i < cluster->n; i++) {
        struct cluster_worker *one = &cluster->workers[i];

        if (fds[2 * i].revents)
            read_worker(cluster, one);
        else if (fds[2 * i + 1].revents)
            reap(one); /* after everything that it sent */
    }
}

void cluster_until(struct cluster *cluster, bool (*condition)(struct cluster *, int64_t),
                   int64_t argument, const char *what)
{
    uint64_t deadline = rb_clock_ns() + (uint64_t)CLUSTER_PATIENCE_MS * 1000000;

    while (!condition(cluster, argument)) {
        if (rb_clock_ns() > deadline)
            CLUSTER_FAIL(cluster, "waited in vain: %s", what);
        turn(cluster, 1000);
        for (int i = 0; i < cluster->n; i++)
            if (cluster->workers[i].exited && cluster->workers[i].code == 70)
                CLUSTER_FAIL(cluster, "%s broke while waiting: %s", cluster->workers[i].name, what);
    }
}

/* A run that is over counts too: it has every step that it ever will. */
static bool has_step(struct cluster *cluster, int64_t step)
{
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].done)
            return true;
    return cluster->n_rows > step;
}

void cluster_until_step(struct cluster *cluster, int64_t step)
{
    cluster_until(cluster, has_step, step, "a step");
}
