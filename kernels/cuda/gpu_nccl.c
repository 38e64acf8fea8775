/* SPDX-License-Identifier: Apache-2.0 */
/* Circles by NCCL, which is opened when the first is asked for: a machine may have none.
 *
 *     entering --the communicator is made--> in --a sum, moves--> in
 *        |                                   |
 *        |                                   +-- it is over --> revoked --shrunk--> entering
 *        |                                   |                     |
 *        +------- an error ------------------+---------------------+--> aborted
 *
 * Either way kernels that wait for others end.  What is revoked keeps its ways to those who are
 * left, so that they need not find each other anew; NCCL can since 2.28.
 *
 * Communicators do not block: each call may say that it is under way, and is asked again.  Nothing
 * here waits for a peer by itself.  A circle ends by being aborted, however well it was: that needs
 * nobody else. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES && NCCL_UNIQUE_ID_BYTES == 128,
               "a ticket is an id of NCCL");

struct calls {
    ncclResult_t (*id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*state)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
    ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
                           ncclComm_t, cudaStream_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*revoke)(ncclComm_t, int); /* NULL, both of these: too old to shrink */
    ncclResult_t (*shrink)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
    const char *(*error)(ncclResult_t);
};

/* Written once and never changed, as a library that is loaded is. */
static struct {
    pthread_once_t once;
    bool there;
    struct calls calls;
    struct rb_why why;
} nccl = {.once = PTHREAD_ONCE_INIT};

struct rb_gpu_circle {
    struct rb_gpu *gpu;
    ncclComm_t comm;   /* NULL while it is shrunk out of: */
    ncclComm_t parent; /* given up as soon as there is one; NULL: entered, not shrunk */
    int rank;
    bool stopped;
    cudaStream_t stream;
    cudaEvent_t behind, done; /* of what is queued before a sum or move; of that */
};

/* Flags of NCCL, by their numbers: headers may be older. */
enum { STOP_MS = 2000, REVOKE_DEFAULT = 0, SHRINK_ABORT = 1 };

static bool find(void *library, void *ret, const char *name)
{
    void *found = dlsym(library, name);

    memcpy(ret, &found, sizeof found);
    if (!found)
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "NCCL lacks %s", name);
    return found != NULL;
}

/* Several ranks on one GPU are for tests: NCCL takes them if they say that they are of different
 * hosts. */
static void name_host(void)
{
    const char *shares = getenv("RUBATO_GPU_SHARES");
    char name[32];

    if (!shares || atoi(shares) < 2)
        return;
    snprintf(name, sizeof name, "rubato-%ld", (long)getpid());
    setenv("NCCL_HOSTID", name, 0);
}

/* RUBATO_NCCL: another library, or "" for none. */
static void open_library(void)
{
    const char *path = getenv("RUBATO_NCCL");
    struct calls *calls = &nccl.calls;
    void *library;

    if (path && !*path) {
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "NCCL is not wanted");
        return;
    }
    library = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rb_why_set(&nccl.why, RB_EUNSUPPORTED, "no NCCL: %s", dlerror());
        return;
    }
    name_host();
    nccl.there = find(library, &calls->id, "ncclGetUniqueId") &&
                 find(library, &calls->init, "ncclCommInitRankConfig") &&
                 find(library, &calls->state, "ncclCommGetAsyncError") &&
                 find(library, &calls->all_reduce, "ncclAllReduce") &&
                 find(library, &calls->reduce, "ncclReduce") &&
                 find(library, &calls->send, "ncclSend") &&
                 find(library, &calls->receive, "ncclRecv") &&
                 find(library, &calls->group_start, "ncclGroupStart") &&
                 find(library, &calls->group_end, "ncclGroupEnd") &&
                 find(library, &calls->abort, "ncclCommAbort") &&
                 find(library, &calls->error, "ncclGetErrorString");
    if (nccl.there && !(find(library, &calls->revoke, "ncclCommRevoke") &&
                        find(library, &calls->shrink, "ncclCommShrink")))
        calls->revoke = NULL;
}

