/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/fake_cuda.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 64 };

struct fake_cuda fake_cuda;
static void *memories[MEMORY];

void fake_cuda_start(int fails)
{
    for (int i = 0; i < MEMORY; i++) {
        free(memories[i]);
        memories[i] = NULL;
    }
    fake_cuda = (struct fake_cuda){.fails = fails};
}

/* An error stays until it is asked for, as in CUDA. */
static cudaError_t say(cudaError_t err)
{
    if (err != cudaSuccess)
        fake_cuda.last = err;
    return err;
}

static cudaError_t answer(void)
{
    return say(++fake_cuda.calls == fake_cuda.fails ? cudaErrorUnknown : cudaSuccess);
}

/* Make a thing that has to be given back, and count it. */
static cudaError_t make(void *ret, int *count)
{
    void *thing = (void *)(uintptr_t)64;
    cudaError_t err = answer();

    if (err == cudaSuccess) {
        memcpy(ret, &thing, sizeof thing);
        ++*count;
    }
    return err;
}

static cudaError_t query(void)
{
    cudaError_t err = answer();

    if (err != cudaSuccess || fake_cuda.busy == 0)
        return err;
    fake_cuda.busy -= fake_cuda.busy > 0;
    return say(cudaErrorNotReady);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t last = (cudaError_t)fake_cuda.last;

    fake_cuda.last = cudaSuccess;
    return last;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "made up";
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return answer();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    memset(properties, 0, sizeof *properties);
    return answer();
}

cudaError_t cudaDeviceGetPCIBusId(char *bus, int size, int device)
{
    (void)device;
    memset(bus, 0, (size_t)size);
    return answer();
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return answer();
}

cudaError_t cudaSetDevice(int device)
{
    (void)device;
    return answer();
}

/* ---- Memory: the host's -----------------------------------------------------------------------*/

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    cudaError_t err = answer();

    for (int i = 0; i < MEMORY && err == cudaSuccess; i++)
        if (!memories[i]) {
            *memory = memories[i] = malloc(bytes);
            return err;
        }
    return err == cudaSuccess ? say(cudaErrorMemoryAllocation) : err;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFree(void *memory)
{
    for (int i = 0; i < MEMORY && memory; i++)
        if (memories[i] == memory) {
            free(memory);
            memories[i] = NULL;
        }
    return answer();
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t err = answer();

    (void)kind;
    (void)stream;
    if (err == cudaSuccess)
        memcpy(to, from, bytes);
    return err;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t err = answer();

    (void)stream;
    if (err == cudaSuccess)
        memset(at, value, bytes);
    return err;
}

/* ---- Streams, events, graphs ------------------------------------------------------------------*/

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    return make(stream, &fake_cuda.streams);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    fake_cuda.streams--;
    return answer();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return query();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return answer();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return answer();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    return answer();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    return make(graph, &fake_cuda.graphs);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return make(event, &fake_cuda.events);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return make(event, &fake_cuda.events);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    fake_cuda.events--;
    return answer();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return answer();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return answer();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return query();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from;
    (void)to;
    *ms = 1;
    return answer();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)graph;
    (void)flags;
    return make(exec, &fake_cuda.graphs);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    (void)graph;
    fake_cuda.graphs--;
    return answer();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    (void)exec;
    fake_cuda.graphs--;
    return answer();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    (void)stream;
    return answer();
}

/* ---- cuBLASLt ---------------------------------------------------------------------------------*/

size_t cublasLtGetVersion(void)
{
    return 1;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
