/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by cuDNN, which is opened when the first is prepared: a machine may have none.
 *
 * Those of its algorithms that add in one order are named here, never searched for; where cuDNN
 * says that it has none of them for a shape, the backend's own way is taken (conv.cu).  Which of
 * the two ways it is depends on the shape, the library and the GPU alone, and these are in the
 * numeric class. */
#include "kernels/cuda/gpu_inside.h"

#include "base/arena.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define CALLS(X)                                                                                   \
    X(cudnnGetVersion)                                                                             \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnSetTensorNdDescriptor)                                                                  \
    X(cudnnDestroyTensorDescriptor)                                                                \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnSetFilterNdDescriptor)                                                                  \
    X(cudnnDestroyFilterDescriptor)                                                                \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnSetConvolutionNdDescriptor)                                                             \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnDestroyConvolutionDescriptor)                                                           \
    X(cudnnGetConvolutionForwardWorkspaceSize)                                                     \
    X(cudnnGetConvolutionBackwardDataWorkspaceSize)                                                \
    X(cudnnGetConvolutionBackwardFilterWorkspaceSize)                                              \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)

/* Written once and never changed, as a library that is loaded is. */
static struct {
    pthread_once_t once;
    bool there;
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
    struct rb_why why;
} dnn = {.once = PTHREAD_ONCE_INIT};

struct rb_gpu_conv {
    struct rb_gpu *gpu;
    enum rb_gpu_conv_way way;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t how;
    size_t bytes;
};