static int refuse(ncclResult_t status, const char *what, struct rb_why *why)
{
    return rb_why_set(why, RB_EPEER, "NCCL: %s: %s", what, nccl.calls.error(status));
}

int rb_gpu_circle_ticket(struct rb_gpu *gpu, void *ret_ticket, struct rb_why *why)
{
    ncclUniqueId id;
    ncclResult_t status;

    pthread_once(&nccl.once, open_library);
    if (!nccl.there)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s", nccl.why.text);
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    status = nccl.calls.id(&id);
    if (status != ncclSuccess)
        return refuse(status, "no id", why);
    memcpy(ret_ticket, &id, sizeof id);
    return 0;
}

static cudaError_t open_stream(struct rb_gpu_circle *circle)
{
    cudaError_t err = cudaStreamCreateWithFlags(&circle->stream, cudaStreamNonBlocking);

    if (err == cudaSuccess)
        err = cudaEventCreateWithFlags(&circle->behind, cudaEventDisableTiming);
    if (err == cudaSuccess)
        err = cudaEventCreateWithFlags(&circle->done, cudaEventDisableTiming);
    return err;
}

int rb_gpu_circle_enter(struct rb_gpu *gpu, const void *ticket, int rank, int size,
                        struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct rb_gpu_circle *circle;
    ncclResult_t status;
    ncclUniqueId id;

    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    config.blocking = 0;
    memcpy(&id, ticket, sizeof id);
    circle = rb_alloc(sizeof *circle);
    circle->gpu = gpu;
    circle->rank = rank;
    if (open_stream(circle) != cudaSuccess) {
        (void)cudaGetLastError();
        rb_gpu_circle_leave(circle);
        return rb_why_set(why, RB_EUNSUPPORTED, "the GPU has no stream left");
    }
    status = nccl.calls.init(&circle->comm, size, id, rank, &config);
    if (status != ncclSuccess && status != ncclInProgress) {
        rb_gpu_circle_leave(circle);
        return refuse(status, "no communicator", why);
    }
    *ret_circle = circle;
    return 0;
}

static int is_settled(ncclComm_t comm, bool *ret_settled, struct rb_why *why)
{
    ncclResult_t state = ncclSuccess, status = nccl.calls.state(comm, &state);

    if (status != ncclSuccess)
        return refuse(status, "no state", why);
    if (state != ncclSuccess && state != ncclInProgress)
        return refuse(state, "the communicator failed", why);
    *ret_settled = state == ncclSuccess;
    return 0;
}

/* While it is shrunk it is the parent that is under way; then there is another communicator. */
int rb_gpu_circle_ready(struct rb_gpu_circle *circle, bool *ret_ready, struct rb_why *why)
{
    bool settled = true;
    int err = circle->parent ? is_settled(circle->parent, &settled, why) : 0;

    if (err || !settled) {
        *ret_ready = false;
        return err;
    }
    if (!circle->comm)
        return rb_why_set(why, RB_EPEER, "NCCL: the communicator was given up");
    if (circle->parent)
        nccl.calls.abort(RB_TAKE(circle->parent));
    return is_settled(circle->comm, ret_ready, why);
}

/* At once first: most waits are short. */
static void rest(int *turns)
{
    const struct timespec moment = {0, 20000};

    if (++*turns > 200)
        nanosleep(&moment, NULL);
}

