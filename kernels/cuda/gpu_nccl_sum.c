/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and moves of a circle that NCCL has made: each is called, is then under way, and is then
 * done.  Until it is done, over() and the communicator are asked whether it still can be. */
#include "kernels/cuda/gpu_inside.h"
#include "kernels/cuda/gpu_nccl.h"

#include <time.h>

/* The first turns do not sleep: most waits are short. */
static void rest(int *turns)
{
    const struct timespec moment = {0, 20000};

    if (++*turns > 200)
        nanosleep(&moment, NULL);
}

/* The cost of asking grows with the number of links. */
static bool is_over(int turns, bool (*over)(void *context), void *context)
{
    return turns % 16 == 0 && over(context);
}

static int give_up(struct rb_gpu_circle *circle, struct rb_why *why)
{
    rb_gpu_circle_stop(circle);
    return rb_why_set(why, RB_EPEER, "NCCL: another rank is gone");
}

/* Waits until what was called is under way on the GPU. */
static int settle(struct rb_gpu_circle *circle, bool (*over)(void *context), void *context,
                  struct rb_why *why)
{
    bool ready = false;
    int turns = 0, err;

    for (;;) {
        err = rb_gpu_circle_ready(circle, &ready, why);
        if (err || ready)
            return err;
        if (is_over(turns, over, context))
            return give_up(circle, why);
        rest(&turns);
    }
}

/* Waits until the GPU has done it.  A peer's death shows as an error of the communicator or in
 * over(). */
static int wait_done(struct rb_gpu_circle *circle, bool (*over)(void *context), void *context,
                     struct rb_why *why)
{
    bool ready;
    int turns = 0, err;

    for (;;) {
        cudaError_t done = cudaEventQuery(circle->done);

        if (done == cudaSuccess)
            return 0;
        rb_gpu_forget();
        if (done != cudaErrorNotReady) {
            rb_gpu_note(circle->gpu, done, "a sum or move failed");
            return rb_gpu_check(circle->gpu, why);
        }
        err = rb_gpu_circle_ready(circle, &ready, why);
        if (err)
            return err;
        if (is_over(turns, over, context))
            return give_up(circle, why);
        rest(&turns);
    }
}

/* Begins behind what is queued on the GPU. */
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

/* Waits for what was called, and came to `status`, until the GPU has done it. */
static int finish(struct rb_gpu_circle *circle, ncclResult_t status, bool (*over)(void *context),
                  void *context, struct rb_why *why)
{
    struct rb_gpu *gpu = circle->gpu;
    int err;

    if (status != ncclSuccess && status != ncclInProgress)
        return rb_nccl_refuse(circle->nccl, status, "a sum or move could not begin", why);
    err = settle(circle, over, context, why);
    if (err)
        return err;
    rb_gpu_note(gpu, cudaEventRecord(circle->done, circle->stream), "a sum or move failed");
    err = rb_gpu_check(gpu, why);
    return err ? err : wait_done(circle, over, context, why);
}

/* What is asked for in one group. */
struct asked {
    const int32_t *in; /* sums */
    int32_t *out;
    const struct rb_circle_range *ranges;
    const struct rb_circle_move *moves;
    size_t n;
};

static ncclResult_t ask_sum(const struct rb_gpu_circle *circle, const struct asked *asked, size_t i)
{
    const struct rb_nccl *nccl = circle->nccl;
    const struct rb_circle_range *r = &asked->ranges[i];
    const int32_t *in = asked->in + r->first;
    int32_t *out = asked->out + r->first;

    if (r->from != RB_CIRCLE_ALL)
        return nccl->broadcast(in, out, r->count, ncclInt32, r->from, circle->comm, circle->stream);
    if (r->to == RB_CIRCLE_ALL)
        return nccl->all_reduce(in, out, r->count, ncclInt32, ncclSum, circle->comm,
                                circle->stream);
    return nccl->reduce(in, out, r->count, ncclInt32, ncclSum, r->to, circle->comm, circle->stream);
}

/* NCCL pairs what two ranks send and receive by the order in a group. */
static ncclResult_t ask_move(const struct rb_gpu_circle *circle, const struct asked *asked,
                             size_t i)
{
    const struct rb_nccl *nccl = circle->nccl;
    const struct rb_circle_move *m = &asked->moves[i];

    if (m->from == m->to)
        return ncclSuccess;
    if (m->from == circle->rank)
        return nccl->send(m->memory, m->bytes, ncclUint8, m->to, circle->comm, circle->stream);
    if (m->to == circle->rank)
        return nccl->receive(m->memory, m->bytes, ncclUint8, m->from, circle->comm, circle->stream);
    return ncclSuccess;
}

/* All in one group, so that NCCL may run them together. */
static ncclResult_t ask_all(const struct rb_gpu_circle *circle, const struct asked *asked,
                            ncclResult_t (*ask)(const struct rb_gpu_circle *circle,
                                                const struct asked *asked, size_t i))
{
    ncclResult_t status = circle->nccl->group_start(), ended;

    if (status != ncclSuccess)
        return status;
    for (size_t i = 0; i < asked->n; i++) {
        ncclResult_t said = ask(circle, asked, i);

        if (said != ncclSuccess && said != ncclInProgress)
            status = said;
    }
    ended = circle->nccl->group_end();
    return status == ncclSuccess ? ended : status;
}

int rb_gpu_circle_sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why)
{
    const struct asked asked = {.in = in, .out = out, .ranges = ranges, .n = n};
    int err = begin(circle, why);

    return err ? err : finish(circle, ask_all(circle, &asked, ask_sum), over, context, why);
}

int rb_gpu_circle_move(struct rb_gpu_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why)
{
    const struct asked asked = {.moves = moves, .n = n};
    int err = begin(circle, why);

    return err ? err : finish(circle, ask_all(circle, &asked, ask_move), over, context, why);
}