static const cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
static const cudnnConvolutionBwdDataAlgo_t grad_x = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
static const cudnnConvolutionBwdFilterAlgo_t grad_w = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/* RUBATO_CUDNN: another library, or "" for none. */
static void open_library(void)
{
    const char *path = getenv("RUBATO_CUDNN");
    void *library, *found;

    if (path && !*path) {
        rb_why_set(&dnn.why, RB_EUNSUPPORTED, "cuDNN is not wanted");
        return;
    }
    library = dlopen(path ? path : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        rb_why_set(&dnn.why, RB_EUNSUPPORTED, "no cuDNN: %s", dlerror());
        return;
    }
#define X(name)                                                                                    \
    found = dlsym(library, #name);                                                                 \
    memcpy(&dnn.name, &found, sizeof found);                                                       \
    if (!found) {                                                                                  \
        rb_why_set(&dnn.why, RB_EUNSUPPORTED, "cuDNN lacks " #name);                               \
        return;                                                                                    \
    }
    CALLS(X)
#undef X
    dnn.there = true;
}

size_t rb_gpu_conv_version(void)
{
    pthread_once(&dnn.once, open_library);
    return dnn.there ? dnn.cudnnGetVersion() : 0;
}

/* The GPU's own handle, made with the first convolution. */
static int open_handle(struct rb_gpu *gpu, struct rb_why *why)
{
    cudnnHandle_t handle = gpu->dnn;
    cudnnStatus_t status;

    if (handle)
        return 0;
    status = dnn.cudnnCreate(&handle);
    if (status != CUDNN_STATUS_SUCCESS)
        return rb_why_set(why, RB_EUNSUPPORTED, "cuDNN does not start: %s",
                          dnn.cudnnGetErrorString(status));
    gpu->dnn = handle;
    return 0;
}

void rb_gpu_conv_close(struct rb_gpu *gpu)
{
    if (gpu->dnn)
        dnn.cudnnDestroy(gpu->dnn);
    gpu->dnn = NULL;
}

/* ---- Describing -------------------------------------------------------------------------------*/

/* [a, b, the last `spatial` of `sizes`] and its strides; false: too large for cuDNN's integers. */
static bool fill(int64_t a, int64_t b, const int64_t sizes[3], int spatial, int dim[5],
                 int stride[5])
{
    int64_t all = 1;

    for (int i = 0; i < spatial + 2; i++) {
        int64_t size = i == 0 ? a : i == 1 ? b : sizes[3 - spatial + i - 2];

        if (size < 1 || size > INT32_MAX)
            return false;
        dim[i] = (int)size;
    }
    for (int i = spatial + 1; i >= 0; i--) {
        stride[i] = (int)all;
        all *= dim[i];
        if (all > INT32_MAX)
            return false;
    }
    return true;
}

/* At least two: axes in front that are absent are left out. */
static int spatial_of(const struct rb_gpu_conv_shape *s)
{
    return s->in[0] == 1 && s->out[0] == 1 && s->kernel[0] == 1 && s->begin[0] == 0 ? 2 : 3;
}

static bool fill_how(const struct rb_gpu_conv_shape *s, int spatial, int pad[3], int stride[3],
                     int dilation[3])
{
    for (int i = 0; i < spatial; i++) {
        int from = 3 - spatial + i;

        if (s->begin[from] > INT32_MAX || s->stride[from] > INT32_MAX ||
            s->dilation[from] > INT32_MAX)
            return false;
        pad[i] = (int)s->begin[from];
        stride[i] = (int)s->stride[from];
        dilation[i] = (int)s->dilation[from];
    }
    return s->group <= INT32_MAX;
}

static cudnnStatus_t describe(struct rb_gpu_conv *conv, const struct rb_gpu_conv_shape *s)
{
    cudnnDataType_t type = s->is_short ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    int spatial = spatial_of(s), dim[5], stride[5], pad[3], step[3], dilation[3];
    cudnnStatus_t status = dnn.cudnnCreateTensorDescriptor(&conv->x);

    if (status == CUDNN_STATUS_SUCCESS)
        status = dnn.cudnnCreateTensorDescriptor(&conv->y);
    if (status == CUDNN_STATUS_SUCCESS)
        status = dnn.cudnnCreateFilterDescriptor(&conv->w);
    if (status == CUDNN_STATUS_SUCCESS)
        status = dnn.cudnnCreateConvolutionDescriptor(&conv->how);
    if (status == CUDNN_STATUS_SUCCESS)
        status = fill(s->samples, s->inputs, s->in, spatial, dim, stride)
                     ? dnn.cudnnSetTensorNdDescriptor(conv->x, type, spatial + 2, dim, stride)
                     : CUDNN_STATUS_NOT_SUPPORTED;
    if (status == CUDNN_STATUS_SUCCESS)
        status = fill(s->samples, s->outputs, s->out, spatial, dim, stride)
                     ? dnn.cudnnSetTensorNdDescriptor(conv->y, type, spatial + 2, dim, stride)
                     : CUDNN_STATUS_NOT_SUPPORTED;
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            fill(s->outputs, s->inputs / s->group, s->kernel, spatial, dim, stride)
                ? dnn.cudnnSetFilterNdDescriptor(conv->w, type, CUDNN_TENSOR_NCHW, spatial + 2, dim)
                : CUDNN_STATUS_NOT_SUPPORTED;
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            fill_how(s, spatial, pad, step, dilation)
                ? dnn.cudnnSetConvolutionNdDescriptor(conv->how, spatial, pad, step, dilation,
                                                      CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)
                : CUDNN_STATUS_NOT_SUPPORTED;
    if (status == CUDNN_STATUS_SUCCESS)
        status = dnn.cudnnSetConvolutionGroupCount(conv->how, (int)s->group);
    if (status == CUDNN_STATUS_SUCCESS) /* float32 without TF32 */
        status = dnn.cudnnSetConvolutionMathType(conv->how, s->is_short ? CUDNN_TENSOR_OP_MATH
                                                                        : CUDNN_FMA_MATH);
    return status;
}

static cudnnStatus_t find_bytes(struct rb_gpu_conv *conv)
{
    cudnnHandle_t handle = conv->gpu->dnn;

    switch (conv->way) {
    case RB_GPU_CONV:
        return dnn.cudnnGetConvolutionForwardWorkspaceSize(handle, conv->x, conv->w, conv->how,
                                                           conv->y, forward, &conv->bytes);
    case RB_GPU_CONV_GRAD_X:
        return dnn.cudnnGetConvolutionBackwardDataWorkspaceSize(handle, conv->w, conv->y, conv->how,
                                                                conv->x, grad_x, &conv->bytes);
    default:
        return dnn.cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle, conv->x, conv->y, conv->how, conv->w, grad_w, &conv->bytes);
    }
}

int rb_gpu_conv_new(struct rb_gpu *gpu, const struct rb_gpu_conv_shape *shape,
                    struct rb_gpu_conv **ret_conv, size_t *ret_bytes, struct rb_why *why)
{
    struct rb_gpu_conv *conv;
    cudnnStatus_t status;
    int err;

    pthread_once(&dnn.once, open_library);
    if (!dnn.there)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s", dnn.why.text);
    if (!rb_gpu_enter(gpu))
        return rb_gpu_check(gpu, why);
    err = open_handle(gpu, why);
    if (err)
        return err;
    conv = rb_alloc(sizeof *conv);
    conv->gpu = gpu;
    conv->way = shape->way;
    status = describe(conv, shape);
    if (status == CUDNN_STATUS_SUCCESS)
        status = find_bytes(conv);
    if (status != CUDNN_STATUS_SUCCESS) {
        rb_gpu_conv_free(conv);
        return rb_why_set(why, RB_EUNSUPPORTED, "cuDNN has no way for this: %s",
                          dnn.cudnnGetErrorString(status));
    }
    *ret_bytes = conv->bytes;
    *ret_conv = conv;
    return 0;
}

/* ---- Running ----------------------------------------------------------------------------------*/

void rb_gpu_conv_run(struct rb_gpu_conv *conv, const void *a, const void *b, void *to, void *memory)
{
    struct rb_gpu *gpu = conv->gpu;
    const float one = 1, zero = 0;
    cudnnStatus_t status;

    if (!rb_gpu_enter(gpu))
        return;
    status = dnn.cudnnSetStream(gpu->dnn, rb_gpu_queue(gpu));
    if (status == CUDNN_STATUS_SUCCESS && conv->way == RB_GPU_CONV)
        status = dnn.cudnnConvolutionForward(gpu->dnn, &one, conv->x, a, conv->w, b, conv->how,
                                             forward, memory, conv->bytes, &zero, conv->y, to);
    else if (status == CUDNN_STATUS_SUCCESS && conv->way == RB_GPU_CONV_GRAD_X)
        status = dnn.cudnnConvolutionBackwardData(gpu->dnn, &one, conv->w, b, conv->y, a, conv->how,
                                                  grad_x, memory, conv->bytes, &zero, conv->x, to);
    else if (status == CUDNN_STATUS_SUCCESS)
        status =
            dnn.cudnnConvolutionBackwardFilter(gpu->dnn, &one, conv->x, b, conv->y, a, conv->how,
                                               grad_w, memory, conv->bytes, &zero, conv->w, to);
    if (status != CUDNN_STATUS_SUCCESS)
        rb_gpu_fail(gpu, dnn.cudnnGetErrorString(status));
}

void rb_gpu_conv_free(struct rb_gpu_conv *conv)
{
    if (!conv)
        return;
    if (conv->x)
        dnn.cudnnDestroyTensorDescriptor(conv->x);
    if (conv->y)
        dnn.cudnnDestroyTensorDescriptor(conv->y);
    if (conv->w)
        dnn.cudnnDestroyFilterDescriptor(conv->w);
    if (conv->how)
        dnn.cudnnDestroyConvolutionDescriptor(conv->how);
    free(conv);
}