/* Revoked, so that nothing of it runs: 2 s is far more than kernels take to see it. */
static bool revoke_comm(struct rb_gpu_circle *circle)
{
    const struct timespec moment = {0, 200000};
    struct rb_why unsaid;
    bool settled = false;
    ncclResult_t status = nccl.calls.revoke(circle->comm, REVOKE_DEFAULT);

    if (status != ncclSuccess && status != ncclInProgress)
        return false;
    for (int turns = 0; turns < STOP_MS * 5; turns++) {
        if (is_settled(circle->comm, &settled, &unsaid))
            return false;
        if (settled && cudaStreamQuery(circle->stream) == cudaSuccess)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

void rb_gpu_circle_stop(struct rb_gpu_circle *circle)
{
    if (circle->stopped || !circle->comm || cudaSetDevice(circle->gpu->index) != cudaSuccess)
        return;
    circle->stopped = true;
    if (circle->parent || !nccl.calls.revoke || !revoke_comm(circle))
        nccl.calls.abort(RB_TAKE(circle->comm));
}

static int give_up(struct rb_gpu_circle *circle, struct rb_why *why)
{
    rb_gpu_circle_stop(circle);
    return rb_why_set(why, RB_EPEER, "NCCL: another rank is gone");
}

/* NCCL sorts what it is given, and writes the communicator when it has made it. */
static ncclResult_t shrink_comm(struct rb_gpu_circle *circle, const int *gone, int n)
{
    RB_CLEANUP(rb_freep) int *ranks = rb_alloc((size_t)n * sizeof *ranks);

    memcpy(ranks, gone, (size_t)n * sizeof *ranks);
    circle->parent = RB_TAKE(circle->comm);
    circle->stopped = false;
    for (int i = 0, was = circle->rank; i < n; i++)
        circle->rank -= gone[i] < was;
    return nccl.calls.shrink(circle->parent, ranks, n, &circle->comm, NULL, SHRINK_ABORT);
}

int rb_gpu_circle_shrink(struct rb_gpu_circle *circle, const int *gone, int n,
                         struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    ncclResult_t status;
    int err = 0;

    if (!rb_gpu_enter(circle->gpu))
        err = rb_gpu_check(circle->gpu, why);
    else if (!nccl.calls.revoke)
        err = rb_why_set(why, RB_EUNSUPPORTED, "this NCCL cannot shrink");
    else if (!circle->comm)
        err = rb_why_set(why, RB_EUNSUPPORTED, "NCCL: the communicator could not be kept");
    if (!err) {
        status = shrink_comm(circle, gone, n);
        if (status != ncclSuccess && status != ncclInProgress)
            err = refuse(status, "it does not shrink", why);
    }
    if (err)
        rb_gpu_circle_leave(circle);
    else
        *ret_circle = circle;
    return err;
}

/* Until what was called is under way on the GPU. */
static int settle(struct rb_gpu_circle *circle, bool (*over)(void *context), void *context,
                  struct rb_why *why)
{
    bool ready = false;
    int turns = 0, err;

    for (;;) {
        err = rb_gpu_circle_ready(circle, &ready, why);
        if (err || ready)
            return err;
        if (over(context))
            return give_up(circle, why);
        rest(&turns);
    }
}

/* Until the GPU has done it.  A peer's death shows as an error of the communicator or in over(). */
static int wait_done(struct rb_gpu_circle *circle, bool (*over)(void *context), void *context,
                     struct rb_why *why)
{
    bool ready;
    int turns = 0, err;

    for (;;) {
        cudaError_t done = cudaEventQuery(circle->done);

        if (done == cudaSuccess)
            return 0;
        if (done != cudaErrorNotReady) {
            rb_gpu_note(circle->gpu, done, "a sum or move failed");
            return rb_gpu_check(circle->gpu, why);
        }
        err = rb_gpu_circle_ready(circle, &ready, why);
        if (err)
            return err;
        if (over(context))
            return give_up(circle, why);
        rest(&turns);
    }
}

/* Behind what is queued on the GPU. */
static int begin(struct rb_gpu_circle *circle, struct rb_why *why)
{
    struct rb_gpu *gpu = circle->gpu;

    if (!circle->comm || circle->stopped)
        return rb_why_set(why, RB_EPEER, "NCCL: the communicator was given up");
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    rb_gpu_note(gpu, cudaEventRecord(circle->behind, gpu->stream), "a sum or move could not begin");
    rb_gpu_note(gpu, cudaStreamWaitEvent(circle->stream, circle->behind, 0),
                "a sum or move could not begin");
    return rb_gpu_check(gpu, why);
}

/* What was called, and came to `status`, until the GPU has done it. */
static int finish(struct rb_gpu_circle *circle, ncclResult_t status, bool (*over)(void *context),
                  void *context, struct rb_why *why)
{
    struct rb_gpu *gpu = circle->gpu;
    int err;

    if (status != ncclSuccess && status != ncclInProgress)
        return refuse(status, "a sum or move could not begin", why);
    err = settle(circle, over, context, why);
    if (err)
        return err;
    rb_gpu_note(gpu, cudaEventRecord(circle->done, circle->stream), "a sum or move failed");
    err = rb_gpu_check(gpu, why);
    return err ? err : wait_done(circle, over, context, why);
}

/* All in one group, so that NCCL may run them together. */
static ncclResult_t sum_all(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                            const struct rb_circle_range *ranges, size_t n)
{
    ncclResult_t status = nccl.calls.group_start(), ended;

    if (status != ncclSuccess)
        return status;
    for (size_t i = 0; i < n; i++) {
        const struct rb_circle_range *r = &ranges[i];
        ncclResult_t said =
            r->to == RB_CIRCLE_ALL
                ? nccl.calls.all_reduce(in + r->first, out + r->first, r->count, ncclInt32, ncclSum,
                                        circle->comm, circle->stream)
                : nccl.calls.reduce(in + r->first, out + r->first, r->count, ncclInt32, ncclSum,
                                    r->to, circle->comm, circle->stream);

        if (said != ncclSuccess && said != ncclInProgress)
            status = said;
    }
    ended = nccl.calls.group_end();
    return status == ncclSuccess ? ended : status;
}

int rb_gpu_circle_sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why)
{
    int err = begin(circle, why);

    return err ? err : finish(circle, sum_all(circle, in, out, ranges, n), over, context, why);
}

/* NCCL pairs what two ranks send and receive by the order in a group. */
static ncclResult_t move_all(struct rb_gpu_circle *circle, const struct rb_circle_move *moves,
                             size_t n)
{
    ncclResult_t status = nccl.calls.group_start(), ended;

    if (status != ncclSuccess)
        return status;
    for (size_t i = 0; i < n; i++) {
        const struct rb_circle_move *m = &moves[i];
        ncclResult_t said = ncclSuccess;

        if (m->from == m->to)
            continue;
        if (m->from == circle->rank)
            said = nccl.calls.send(m->memory, m->bytes, ncclUint8, m->to, circle->comm,
                                   circle->stream);
        if (m->to == circle->rank)
            said = nccl.calls.receive(m->memory, m->bytes, ncclUint8, m->from, circle->comm,
                                      circle->stream);
        if (said != ncclSuccess && said != ncclInProgress)
            status = said;
    }
    ended = nccl.calls.group_end();
    return status == ncclSuccess ? ended : status;
}

int rb_gpu_circle_move(struct rb_gpu_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why)
{
    int err = begin(circle, why);

    return err ? err : finish(circle, move_all(circle, moves, n), over, context, why);
}

void rb_gpu_circle_leave(struct rb_gpu_circle *circle)
{
    if (!circle)
        return;
    if (cudaSetDevice(circle->gpu->index) == cudaSuccess) {
        if (circle->parent) /* what it makes still ends with it, or is there */
            nccl.calls.abort(circle->parent);
        if (circle->comm)
            nccl.calls.abort(circle->comm);
        if (circle->behind)
            cudaEventDestroy(circle->behind);
        if (circle->done)
            cudaEventDestroy(circle->done);
        if (circle->stream)
            cudaStreamDestroy(circle->stream);
    }
    free(circle);
}
