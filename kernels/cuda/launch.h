/* SPDX-License-Identifier: Apache-2.0 */
/* How the operators' files say what a GPU does: a body for each element, or for each row.
 *
 * operators (.cu) > [launch] > a grid on the GPU | a loop on the host
 *
 * The same source is compiled twice: by nvcc for GPUs, and by the host's C++ compiler, where a
 * launch is a loop, so that tests run every body without a GPU (kernels/cuda/gpu_host.c).
 *
 * What decides bits is written so that the number of threads in flight does not matter: no float is
 * added by an atomic; a row is folded over LANES lanes, lane i taking elements i, i + LANES, ...,
 * and the lanes are joined in halves. */
#ifndef RB_KERNELS_CUDA_LAUNCH_H
#define RB_KERNELS_CUDA_LAUNCH_H

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define RB_GPU __device__
#else
#define RB_GPU
#endif

#include <math.h>
#include <new>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/arena.h"
#include "kernels/backend.h"
#include "kernels/call.h"
#include "kernels/cpu/walk.h"
#include "kernels/window.h"
}
#include "kernels/cuda/cuda.h"
#ifndef __CUDACC__
#include "kernels/cuda/gpu_host.h"
#endif

/* ---- Launching --------------------------------------------------------------------------------*/

enum { RB_BLOCK_THREADS = 256, RB_WARP = 32, RB_GRID = 1 << 16, RB_LONG_ROW = 2048 };

