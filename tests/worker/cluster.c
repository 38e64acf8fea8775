/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/cluster.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 120000 };

static void show_logs(struct cluster *cluster)
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

#define FAIL(cluster, ...)                                                                         \
    do {                                                                                           \
        show_logs(cluster);                                                                        \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

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

/* Everything but times, and but who computed it. */
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
        FAIL(cluster, "%s sent row %lld after row %lld", one->name, (long long)row->step,
             (long long)one->rows);
    /* Who lives through a death tells of the step that it tore, too. */
    if (one->rows > 0 && row->step != one->rows + 1)
        FAIL(cluster, "%s sent row %lld after row %lld: a gap", one->name, (long long)row->step,
             (long long)one->rows);
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
        FAIL(cluster, "step %lld: %s says loss %.17g, norm %.17g; before it was %.17g, %.17g",
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
        one->frozen = false;
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
        FAIL(cluster, "%s: %s", one->name, why.text);
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
            reap(one); /* after all it had to say */
    }
}

void cluster_until(struct cluster *cluster, bool (*condition)(struct cluster *, int64_t),
                   int64_t argument, const char *what)
{
    uint64_t deadline = rb_clock_ns() + (uint64_t)PATIENCE_MS * 1000000;

    while (!condition(cluster, argument)) {
        if (rb_clock_ns() > deadline)
            FAIL(cluster, "waited in vain: %s", what);
        turn(cluster, 1000);
        for (int i = 0; i < cluster->n; i++)
            if (cluster->workers[i].exited && cluster->workers[i].code == 70)
                FAIL(cluster, "%s broke while waiting: %s", cluster->workers[i].name, what);
    }
}

/* A run that is over has every step it ever will. */
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

/* ---- What they are told ---------------------------------------------------------------------*/

void cluster_send(struct cluster *cluster, int worker, Rb__ToWorker *message)
{
    struct rb_buffer out = {0};
    size_t at = 0;

    message->fence = cluster->fence;
    rb_frame_put(&out, RB_FRAME_TO_WORKER, &message->base);
    while (at < out.size) {
        ssize_t put = send(cluster->workers[worker].fd, out.data + at, out.size - at, MSG_NOSIGNAL);

        if (put <= 0)
            break; /* it is dead: the event will come */
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

/* The socket is there once the worker is: try until it is, or until the worker has ended. */
void cluster_connect(struct cluster *cluster, int worker, int64_t rows_after)
{
    struct cluster_worker *one = &cluster->workers[worker];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t deadline = rb_clock_ns() + (uint64_t)PATIENCE_MS * 1000000;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Settings settings = RB__SETTINGS__INIT;
    char final[200];

    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s.sock", cluster->folder, one->name);
    one->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(one->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (rb_clock_ns() > deadline || (errno != ENOENT && errno != ECONNREFUSED))
            FAIL(cluster, "cannot connect to %s", one->name);
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

void cluster_configure(struct cluster *cluster, uint32_t number, const int *members, int n,
                       const char *restore)
{
    RB_CLEANUP(rb_freep) char *plan = rb_format("%s/plan.%d", cluster->folder, n);
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/model", cluster->folder);
    RB_CLEANUP(rb_freep) char *digest = rb_format("%u of %d", number, n);
    Rb__Peer peers[CLUSTER_WORKERS], *pointers[CLUSTER_WORKERS];

    for (int r = 0; r < n; r++) {
        const Rb__Hello *hello = cluster->workers[members[r]].hello->hello;

        rb__peer__init(&peers[r]);
        peers[r].worker = hello->worker;
        peers[r].addresses = hello->addresses;
        peers[r].n_addresses = hello->n_addresses;
        pointers[r] = &peers[r];
    }
    for (int r = 0; r < n; r++) {
        Rb__ToWorker message = RB__TO_WORKER__INIT;
        Rb__Configure configure = RB__CONFIGURE__INIT;

        configure.number = number;
        configure.plan_path = plan;
        configure.model_path = model;
        configure.rank = (uint32_t)r;
        configure.n_members = (size_t)n;
        configure.members = pointers;
        configure.restore = (char *)restore;
        configure.digest = digest;
        configure.has_recovers = configure.recovers = cluster->recovers;
        message.configure = &configure;
        cluster_send(cluster, members[r], &message);
    }
}

void cluster_go(struct cluster *cluster, int worker, uint32_t number)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Go go = RB__GO__INIT;

    go.number = number;
    message.go = &go;
    cluster_send(cluster, worker, &message);
}

void cluster_abandon(struct cluster *cluster, int worker, uint32_t number)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Abandon abandon = RB__ABANDON__INIT;

    abandon.number = number;
    message.abandon = &abandon;
    cluster_send(cluster, worker, &message);
}

struct set {
    uint32_t number;
    const int *members;
    int n;
    bool or_unready;
};

static bool all_ready(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;
    bool all = true;

    for (int i = 0; i < set->n; i++) {
        struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (one->unready == set->number || one->failed || one->exited)
            FAIL(cluster, "%s is not ready for %u: %s", one->name, set->number, one->reason);
        all &= one->ready == set->number;
    }
    return all;
}

static bool all_flipped(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;
    bool all = true;

    for (int i = 0; i < set->n; i++) {
        struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (one->exited && cluster->mortal)
            continue; /* it may have been there already */
        if (one->failed || one->exited)
            FAIL(cluster, "%s failed on its way to %u: %s", one->name, set->number, one->reason);
        if (set->or_unready && one->unready == set->number)
            return true;
        all &= one->flipped == set->number;
    }
    return all;
}

void cluster_until_ready(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_ready, (int64_t)(intptr_t)&set, "ready");
}

void cluster_until_flipped(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_flipped, (int64_t)(intptr_t)&set, "flipped");
}

