/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>

/* Why there is no GPU, for a person. */
static const char *reason(cudaError_t err)
{
    switch (err) {
    case cudaErrorInsufficientDriver:
        return "the NVIDIA driver is missing, or older than this CUDA runtime needs";
    case cudaErrorNoDevice:
        return "the NVIDIA driver sees no GPU";
    default:
        return cudaGetErrorString(err);
    }
}

/* How many GPUs there are, each of which shows as *ret_shares devices.  More than one is for tests
 * of several ranks on one GPU: RUBATO_GPU_SHARES. */
static cudaError_t count_gpus(int *ret_gpus, int *ret_shares)
{
    const char *text = getenv("RUBATO_GPU_SHARES");
    int shares = text ? atoi(text) : 1;
    cudaError_t err = cudaGetDeviceCount(ret_gpus);

    *ret_shares = shares > 0 && shares < 100 ? shares : 1;
    return err == cudaSuccess && *ret_gpus == 0 ? cudaErrorNoDevice : err;
}

static int find_gpus(int *ret_gpus, int *ret_shares, struct rb_why *why)
{
    cudaError_t err = count_gpus(ret_gpus, ret_shares);

    if (err == cudaSuccess)
        return 0;
    rb_gpu_forget();
    return rb_why_set(why, RB_ENOTFOUND, "no GPU: %s", reason(err));
}

int rb_gpu_count(int *ret_count, struct rb_why *why)
{
    int gpus = 0, shares = 1, err = find_gpus(&gpus, &shares, why);

    if (!err)
        *ret_count = gpus * shares;
    return err;
}

int rb_gpu_describe(int index, struct rb_gpu_about *ret_about, struct rb_why *why)
{
    struct rb_gpu_about about = {0};
    struct cudaDeviceProp properties;
    int runtime = 0, gpus = 0, shares;
    cudaError_t err = count_gpus(&gpus, &shares);

    if (err == cudaSuccess)
        err = cudaGetDeviceProperties(&properties, index / shares);
    if (err == cudaSuccess)
        err = cudaDeviceGetPCIBusId(about.bus, sizeof about.bus, index / shares);
    if (err == cudaSuccess)
        err = cudaRuntimeGetVersion(&runtime);
    if (err != cudaSuccess) {
        rb_gpu_forget();
        return rb_why_set(why, RB_ENOTFOUND, "GPU %d: %s", index, reason(err));
    }
    snprintf(about.name, sizeof about.name, "%.127s", properties.name);
    about.bytes = properties.totalGlobalMem / (size_t)shares;
    /* How cuBLASLt cuts a product depends on the number of multiprocessors too. */
    snprintf(about.numeric_class, sizeof about.numeric_class,
             "cuda sm_%d%d x%d %.60s runtime-%d cublaslt-%zu cudnn-%zu numerics-%d.%d",
             properties.major, properties.minor, properties.multiProcessorCount, properties.name,
             runtime, cublasLtGetVersion(), rb_gpu_conv_version(), RB_NUMERICS, RB_GPU_KERNELS);
    *ret_about = about;
    return 0;
}

static int open_all(struct rb_gpu *gpu, struct rb_why *why)
{
    cudaError_t err = cudaSetDevice(gpu->index);

    if (err == cudaSuccess)
        err = cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking);
    if (err == cudaSuccess)
        err = rb_gpu_lane_open(&gpu->in);
    if (err == cudaSuccess)
        err = rb_gpu_lane_open(&gpu->out);
    if (err == cudaSuccess)
        err = rb_gpu_sends_open(&gpu->sends);
    if (err == cudaSuccess)
        err = cudaMalloc(&gpu->workspace, RB_GPU_WORKSPACE);
    if (err != cudaSuccess)
        return rb_why_set(why, RB_ENOTFOUND, "cannot open it: %s", reason(err));
    return 0;
}

int rb_gpu_open(int index, struct rb_gpu **ret_gpu, struct rb_why *why)
{
    struct rb_gpu *gpu;
    int gpus = 0, shares = 1, err = find_gpus(&gpus, &shares, why);

    if (err)
        return err;
    if (index < 0 || index >= gpus * shares)
        return rb_why_set(why, RB_ENOTFOUND, "there is no GPU %d: %d are here", index,
                          gpus * shares);
    gpu = rb_alloc(sizeof *gpu);
    gpu->index = index / shares;
    pthread_mutex_init(&gpu->lock, NULL);
    pthread_mutex_init(&gpu->in.lock, NULL);
    pthread_mutex_init(&gpu->out.lock, NULL);
    pthread_mutex_init(&gpu->sends.lock, NULL);
    err = open_all(gpu, why);
    if (err) {
        rb_gpu_close(gpu);
        return rb_why_add(why, err, "GPU %d", index);
    }
    *ret_gpu = gpu;
    return 0;
}