struct rb_sum_of {
    template <class T> RB_GPU T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* A NaN wins. */
struct rb_larger_of {
    template <class T> RB_GPU T operator()(T a, T b) const
    {
        return b > a || b != b ? b : a;
    }
};

struct rb_smaller_of {
    template <class T> RB_GPU T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};

#ifdef __CUDACC__

/* The threads that share a row: a warp, or a block. */
template <int LANES> struct rb_lanes {
    int me;
    unsigned char *room; /* of LANES elements of 8 bytes; a warp needs none */

    template <class F> RB_GPU void each(int64_t n, F body)
    {
        for (int64_t i = me; i < n; i += LANES)
            body(i);
    }
    RB_GPU bool first() const
    {
        return me == 0;
    }
    template <class T, class J, class F> RB_GPU T fold(int64_t n, T start, J join, F body)
    {
        T own = start;

        for (int64_t i = me; i < n; i += LANES)
            own = join(own, body(i));
        return all(own, join);
    }
    template <class T, class J> RB_GPU T all(T own, J join)
    {
        if (LANES == RB_WARP) {
            for (int width = RB_WARP / 2; width > 0; width /= 2)
                own = join(own, __shfl_down_sync(0xffffffffu, own, width));
            return __shfl_sync(0xffffffffu, own, 0);
        }
        T *shared = (T *)room;

        shared[me] = own;
        __syncthreads();
        for (int width = LANES / 2; width > 0; width /= 2) {
            if (me < width)
                shared[me] = join(shared[me], shared[me + width]);
            __syncthreads();
        }
        own = shared[0];
        __syncthreads();
        return own;
    }
};

template <class F> __global__ void rb_each_kernel(F body, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        body(i);
}

template <int LANES, class F> __global__ void rb_rows_kernel(F body, int64_t n)
{
    __shared__ __align__(16) unsigned char room[LANES == RB_WARP ? 8 : LANES * 8];
    int together = (int)blockDim.x / LANES;
    struct rb_lanes<LANES> lanes = {
        (int)threadIdx.x % LANES, room
    };

    for (int64_t row = (int64_t)blockIdx.x * together + threadIdx.x / LANES; row < n;
         row += (int64_t)gridDim.x * together)
        body(row, lanes);
}

static inline unsigned rb_grid(int64_t blocks)
{
    return blocks < RB_GRID ? (unsigned)blocks : (unsigned)RB_GRID;
}

template <class F> static void rb_each(struct rb_cuda *cuda, int64_t n, F body)
{
    if (n <= 0)
        return;
    rb_each_kernel<<<rb_grid((n + RB_BLOCK_THREADS - 1) / RB_BLOCK_THREADS), RB_BLOCK_THREADS, 0,
                     (cudaStream_t)rb_gpu_stream(cuda->gpu)>>>(body, n);
    rb_gpu_launched(cuda->gpu);
}

template <int LANES, class F> static void rb_rows_of(struct rb_cuda *cuda, int64_t n, F body)
{
    int together = RB_BLOCK_THREADS / LANES;

    if (n <= 0)
        return;
    rb_rows_kernel<LANES><<<rb_grid((n + together - 1) / together), RB_BLOCK_THREADS, 0,
                            (cudaStream_t)rb_gpu_stream(cuda->gpu)>>>(body, n);
    rb_gpu_launched(cuda->gpu);
}

#else

template <int LANES> struct rb_lanes {
    template <class F> void each(int64_t n, F body)
    {
        for (int64_t i = 0; i < n; i++)
            body(i);
    }
    bool first() const
    {
        return true;
    }
    template <class T, class J, class F> T fold(int64_t n, T start, J join, F body)
    {
        T lane[LANES];

        for (int l = 0; l < LANES; l++)
            lane[l] = start;
        for (int64_t i = 0; i < n; i++)
            lane[i % LANES] = join(lane[i % LANES], body(i));
        for (int width = LANES / 2; width > 0; width /= 2)
            for (int l = 0; l < width; l++)
                lane[l] = join(lane[l], lane[l + width]);
        return lane[0];
    }
};

template <class F> struct rb_loop {
    F body;
    int64_t n;

    static void each(void *what)
    {
        struct rb_loop *loop = (struct rb_loop *)what;

        for (int64_t i = 0; i < loop->n; i++)
            loop->body(i);
    }
    template <int LANES> static void rows(void *what)
    {
        struct rb_loop *loop = (struct rb_loop *)what;
        struct rb_lanes<LANES> lanes;

        for (int64_t row = 0; row < loop->n; row++)
            loop->body(row, lanes);
    }
};

template <class F> static void rb_each(struct rb_cuda *cuda, int64_t n, F body)
{
    struct rb_loop<F> loop = {
        body, n
    };

    rb_gpu_host_run(cuda->gpu, rb_loop<F>::each, &loop, sizeof(loop));
}

template <int LANES, class F> static void rb_rows_of(struct rb_cuda *cuda, int64_t n, F body)
{
    struct rb_loop<F> loop = {
        body, n
    };

    rb_gpu_host_run(cuda->gpu, rb_loop<F>::template rows<LANES>, &loop, sizeof(loop));
}

#endif

/* body(row, lanes) for each of `rows` rows of about `n` elements: a warp for a short one, a block
 * for a long one.  `body` is a struct whose operator takes any lanes. */
template <class F> static void rb_rows(struct rb_cuda *cuda, int64_t rows, int64_t n, F body)
{
    if (n < RB_LONG_ROW)
        rb_rows_of<RB_WARP>(cuda, rows, body);
    else
        rb_rows_of<RB_BLOCK_THREADS>(cuda, rows, body);
}

/* ---- Kernels ----------------------------------------------------------------------------------*/

/* What a family keeps of a call: plain data, run(cuda, in, out, key) with the GPU's addresses, and
 * done() where something is to be given back. */
struct rb_work {
    void done()
    {
    }
};

template <class W> struct rb_made {
    struct rb_cuda_kernel base;
    struct rb_cuda *cuda;
    int n_in, n_out;
    const void **in;
    void **out;
    W work;
};

template <class W>
static void rb_made_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    struct rb_made<W> *made = (struct rb_made<W> *)kernel;

    for (int i = 0; i < made->n_in; i++)
        made->in[i] = rb_twins_gpu(made->cuda, in[i]);
    for (int i = 0; i < made->n_out; i++)
        made->out[i] = rb_twins_gpu(made->cuda, out[i]);
    if (rb_gpu_enter(made->cuda->gpu))
        made->work.run(made->cuda, made->in, made->out, key);
}

