/* SPDX-License-Identifier: Apache-2.0 */
/* Marks are events on the stream for computing. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <stdlib.h>

struct rb_gpu_marks {
    struct rb_gpu *gpu;
    size_t n;
    cudaEvent_t at[];
};

int rb_gpu_marks_new(struct rb_gpu *gpu, size_t n, struct rb_gpu_marks **ret_marks,
                     struct rb_why *why)
{
    struct rb_gpu_marks *marks;
    cudaError_t err = cudaSuccess;

    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    marks = rb_alloc(sizeof *marks + n * sizeof *marks->at);
    marks->gpu = gpu;
    while (marks->n < n && err == cudaSuccess) {
        err = cudaEventCreate(&marks->at[marks->n]);
        marks->n += err == cudaSuccess;
    }
    if (err != cudaSuccess) {
        rb_gpu_marks_free(marks); /* the caller reports it; it does no harm */
        return rb_why_set(why, RB_ENOMEM, "GPU %d: %zu events are not to be had: %s", gpu->index, n,
                          cudaGetErrorString(err));
    }
    *ret_marks = marks;
    return 0;
}

void rb_gpu_marks_set(struct rb_gpu_marks *marks, size_t i)
{
    struct rb_gpu *gpu = marks->gpu;

    if (rb_gpu_keeps(gpu))
        rb_gpu_fail(gpu, "a mark cannot be kept on a tape");
    else if (rb_gpu_enter(gpu))
        rb_gpu_note(gpu, cudaEventRecord(marks->at[i], gpu->stream), "a mark was not set");
}

double rb_gpu_marks_between(struct rb_gpu_marks *marks, size_t from, size_t to)
{
    struct rb_gpu *gpu = marks->gpu;
    float ms = 0;

    if (!rb_gpu_enter(gpu))
        return 0;
    rb_gpu_note(gpu, cudaEventSynchronize(marks->at[from]), "its work failed");
    rb_gpu_note(gpu, cudaEventSynchronize(marks->at[to]), "its work failed");
    if (!rb_gpu_enter(gpu))
        return 0;
    rb_gpu_note(gpu, cudaEventElapsedTime(&ms, marks->at[from], marks->at[to]),
                "a mark cannot be read");
    return 1e6 * (double)ms;
}

bool rb_gpu_marks_reached(struct rb_gpu_marks *marks, size_t i)
{
    struct rb_gpu *gpu = marks->gpu;
    cudaError_t err;

    if (!rb_gpu_enter(gpu))
        return true;
    err = cudaEventQuery(marks->at[i]);
    if (err == cudaErrorNotReady) { /* an error to CUDA, which stays with the thread as others do */
        rb_gpu_forget();
        return false;
    }
    rb_gpu_note(gpu, err, "its work failed");
    return true;
}

void rb_gpu_marks_free(struct rb_gpu_marks *marks)
{
    if (!marks)
        return;
    for (size_t i = 0; i < marks->n; i++)
        (void)cudaEventDestroy(marks->at[i]);
    rb_gpu_forget();
    free(marks);
}