static bool all_unready(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;

    for (int i = 0; i < set->n; i++)
        if (cluster->workers[set->members[i]].unready != set->number)
            return false;
    return true;
}

void cluster_until_unready(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    struct set set = {number, members, n, false};

    cluster_until(cluster, all_unready, (int64_t)(intptr_t)&set, "unready");
}

static bool all_frozen(struct cluster *cluster, int64_t argument)
{
    const struct set *set = (const struct set *)(intptr_t)argument;

    for (int i = 0; i < set->n; i++) {
        const struct cluster_worker *one = &cluster->workers[set->members[i]];

        if (!one->exited && !(one->frozen && one->frozen_in == set->number) &&
            !(set->or_unready && one->unready == set->number))
            return false;
    }
    return true;
}

void cluster_until_frozen(struct cluster *cluster, uint32_t number, const int *members, int n,
                          bool or_unready)
{
    struct set set = {number, members, n, or_unready};

    cluster_until(cluster, all_frozen, (int64_t)(intptr_t)&set, "frozen");
}

static bool is_in(int worker, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (members[i] == worker)
            return true;
    return false;
}

/* False: given up on, as newcomers are that do not keep up on a busy machine. */
static bool move_once(struct cluster *cluster, const int *members, int n, const char *restore)
{
    struct set set = {++cluster->number, members, n, true};

    cluster_configure(cluster, set.number, members, n, restore);
    cluster_until_ready(cluster, set.number, members, n);
    for (int i = 0; i < n; i++)
        cluster_go(cluster, members[i], set.number);
    for (int i = 0; i < cluster->n_members; i++)
        if (!is_in(cluster->members[i], members, n))
            cluster_go(cluster, cluster->members[i], set.number);
    cluster_until(cluster, all_flipped, (int64_t)(intptr_t)&set, "flipped");
    for (int i = 0; i < n; i++)
        if (cluster->workers[members[i]].unready == set.number)
            return false;
    return true;
}

