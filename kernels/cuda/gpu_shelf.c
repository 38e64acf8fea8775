/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves by the driver's management of virtual memory, which counts the holders of an allocation:
 * neither the owner's death nor its giving up the shelf takes memory from under a reader.  (For
 * handles of cudaIpc* CUDA promises neither.)
 *
 *     owner   create > export: a descriptor > map
 *     other   the descriptor > import > map
 *
 * A module loads where there is no driver, so the driver's functions are asked of the runtime. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <cuda.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { SINCE = 10020 /* of CUDA */ };

static const CUmemAllocationHandleType way = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct calls {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*give_out)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                         unsigned long long);
    CUresult (*take_in)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

struct rb_gpu_shelf {
    struct rb_gpu *gpu;
    struct calls calls;
    CUdeviceptr at; /* 0: not reserved */
    size_t bytes;
    bool mapped;
};

static bool find(const char *name, void *ret)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &function, SINCE, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess || !function) {
        rb_gpu_forget();
        return false;
    }
    *(void **)ret = function;
    return true;
}

static bool find_all(struct calls *calls)
{
    return find("cuMemGetAllocationGranularity", &calls->granularity) &&
           find("cuMemCreate", &calls->create) && find("cuMemRelease", &calls->release) &&
           find("cuMemExportToShareableHandle", &calls->give_out) &&
           find("cuMemImportFromShareableHandle", &calls->take_in) &&
           find("cuMemAddressReserve", &calls->reserve) &&
           find("cuMemAddressFree", &calls->unreserve) && find("cuMemMap", &calls->map) &&
           find("cuMemUnmap", &calls->unmap) && find("cuMemSetAccess", &calls->allow);
}

static int begin(struct rb_gpu *gpu, struct rb_gpu_shelf *shelf, struct rb_why *why)
{
    *shelf = (struct rb_gpu_shelf){.gpu = gpu};
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    if (!find_all(&shelf->calls))
        return rb_why_set(why, RB_EUNSUPPORTED, "the driver has no memory that can be shared");
    return 0;
}

static int refuse(CUresult result, const char *what, struct rb_why *why)
{
    return rb_why_set(why, result == CUDA_ERROR_OUT_OF_MEMORY ? RB_ENOMEM : RB_EUNSUPPORTED,
                      "%s: CUDA driver error %d", what, (int)result);
}

static void undo(struct rb_gpu_shelf *shelf)
{
    if (shelf->mapped)
        (void)shelf->calls.unmap(shelf->at, shelf->bytes);
    if (shelf->at)
        (void)shelf->calls.unreserve(shelf->at, shelf->bytes);
}

/* Maps it where this GPU sees it.  The mapping keeps what the handle names. */
static int map(struct rb_gpu_shelf *shelf, CUmemGenericAllocationHandle handle, size_t bytes,
               struct rb_why *why)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = shelf->gpu->index},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUresult result = shelf->calls.reserve(&shelf->at, bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS) {
        shelf->at = 0;
        return refuse(result, "no addresses for a shelf", why);
    }
    shelf->bytes = bytes;
    result = shelf->calls.map(shelf->at, bytes, 0, handle, 0);
    shelf->mapped = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = shelf->calls.allow(shelf->at, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        return 0;
    undo(shelf);
    return refuse(result, "this GPU cannot reach that memory", why);
}

static struct rb_gpu_shelf *keep(const struct rb_gpu_shelf *shelf)
{
    struct rb_gpu_shelf *kept = rb_alloc(sizeof *kept);

    *kept = *shelf;
    return kept;
}

/* Memory, its name, and its place. */
static int create(struct rb_gpu_shelf *shelf, size_t bytes, int *ret_fd, size_t *ret_bytes,
                  struct rb_why *why)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = way,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = shelf->gpu->index},
    };
    CUmemGenericAllocationHandle handle;
    size_t unit = 0;
    int fd = -1, err = 0;
    CUresult result = shelf->calls.granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

    if (result != CUDA_SUCCESS || !unit)
        return refuse(result, "this GPU's memory cannot be shared", why);
    bytes = (bytes + unit - 1) / unit * unit;
    result = shelf->calls.create(&handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return refuse(result, "no memory that can be shared", why);
    result = shelf->calls.give_out(&fd, handle, way, 0);
    if (result != CUDA_SUCCESS)
        err = refuse(result, "its memory cannot be shared", why);
    if (!err)
        err = map(shelf, handle, bytes, why);
    (void)shelf->calls.release(handle);
    if (err) {
        if (fd >= 0)
            close(fd);
        return err;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    *ret_fd = fd;
    *ret_bytes = bytes;
    return 0;
}

int rb_gpu_shelf_new(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_shelf **ret_shelf, int *ret_fd,
                     size_t *ret_bytes, struct rb_why *why)
{
    struct rb_gpu_shelf shelf;
    int err = begin(gpu, &shelf, why);

    if (!err)
        err = create(&shelf, bytes, ret_fd, ret_bytes, why);
    if (!err)
        *ret_shelf = keep(&shelf);
    return err;
}

int rb_gpu_shelf_map(struct rb_gpu *gpu, int fd, size_t bytes, struct rb_gpu_shelf **ret_shelf,
                     struct rb_why *why)
{
    struct rb_gpu_shelf shelf;
    CUmemGenericAllocationHandle handle;
    CUresult result;
    int err = begin(gpu, &shelf, why);

    if (err)
        return err;
    result = shelf.calls.take_in(&handle, (void *)(uintptr_t)fd, way);
    if (result != CUDA_SUCCESS)
        return refuse(result, "a descriptor is no shelf's", why);
    err = map(&shelf, handle, bytes, why);
    (void)shelf.calls.release(handle);
    if (!err)
        *ret_shelf = keep(&shelf);
    return err;
}

void *rb_gpu_shelf_memory(const struct rb_gpu_shelf *shelf)
{
    return (void *)(uintptr_t)shelf->at;
}

/* Copies are done when they return, so nothing of it is under way. */
void rb_gpu_shelf_free(struct rb_gpu_shelf *shelf)
{
    if (!shelf)
        return;
    if (rb_gpu_enter(shelf->gpu))
        undo(shelf);
    free(shelf);
}
