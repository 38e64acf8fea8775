/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host and GPU.  The host's memory may be any, so bytes go through rooms of pinned
 * memory; one thread uses a way at a time.  Sends have rooms of their own, so that a thread that
 * sends a little does not wait for one that copies much. */
#include "kernels/cuda/gpu_inside.h"

#include <string.h>

enum { SEND_ALIGNMENT = 256 };

static cudaError_t open_rooms(struct rb_gpu_rooms *rooms, size_t bytes)
{
    cudaError_t err = cudaSuccess;

    for (int k = 0; k < 2 && err == cudaSuccess; k++) {
        err = cudaEventCreateWithFlags(&rooms->done[k], cudaEventDisableTiming);
        if (err == cudaSuccess)
            err = cudaMallocHost((void **)&rooms->at[k], bytes);
    }
    return err;
}

static void close_rooms(struct rb_gpu_rooms *rooms)
{
    for (int k = 0; k < 2; k++) {
        if (rooms->at[k])
            cudaFreeHost(rooms->at[k]);
        if (rooms->done[k])
            cudaEventDestroy(rooms->done[k]);
    }
}

cudaError_t rb_gpu_lane_open(struct rb_gpu_lane *lane)
{
    cudaError_t err = cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking);

    if (err == cudaSuccess)
        err = cudaEventCreateWithFlags(&lane->behind, cudaEventDisableTiming);
    return err == cudaSuccess ? open_rooms(&lane->rooms, RB_GPU_LANE_ROOM) : err;
}

void rb_gpu_lane_close(struct rb_gpu_lane *lane)
{
    close_rooms(&lane->rooms);
    if (lane->behind)
        cudaEventDestroy(lane->behind);
    if (lane->stream)
        cudaStreamDestroy(lane->stream);
}

/* false: do not copy. */
static bool begin(struct rb_gpu *gpu, struct rb_gpu_lane *lane)
{
    if (rb_gpu_keeps(gpu)) {
        rb_gpu_fail(gpu, "a copy cannot be kept on a tape");
        return false;
    }
    rb_gpu_note(gpu, cudaEventRecord(lane->behind, gpu->stream), "a copy could not begin");
    rb_gpu_note(gpu, cudaStreamWaitEvent(lane->stream, lane->behind, 0), "a copy could not begin");
    return rb_gpu_enter(gpu);
}

static size_t part_of(size_t bytes, size_t at)
{
    return bytes - at < RB_GPU_LANE_ROOM ? bytes - at : RB_GPU_LANE_ROOM;
}

/* Waits for room k, of which a copy was queued. */
static bool wait_for(struct rb_gpu *gpu, struct rb_gpu_lane *lane, int k)
{
    rb_gpu_note(gpu, cudaEventSynchronize(lane->rooms.done[k]), "its work failed");
    return rb_gpu_enter(gpu);
}

static bool queue(struct rb_gpu *gpu, struct rb_gpu_lane *lane, int k, void *to, const void *from,
                  size_t bytes, enum cudaMemcpyKind way)
{
    rb_gpu_note(gpu, cudaMemcpyAsync(to, from, bytes, way, lane->stream), "a copy failed");
    rb_gpu_note(gpu, cudaEventRecord(lane->rooms.done[k], lane->stream), "a copy failed");
    return rb_gpu_enter(gpu);
}

void rb_gpu_in(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    struct rb_gpu_lane *lane = &gpu->in;
    size_t at = 0;
    bool going;
    int k = 0;

    if (!bytes || !rb_gpu_enter(gpu))
        return;
    pthread_mutex_lock(&lane->lock);
    going = begin(gpu, lane);
    for (; going && at < bytes; at += RB_GPU_LANE_ROOM, k ^= 1) {
        size_t n = part_of(bytes, at);

        if (at >= 2 * (size_t)RB_GPU_LANE_ROOM && !wait_for(gpu, lane, k))
            break;
        memcpy(lane->rooms.at[k], (const char *)from + at, n);
        going = queue(gpu, lane, k, (char *)to + at, lane->rooms.at[k], n, cudaMemcpyHostToDevice);
    }
    if (going)
        rb_gpu_note(gpu, cudaStreamSynchronize(lane->stream), "its work failed");
    pthread_mutex_unlock(&lane->lock);
}

/* ---- Sends ------------------------------------------------------------------------------------*/

