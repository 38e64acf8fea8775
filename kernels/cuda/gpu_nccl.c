/* SPDX-License-Identifier: Apache-2.0 */
/* Circles by NCCL.
 *
 *     entering --the communicator is made--> in --a sum, moves--> in
 *        |                                   |
 *        |                                   +-- it is over --> revoked --shrunk--> entering
 *        |                                   |                     |
 *        +------- an error ------------------+---------------------+--> aborted
 *
 * Either way kernels that wait for other ranks end.  A revoked communicator keeps its ways to the
 * ranks that are left, so that these need not find each other anew; NCCL can do this since 2.28.
 *
 * Communicators do not block: each call may say that it is under way, and is then asked again.
 * Nothing here waits for a peer by itself.  A circle ends by being aborted, even if nothing is
 * wrong: that needs no other rank. */
#include "kernels/cuda/gpu_nccl.h"

#include "base/arena.h"
#include "kernels/cuda/gpu_inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES && NCCL_UNIQUE_ID_BYTES == 128,
               "a ticket is an id of NCCL");

/* Flags of NCCL, by their numbers: headers may be older. */
enum { STOP_MS = 2000, REVOKE_DEFAULT = 0, SHRINK_ABORT = 1 };

int rb_nccl_refuse(const struct rb_nccl *nccl, ncclResult_t status, const char *what,
                   struct rb_why *why)
{
    return rb_why_set(why, RB_EPEER, "NCCL: %s: %s", what, nccl->error(status));
}

int rb_gpu_circle_ticket(struct rb_gpu *gpu, void *ret_ticket, struct rb_why *why)
{
    const struct rb_nccl *nccl = rb_nccl_open(why);
    ncclUniqueId id;
    ncclResult_t status;

    if (!nccl)
        return RB_EUNSUPPORTED;
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    status = nccl->id(&id);
    if (status != ncclSuccess)
        return rb_nccl_refuse(nccl, status, "no id", why);
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
    const struct rb_nccl *nccl = rb_nccl_open(why);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct rb_gpu_circle *circle;
    ncclResult_t status;
    ncclUniqueId id;

    if (!nccl)
        return RB_EUNSUPPORTED;
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    config.blocking = 0;
    memcpy(&id, ticket, sizeof id);
    circle = rb_alloc(sizeof *circle);
    circle->nccl = nccl;
    circle->gpu = gpu;
    circle->rank = rank;
    if (open_stream(circle) != cudaSuccess) {
        rb_gpu_circle_leave(circle);
        return rb_why_set(why, RB_EUNSUPPORTED, "the GPU has no stream left");
    }
    status = nccl->init(&circle->comm, size, id, rank, &config);
    if (status != ncclSuccess && status != ncclInProgress) {
        rb_gpu_circle_leave(circle);
        return rb_nccl_refuse(nccl, status, "no communicator", why);
    }
    *ret_circle = circle;
    return 0;
}

static int is_settled(const struct rb_nccl *nccl, ncclComm_t comm, bool *ret_settled,
                      struct rb_why *why)
{
    ncclResult_t state = ncclSuccess, status = nccl->state(comm, &state);

    if (status != ncclSuccess)
        return rb_nccl_refuse(nccl, status, "no state", why);
    if (state != ncclSuccess && state != ncclInProgress)
        return rb_nccl_refuse(nccl, state, "the communicator failed", why);
    *ret_settled = state == ncclSuccess;
    return 0;
}

/* Not being ready is an error to CUDA, which stays with the thread as others do. */
static bool is_idle(const struct rb_gpu_circle *circle)
{
    bool idle = cudaStreamQuery(circle->stream) == cudaSuccess;

    if (!idle)
        rb_gpu_forget();
    return idle;
}

/* Is nothing on its stream any more, once what it waits for is through?  2 s is far more than
 * kernels take to see that they are to end. */
