/* SPDX-License-Identifier: Apache-2.0 */
/* How workers end: killed, told to leave, after the last step, and where a job has no last step. */
#include "tests/worker/cluster.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <string.h>

#include <cmocka.h>

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
        CLUSTER_FAIL(cluster, "%s left with code %d", cluster->workers[worker].name,
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
            CLUSTER_FAIL(cluster, "%s failed: %s", one->name, one->reason);
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
    /* Rank 0 has saved: rank 0 of the set before, where the job ended while another set was
     * prepared. */
    for (int i = 0; i < cluster->n_members && !final[0]; i++)
        final = cluster->workers[cluster->members[i]].final;
    assert_true(final[0]);
    cluster_digest(final, ret_digest);
    for (int i = 0; i < cluster->n_members; i++)
        cluster_leave(cluster, cluster->members[i], NULL, 0);
}

/* ---- Without an end -------------------------------------------------------------------------*/

/* The checkpoint of `worker` at index `at` is what the cluster ended with.  Returns its step. */
static int64_t take_checkpoint(struct cluster *cluster, int worker, int at)
{
    struct cluster_worker *one = &cluster->workers[worker];

    if (one->saved[at].error[0])
        CLUSTER_FAIL(cluster, "%s did not save: %s", one->name, one->saved[at].error);
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
        CLUSTER_FAIL(cluster, "it saved another step than %lld", (long long)step);
}