cudaError_t rb_gpu_sends_open(struct rb_gpu_sends *sends)
{
    return open_rooms(&sends->rooms, RB_GPU_SEND_ROOM);
}

void rb_gpu_sends_close(struct rb_gpu_sends *sends)
{
    close_rooms(&sends->rooms);
}

/* Place for `bytes`, at most a room; NULL: do not copy. */
static char *place_for(struct rb_gpu *gpu, size_t bytes)
{
    struct rb_gpu_sends *sends = &gpu->sends;
    char *place;

    if (RB_GPU_SEND_ROOM - sends->filled < bytes) {
        sends->filling ^= 1;
        sends->filled = 0;
        /* A room that nothing was ever sent from is done. */
        rb_gpu_note(gpu, cudaEventSynchronize(sends->rooms.done[sends->filling]),
                    "its work failed");
        if (!rb_gpu_enter(gpu))
            return NULL;
    }
    place = sends->rooms.at[sends->filling] + sends->filled;
    sends->filled += (bytes + SEND_ALIGNMENT - 1) & ~(size_t)(SEND_ALIGNMENT - 1);
    return place;
}

/* In parts, so that the first is on its way while the next is put in its place. */
static void queue_parts(struct rb_gpu *gpu, void *to, char *place, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += RB_GPU_LANE_ROOM) {
        size_t n = part_of(bytes, at);

        memcpy(place + at, (const char *)from + at, n);
        rb_gpu_note(
            gpu,
            cudaMemcpyAsync((char *)to + at, place + at, n, cudaMemcpyHostToDevice, gpu->stream),
            "a copy failed");
    }
}

void rb_gpu_send(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    struct rb_gpu_sends *sends = &gpu->sends;
    char *place;

    if (bytes > RB_GPU_SEND_ROOM) {
        rb_gpu_in(gpu, to, from, bytes);
        return;
    }
    if (rb_gpu_keeps(gpu)) {
        rb_gpu_fail(gpu, "a copy cannot be kept on a tape");
        return;
    }
    if (!bytes || !rb_gpu_enter(gpu))
        return;
    pthread_mutex_lock(&sends->lock);
    place = place_for(gpu, bytes);
    if (place) {
        queue_parts(gpu, to, place, from, bytes);
        rb_gpu_note(gpu, cudaEventRecord(sends->rooms.done[sends->filling], gpu->stream),
                    "a copy failed");
    }
    pthread_mutex_unlock(&sends->lock);
}

/* ---- Between places of GPUs, and to the host --------------------------------------------------*/

void rb_gpu_copy(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    struct rb_gpu_lane *lane = &gpu->out;

    if (!bytes || !rb_gpu_enter(gpu))
        return;
    pthread_mutex_lock(&lane->lock);
    if (begin(gpu, lane))
        rb_gpu_note(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, lane->stream),
                    "a copy failed");
    pthread_mutex_unlock(&lane->lock);
}

void rb_gpu_copied(struct rb_gpu *gpu)
{
    if (rb_gpu_enter(gpu))
        rb_gpu_note(gpu, cudaStreamSynchronize(gpu->out.stream), "its work failed");
}

void rb_gpu_out(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    struct rb_gpu_lane *lane = &gpu->out;
    size_t at = 0, taken = 0;
    bool going;

    if (!bytes || !rb_gpu_enter(gpu))
        return;
    pthread_mutex_lock(&lane->lock);
    going = begin(gpu, lane);
    while (going && taken < bytes) {
        int k = (int)(taken / RB_GPU_LANE_ROOM % 2);

        /* Both rooms are on their way, if there are bytes for both. */
        while (going && at < bytes && at < taken + 2 * (size_t)RB_GPU_LANE_ROOM) {
            int next = (int)(at / RB_GPU_LANE_ROOM % 2);

            going = queue(gpu, lane, next, lane->rooms.at[next], (const char *)from + at,
                          part_of(bytes, at), cudaMemcpyDeviceToHost);
            at += RB_GPU_LANE_ROOM;
        }
        going = going && wait_for(gpu, lane, k);
        if (going)
            memcpy((char *)to + taken, lane->rooms.at[k], part_of(bytes, taken));
        taken += RB_GPU_LANE_ROOM;
    }
    pthread_mutex_unlock(&lane->lock);
}