static bool is_drained(const struct rb_gpu_circle *circle)
{
    const struct timespec moment = {0, 200000};

    if (cudaEventSynchronize(circle->behind) != cudaSuccess) {
        rb_gpu_forget();
        return false;
    }
    for (int turns = 0; turns < STOP_MS * 5; turns++) {
        if (is_idle(circle))
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

/* In an abort NCCL waits until the communicator's kernels have ended and its threads are gone,
 * though the communicator does not block otherwise.  It cannot be asked afterwards: an answer other
 * than success says that some of it may be there for good. */
static void abort_comm(struct rb_gpu_circle *circle, ncclComm_t comm)
{
    if (circle->nccl->abort(comm) == ncclSuccess)
        return;
    circle->used = true;
    if (!is_drained(circle))
        rb_gpu_fail(circle->gpu, "what NCCL runs does not end");
}

/* While a circle is being shrunk its parent is under way; then there is another communicator. */
int rb_gpu_circle_ready(struct rb_gpu_circle *circle, bool *ret_ready, struct rb_why *why)
{
    bool settled = true;
    int err = circle->parent ? is_settled(circle->nccl, circle->parent, &settled, why) : 0;

    if (err || !settled) {
        *ret_ready = false;
        return err;
    }
    if (!circle->comm)
        return rb_why_set(why, RB_EPEER, "NCCL: the communicator was given up");
    if (circle->parent)
        abort_comm(circle, RB_TAKE(circle->parent));
    return is_settled(circle->nccl, circle->comm, ret_ready, why);
}

/* Revokes the communicator, so that nothing of it runs. */
static bool revoke_comm(struct rb_gpu_circle *circle)
{
    const struct timespec moment = {0, 200000};
    struct rb_why unsaid;
    bool settled = false;
    ncclResult_t status = circle->nccl->revoke(circle->comm, REVOKE_DEFAULT);

    if (status != ncclSuccess && status != ncclInProgress)
        return false;
    for (int turns = 0; turns < STOP_MS * 5; turns++) {
        if (is_settled(circle->nccl, circle->comm, &settled, &unsaid))
            return false;
        if (settled && is_idle(circle))
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

void rb_gpu_circle_stop(struct rb_gpu_circle *circle)
{
    if (circle->stopped || !circle->comm)
        return;
    if (cudaSetDevice(circle->gpu->index) != cudaSuccess) {
        rb_gpu_forget();
        return;
    }
    circle->stopped = true;
    if (circle->parent || !circle->nccl->revoke || !revoke_comm(circle))
        abort_comm(circle, RB_TAKE(circle->comm));
}

/* NCCL sorts the ranks that it is given, so it gets a copy; it writes circle->comm when it has made
 * the communicator. */
static ncclResult_t shrink_comm(struct rb_gpu_circle *circle, const int *gone, int n)
{
    RB_CLEANUP(rb_freep) int *ranks = rb_alloc((size_t)n * sizeof *ranks);

    memcpy(ranks, gone, (size_t)n * sizeof *ranks);
    circle->parent = RB_TAKE(circle->comm);
    circle->stopped = false;
    for (int i = 0, was = circle->rank; i < n; i++)
        circle->rank -= gone[i] < was;
    return circle->nccl->shrink(circle->parent, ranks, n, &circle->comm, NULL, SHRINK_ABORT);
}

int rb_gpu_circle_shrink(struct rb_gpu_circle *circle, const int *gone, int n,
                         struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    ncclResult_t status;
    int err = 0;

    if (!rb_gpu_enter(circle->gpu))
        err = rb_gpu_check(circle->gpu, why);
    else if (!circle->nccl->revoke)
        err = rb_why_set(why, RB_EUNSUPPORTED, "this NCCL cannot shrink");
    else if (!circle->comm)
        err = rb_why_set(why, RB_EUNSUPPORTED, "NCCL: the communicator could not be kept");
    if (!err) {
        status = shrink_comm(circle, gone, n);
        if (status != ncclSuccess && status != ncclInProgress)
            err = rb_nccl_refuse(circle->nccl, status, "it does not shrink", why);
    }
    if (err)
        rb_gpu_circle_leave(circle);
    else
        *ret_circle = circle;
    return err;
}

/* What NCCL may still use stays: a stream and two events, once in a great while. */
static void close_stream(struct rb_gpu_circle *circle)
{
    if (circle->used)
        return;
    if (circle->behind)
        cudaEventDestroy(circle->behind);
    if (circle->done)
        cudaEventDestroy(circle->done);
    if (circle->stream)
        cudaStreamDestroy(circle->stream);
}

void rb_gpu_circle_leave(struct rb_gpu_circle *circle)
{
    if (!circle)
        return;
    if (cudaSetDevice(circle->gpu->index) == cudaSuccess) {
        if (circle->parent) /* a communicator that it still makes ends with it, or is there */
            abort_comm(circle, circle->parent);
        if (circle->comm)
            abort_comm(circle, circle->comm);
        close_stream(circle);
    }
    rb_gpu_forget();
    free(circle);
}
