/* SPDX-License-Identifier: Apache-2.0 */
/* Tapes as CUDA graphs: launches are captured on a stream of their own, so that what other threads
 * queue meanwhile, copies of the state above all, is not caught in between. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rb_gpu_tape {
    struct rb_gpu *gpu;
    size_t bytes;
    void *values;     /* on the GPU */
    void *room;       /* pinned: the values on their way */
    cudaEvent_t sent; /* they have arrived */
    cudaGraphExec_t graph;
};

bool rb_gpu_keeps(struct rb_gpu *gpu)
{
    return atomic_load(&gpu->keeps) && pthread_equal(gpu->keeper, pthread_self());
}

cudaStream_t rb_gpu_queue(struct rb_gpu *gpu)
{
    return rb_gpu_keeps(gpu) ? gpu->tape : gpu->stream;
}

static cudaError_t make_room(struct rb_gpu_tape *tape)
{
    struct rb_gpu *gpu = tape->gpu;
    cudaError_t err = cudaSuccess;

    if (!gpu->tape)
        err = cudaStreamCreateWithFlags(&gpu->tape, cudaStreamNonBlocking);
    if (err == cudaSuccess)
        err = cudaMalloc(&tape->values, tape->bytes);
    if (err == cudaSuccess)
        err = cudaMallocHost(&tape->room, tape->bytes);
    if (err == cudaSuccess)
        err = cudaEventCreateWithFlags(&tape->sent, cudaEventDisableTiming);
    return err;
}

static int refuse(cudaError_t err, struct rb_why *why)
{
    rb_gpu_forget();
    return rb_why_set(why, RB_EUNSUPPORTED, "CUDA makes no graph of it: %s",
                      cudaGetErrorString(err));
}

int rb_gpu_tape_start(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_tape **ret_tape,
                      struct rb_why *why)
{
    struct rb_gpu_tape *tape;
    cudaError_t err;

    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    tape = rb_alloc(sizeof *tape);
    tape->gpu = gpu;
    tape->bytes = bytes ? bytes : 1;
    err = make_room(tape);
    if (err == cudaSuccess)
        err = cudaStreamBeginCapture(gpu->tape, cudaStreamCaptureModeThreadLocal);
    if (err != cudaSuccess) {
        rb_gpu_tape_free(tape);
        return refuse(err, why);
    }
    gpu->lost.text[0] = 0;
    gpu->keeper = pthread_self();
    atomic_store(&gpu->keeps, true);
    *ret_tape = tape;
    return 0;
}

void *rb_gpu_tape_values(struct rb_gpu_tape *tape)
{
    return tape->values;
}

int rb_gpu_tape_end(struct rb_gpu_tape *tape, struct rb_why *why)
{
    struct rb_gpu *gpu = tape->gpu;
    cudaGraph_t graph = NULL;
    cudaError_t err;

    atomic_store(&gpu->keeps, false);
    err = cudaStreamEndCapture(gpu->tape, &graph);
    if (err == cudaSuccess && !gpu->lost.text[0])
        err = cudaGraphInstantiate(&tape->graph, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    rb_gpu_forget();
    if (gpu->lost.text[0])
        return rb_why_set(why, RB_EUNSUPPORTED, "CUDA makes no graph of it: %s", gpu->lost.text);
    return err == cudaSuccess ? 0 : refuse(err, why);
}

void rb_gpu_tape_play(struct rb_gpu_tape *tape, const void *values)
{
    struct rb_gpu *gpu = tape->gpu;

    if (!rb_gpu_enter(gpu))
        return;
    rb_gpu_note(gpu, cudaEventSynchronize(tape->sent), "its work failed");
    memcpy(tape->room, values, tape->bytes);
    rb_gpu_note(
        gpu,
        cudaMemcpyAsync(tape->values, tape->room, tape->bytes, cudaMemcpyHostToDevice, gpu->stream),
        "a copy to it failed");
    rb_gpu_note(gpu, cudaEventRecord(tape->sent, gpu->stream), "a copy to it failed");
    rb_gpu_note(gpu, cudaGraphLaunch(tape->graph, gpu->stream), "a graph was not launched");
}

void rb_gpu_tape_free(struct rb_gpu_tape *tape)
{
    if (!tape)
        return;
    if (cudaSetDevice(tape->gpu->index) == cudaSuccess) {
        cudaStreamSynchronize(tape->gpu->stream); /* the tape may still be playing */
        if (tape->graph)
            cudaGraphExecDestroy(tape->graph);
        if (tape->sent)
            cudaEventDestroy(tape->sent);
        cudaFreeHost(tape->room);
        cudaFree(tape->values);
    }
    rb_gpu_forget();
    free(tape);
}