void rb_gpu_close(struct rb_gpu *gpu)
{
    if (cudaSetDevice(gpu->index) == cudaSuccess) {
        if (gpu->blas)
            cublasLtDestroy(gpu->blas);
        rb_gpu_conv_close(gpu);
        cudaFree(gpu->workspace);
        if (gpu->stream)
            cudaStreamSynchronize(gpu->stream);
        rb_gpu_sends_close(&gpu->sends);
        rb_gpu_lane_close(&gpu->in);
        rb_gpu_lane_close(&gpu->out);
        if (gpu->tape)
            cudaStreamDestroy(gpu->tape);
        if (gpu->stream)
            cudaStreamDestroy(gpu->stream);
    }
    rb_gpu_forget();
    pthread_mutex_destroy(&gpu->sends.lock);
    pthread_mutex_destroy(&gpu->in.lock);
    pthread_mutex_destroy(&gpu->out.lock);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
}

/* ---- Errors -----------------------------------------------------------------------------------*/

void rb_gpu_forget(void)
{
    (void)cudaGetLastError();
}

void rb_gpu_fail(struct rb_gpu *gpu, const char *what)
{
    if (rb_gpu_keeps(gpu)) { /* nothing was done yet */
        if (!gpu->lost.text[0])
            rb_why_set(&gpu->lost, RB_EUNSUPPORTED, "%s", what);
        return;
    }
    pthread_mutex_lock(&gpu->lock);
    if (!atomic_load(&gpu->failed))
        rb_why_set(&gpu->why, RB_EINTERNAL, "GPU %d: %s", gpu->index, what);
    atomic_store(&gpu->failed, true);
    pthread_mutex_unlock(&gpu->lock);
}

void rb_gpu_note(struct rb_gpu *gpu, cudaError_t err, const char *what)
{
    char text[256];

    if (err == cudaSuccess)
        return;
    rb_gpu_forget();
    snprintf(text, sizeof text, "%s: %s", what, cudaGetErrorString(err));
    rb_gpu_fail(gpu, text);
}

int rb_gpu_check(struct rb_gpu *gpu, struct rb_why *why)
{
    int err;

    if (!atomic_load(&gpu->failed))
        return 0;
    pthread_mutex_lock(&gpu->lock);
    err = rb_why_set(why, RB_EINTERNAL, "%s", gpu->why.text);
    pthread_mutex_unlock(&gpu->lock);
    return err;
}

bool rb_gpu_enter(struct rb_gpu *gpu)
{
    if (atomic_load(&gpu->failed))
        return false;
    rb_gpu_note(gpu, cudaSetDevice(gpu->index), "it cannot be reached");
    return !atomic_load(&gpu->failed);
}

void *rb_gpu_stream(struct rb_gpu *gpu)
{
    return rb_gpu_queue(gpu);
}

void rb_gpu_launched(struct rb_gpu *gpu)
{
    rb_gpu_note(gpu, cudaGetLastError(), "a kernel was not launched");
}

/* ---- Memory -----------------------------------------------------------------------------------*/

void *rb_gpu_alloc(struct rb_gpu *gpu, size_t bytes)
{
    void *memory = NULL;

    if (!rb_gpu_enter(gpu))
        return NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
        rb_gpu_forget(); /* the caller reports that there is no memory; the error does no harm */
        return NULL;
    }
    rb_gpu_zero(gpu, memory, bytes);
    return memory;
}

void rb_gpu_free(struct rb_gpu *gpu, void *memory)
{
    if (!memory)
        return;
    if (rb_gpu_enter(gpu)) /* what is queued may still use it; freeing waits for that */
        rb_gpu_note(gpu, cudaFree(memory), "memory was not given back");
}

void rb_gpu_zero(struct rb_gpu *gpu, void *at, size_t bytes)
{
    if (!bytes || !rb_gpu_enter(gpu))
        return;
    rb_gpu_note(gpu, cudaMemsetAsync(at, 0, bytes, rb_gpu_queue(gpu)), "memory was not cleared");
}

void rb_gpu_within(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    if (!bytes || !rb_gpu_enter(gpu))
        return;
    rb_gpu_note(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, rb_gpu_queue(gpu)),
                "memory was not copied");
}

void rb_gpu_wait(struct rb_gpu *gpu)
{
    if (rb_gpu_keeps(gpu))
        rb_gpu_fail(gpu, "a tape cannot wait");
    else if (rb_gpu_enter(gpu))
        rb_gpu_note(gpu, cudaStreamSynchronize(gpu->stream), "its work failed");
}