template <class W>
static void rb_made_launch(struct rb_cuda_kernel *kernel, const void *const *in, void *const *out,
                           const struct rb_key *key)
{
    struct rb_made<W> *made = (struct rb_made<W> *)kernel;

    made->work.run(made->cuda, in, out, key);
}

template <class W> static void rb_made_free(struct rb_kernel *kernel)
{
    struct rb_made<W> *made = (struct rb_made<W> *)kernel;

    made->work.done();
    free(made->in);
    free(made->out);
    free(made);
}

template <class W>
static int rb_make(struct rb_cuda *cuda, const struct rb_call *call, const W &work,
                   struct rb_kernel **ret_kernel)
{
    struct rb_made<W> *made = (struct rb_made<W> *)rb_alloc(sizeof(*made));

    made->base.base.run = rb_made_run<W>;
    made->base.base.free = rb_made_free<W>;
    made->base.launch = rb_made_launch<W>;
    made->cuda = cuda;
    made->n_in = call->n_in;
    made->n_out = call->n_out;
    made->in = (const void **)rb_alloc(sizeof(void *) * (size_t)(call->n_in + 1));
    made->out = (void **)rb_alloc(sizeof(void *) * (size_t)(call->n_out + 1));
    made->work = work;
    *ret_kernel = &made->base.base;
    return 0;
}

static inline int rb_no_kernel(const struct rb_call *call, struct rb_why *why)
{
    return rb_call_refuse(call, RB_EUNSUPPORTED, why, "a GPU has no kernel for these types");
}

/* ---- Places in strided tensors ----------------------------------------------------------------*/

/* The offset that goes with the i-th element of an order of axes. */
struct rb_places {
    int rank;
    int64_t base;
    int64_t dim[RB_MAX_RANK], step[RB_MAX_RANK];

    RB_GPU int64_t at(int64_t i) const
    {
        int64_t offset = base;

        for (int a = rank - 1; a > 0; a--) {
            if (i <= 0xffffffff) { /* divisions of 64 bits are slow */
                uint32_t j = (uint32_t)i, d = (uint32_t)dim[a];

                offset += (int64_t)(j % d) * step[a];
                i = j / d;
            } else {
                offset += i % dim[a] * step[a];
                i /= dim[a];
            }
        }
        return offset + i * step[0];
    }
};

/* Operand k of a walk, by elements of the walk's order; dimensions are below 2^32 (dim[] of a
 * merged walk may be larger only where it is the first). */
static inline struct rb_places rb_places_of(const struct rb_walk *walk, int k)
{
    struct rb_places places;

    places.rank = walk->rank;
    places.base = walk->base[k];
    memcpy(places.dim, walk->dim, sizeof(places.dim));
    memcpy(places.step, walk->step[k], sizeof(places.step));
    return places;
}

static inline bool rb_is_number(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_F64 || dtype == RB_I32 || dtype == RB_I64;
}

/* Calls f(zero) with a zero of the type that `dtype`, a type of numbers, names. */
template <class F> void rb_with_number(enum rb_dtype dtype, F f)
{
    if (dtype == RB_F32)
        f(float());
    else if (dtype == RB_F64)
        f(double());
    else if (dtype == RB_I32)
        f(int32_t());
    else
        f(int64_t());
}

/* Index `i` of `indices` (I64 where `wide`, else I32), counted from the end where it is negative;
 * -1 where it is outside of `rows`. */
static inline RB_GPU int64_t rb_row_of(const void *indices, bool wide, int64_t i, int64_t rows)
{
    int64_t row = wide ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];

    row += row < 0 ? rows : 0;
    return row >= 0 && row < rows ? row : -1;
}

/* The bits that an index outside reads: NaN, as on cores (kernels/cpu/gather.c), or 0 for a type
 * without NaN. */
static inline uint64_t rb_outside(enum rb_dtype dtype)
{
    return dtype == RB_F32   ? UINT64_C(0x7fc00000)
           : dtype == RB_F64 ? UINT64_C(0x7ff8000000000000)
                             : 0;
}

#endif