void cluster_move(struct cluster *cluster, const int *members, int n, const char *restore)
{
    for (int tries = 1; !move_once(cluster, members, n, restore); tries++) {
        if (tries == 50)
            FAIL(cluster, "%d tries to enter a configuration came to nothing", tries);
        for (int i = 0; i < n; i++)
            cluster_abandon(cluster, members[i], cluster->number);
    }
    for (int i = 0; i < cluster->n_members; i++)
        if (!is_in(cluster->members[i], members, n))
            cluster_leave(cluster, cluster->members[i], NULL, 0);
    memcpy(cluster->members, members, (size_t)n * sizeof *members);
    cluster->n_members = n;
}

void cluster_start(struct cluster *cluster, int n, const char *restore)
{
    int members[CLUSTER_WORKERS];

    for (int i = 0; i < n; i++)
        members[i] = cluster_spawn(cluster);
    cluster->n_members = 0;
    cluster_move(cluster, members, n, restore);
}

void cluster_resize(struct cluster *cluster, int n)
{
    int members[CLUSTER_WORKERS];

    for (int i = 0; i < n; i++)
        members[i] = i < cluster->n_members ? cluster->members[i] : cluster_newcomer(cluster);
    cluster_move(cluster, members, n, NULL);
}

/* ---- Ends -----------------------------------------------------------------------------------*/

static bool has_exited(struct cluster *cluster, int64_t worker)
{
    return cluster->workers[worker].exited;
}

void cluster_kill(struct cluster *cluster, int worker)
{
    kill(cluster->workers[worker].pid, SIGKILL);
    cluster_until(cluster, has_exited, worker, "the death of a worker");
}

void cluster_until_exit(struct cluster *cluster, int worker)
{
    cluster_until(cluster, has_exited, worker, "the end of a worker");
}

void cluster_terminate(struct cluster *cluster, int worker)
{
    kill(cluster->workers[worker].pid, SIGTERM);
    cluster_until_exit(cluster, worker);
    assert_int_equal(cluster->workers[worker].code, 0);
}

static bool survivors_frozen(struct cluster *cluster, int64_t argument)
{
    (void)argument;
    for (int i = 0; i < cluster->n_members; i++) {
        const struct cluster_worker *one = &cluster->workers[cluster->members[i]];

        if (!one->exited && !one->frozen)
            return false;
    }
    return true;
}

void cluster_until_stopped(struct cluster *cluster)
{
    cluster_until(cluster, survivors_frozen, 0, "freezing");
}

void cluster_recover(struct cluster *cluster)
{
    int members[CLUSTER_WORKERS], n = 0;

    cluster_until_stopped(cluster);
    for (int i = 0; i < cluster->n_members; i++)
        if (!cluster->workers[cluster->members[i]].exited)
            cluster->members[n++] = cluster->members[i];
    cluster->n_members = n;
    memcpy(members, cluster->members, (size_t)n * sizeof *members);
    cluster->recovers = true;
    cluster_move(cluster, members, n, NULL);
    cluster->recovers = false;
}

void cluster_leave(struct cluster *cluster, int worker, const char *folder, int code)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Leave leave = RB__LEAVE__INIT;

    leave.folder = (char *)folder;
    message.leave = &leave;
    cluster_send(cluster, worker, &message);
    cluster_until(cluster, has_exited, worker, "a worker's leave");
    if (cluster->workers[worker].code != code)
        FAIL(cluster, "%s left with code %d", cluster->workers[worker].name,
             cluster->workers[worker].code);
}

uint64_t cluster_save(struct cluster *cluster, int worker, const char *folder, bool export_only)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Save save = RB__SAVE__INIT;

    save.folder = (char *)folder;
    save.request = ++cluster->request;
    save.has_export_only = save.export_only = export_only;
    message.save = &save;
    cluster_send(cluster, worker, &message);
    return save.request;
}

static int find_saved(const struct cluster_worker *one, uint64_t request)
{
    for (int i = 0; i < CLUSTER_SAVED && i < one->n_saved; i++)
        if (one->saved[i].request == request)
            return i;
    return -1;
}

struct saving {
    int worker;
    uint64_t request;
};

static bool is_saved(struct cluster *cluster, int64_t argument)
{
    const struct saving *saving = (const struct saving *)(intptr_t)argument;

    return find_saved(&cluster->workers[saving->worker], saving->request) >= 0;
}

int cluster_until_saved(struct cluster *cluster, int worker, uint64_t request)
{
    struct saving saving = {worker, request};

    cluster_until(cluster, is_saved, (int64_t)(intptr_t)&saving, "a save");
    return find_saved(&cluster->workers[worker], request);
}

static bool all_done(struct cluster *cluster, int64_t argument)
{
    (void)argument;
    for (int i = 0; i < cluster->n_members; i++) {
        const struct cluster_worker *one = &cluster->workers[cluster->members[i]];

        if (one->failed || one->exited)
            FAIL(cluster, "%s failed: %s", one->name, one->reason);
        if (!one->done)
            return false;
    }
    return true;
}

void cluster_digest(const char *folder, char ret_digest[33])
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    struct rb_buffer all = {0};

    for (size_t i = 0; i < RB_COUNT(names); i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, names[i]);
        struct rb_why why = {0};

        if (rb_file_read(path, 1 << 28, &all, &why) != 0 && i != 1)
            fail_msg("%s", why.text);
    }
    rb_hash_digest(all.data, all.size, ret_digest);
    rb_buffer_done(&all);
}

void cluster_finish(struct cluster *cluster, char ret_digest[33])
{
    const char *final = "";

    cluster_until(cluster, all_done, 0, "the end");
    /* Rank 0 has saved: of the set before, where the job ended while another was prepared. */
    for (int i = 0; i < cluster->n_members && !final[0]; i++)
        final = cluster->workers[cluster->members[i]].final;
    assert_true(final[0]);
    cluster_digest(final, ret_digest);
    for (int i = 0; i < cluster->n_members; i++)
        cluster_leave(cluster, cluster->members[i], NULL, 0);
}

/* ---- Without an end -------------------------------------------------------------------------*/

/* That of `worker` at index `at` is what the cluster ended with. */
static int64_t take_checkpoint(struct cluster *cluster, int worker, int at)
{
    struct cluster_worker *one = &cluster->workers[worker];

    if (one->saved[at].error[0])
        FAIL(cluster, "%s did not save: %s", one->name, one->saved[at].error);
    strcpy(cluster->saved, one->saved[at].folder);
    cluster_until_step(cluster, one->saved[at].step);
    return one->saved[at].step;
}

int64_t cluster_break_off(struct cluster *cluster)
{
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/broken-off", cluster->folder);
    int first = cluster->members[0];
    uint64_t request = cluster_save(cluster, first, folder, false);
    int64_t step = take_checkpoint(cluster, first, cluster_until_saved(cluster, first, request));

    for (int i = 0; i < cluster->n_members; i++)
        cluster_leave(cluster, cluster->members[i], NULL, 0);
    return step;
}

static bool has_checkpoint(struct cluster *cluster, int64_t worker)
{
    return cluster->workers[worker].n_saved > 0;
}

void cluster_alone_until(struct cluster *cluster, const char *restore, int64_t step)
{
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/alone", cluster->folder);

    cluster->checkpoint_path = folder;
    cluster->checkpoint_every = step;
    cluster_start(cluster, 1, restore);
    cluster_until(cluster, has_checkpoint, cluster->members[0], "the same step on one device");
    cluster->checkpoint_path = NULL;
    if (take_checkpoint(cluster, cluster->members[0], 0) != step)
        FAIL(cluster, "it saved another step than %lld", (long long)step);
}
