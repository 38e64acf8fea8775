/* SPDX-License-Identifier: Apache-2.0 */
/* Work in tiles: a block of threads, memory that they share, and products of small matrices in it.
 *
 * attention_forward.h, attention_backward.h > [tile] > a block on the GPU, tensor cores for
 * bfloat16 | loops on the host
 *
 * As in launch.h the same source runs on both.  Only the product differs: with bfloat16 it is the
 * tensor cores' on a GPU.  Every call ends with all threads in step. */
#ifndef RB_KERNELS_CUDA_TILE_H
#define RB_KERNELS_CUDA_TILE_H

#include "kernels/cuda/number.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <mma.h>
#else
#include <atomic>
#endif

/* Sizes of matrices in tiles are multiples of RB_TILE_STEP; a row has RB_TILE_GAP elements more, so
 * that rows do not meet in the same banks of the memory. */
enum { RB_TILE_THREADS = 256, RB_TILE_STEP = 16, RB_TILE_GAP = 8, RB_TILE_MOST = 200 << 10 };

static inline RB_GPU float rb_tile_get(float x)
{
    return x;
}

static inline RB_GPU float rb_tile_get(uint16_t x)
{
    return rb_bfloat_get(x);
}

static inline RB_GPU void rb_tile_put(float *to, float x)
{
    *to = x;
}

static inline RB_GPU void rb_tile_put(uint16_t *to, float x)
{
    *to = rb_bfloat_put(x);
}

/* A matrix in shared memory. */
template <class T> struct rb_tile_matrix {
    T *at;
    int row; /* elements from one row to the next */

    RB_GPU T &operator()(int64_t i, int64_t j) const
    {
        return at[i * row + j];
    }
};

#ifdef __CUDACC__

struct rb_tile {
    unsigned char *room;

    template <class F> RB_GPU void each(int n, F body)
    {
        for (int i = (int)threadIdx.x; i < n; i += RB_TILE_THREADS)
            body(i);
        __syncthreads();
    }
    /* body(row, lanes): a warp a row */
    template <class F> RB_GPU void rows(int n, F body)
    {
        struct rb_lanes<RB_WARP> lanes = {
            (int)threadIdx.x % RB_WARP, NULL
        };

        for (int i = (int)threadIdx.x / RB_WARP; i < n; i += RB_TILE_THREADS / RB_WARP)
            body(i, lanes);
        __syncthreads();
    }
};

template <class F> __global__ void __launch_bounds__(RB_TILE_THREADS) rb_tiles_kernel(F body)
{
    extern __shared__ __align__(128) unsigned char rb_tiles_room[];
    struct rb_tile tile = {rb_tiles_room};

    body((int64_t)blockIdx.x, tile);
}

/* How much memory a block may share at most, on the GPU that the thread has entered; 0: the GPU
 * does not say. */
static inline size_t rb_tiles_most(void)
{
    int device = 0, bytes = 0;

    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
            cudaSuccess)
        return (size_t)bytes;
    (void)cudaGetLastError();
    return 0;
}

template <class F> static bool rb_tiles_set(size_t bytes)
{
    if (cudaFuncSetAttribute(rb_tiles_kernel<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes) == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* the caller reports it; the next launch must not find it */
    return false;
}

/* body(i, tile) for n tiles. */
template <class F> static void rb_tiles(struct rb_cuda *cuda, int64_t n, size_t bytes, F body)
{
    if (n <= 0)
        return;
    rb_tiles_kernel<<<(unsigned)n, RB_TILE_THREADS, bytes,
                      (cudaStream_t)rb_gpu_stream(cuda->gpu)>>>(body);
    rb_gpu_launched(cuda->gpu);
}

#else

struct rb_tile {
    unsigned char *room;

    template <class F> void each(int n, F body)
    {
        for (int i = 0; i < n; i++)
            body(i);
    }
    template <class F> void rows(int n, F body)
    {
        struct rb_lanes<RB_WARP> lanes;

        for (int i = 0; i < n; i++)
            body(i, lanes);
    }
};

template <class F> struct rb_tiles_loop {
    F body;
    int64_t n;
    size_t bytes;

    static void run(void *what)
    {
        struct rb_tiles_loop *loop = (struct rb_tiles_loop *)what;
        struct rb_tile tile = {(unsigned char *)rb_alloc(loop->bytes)};

        for (int64_t i = 0; i < loop->n; i++) {
            memset(tile.room, 0xff, loop->bytes); /* NaN: nothing is there by itself */
            loop->body(i, tile);
        }
        free(tile.room);
    }
};

/* As on a GPU, each instantiation has one limit, whichever kernel launches it. */
enum { RB_TILE_FIRST = 48 << 10 };

static inline size_t rb_tiles_most(void)
{
    return RB_TILE_MOST;
}

template <class F> struct rb_tiles_limit {
    static std::atomic<size_t> bytes;
};

template <class F> std::atomic<size_t> rb_tiles_limit<F>::bytes{RB_TILE_FIRST};

template <class F> static bool rb_tiles_set(size_t bytes)
{
    rb_tiles_limit<F>::bytes = bytes;
    return true;
}

template <class F> static void rb_tiles(struct rb_cuda *cuda, int64_t n, size_t bytes, F body)
{
    struct rb_tiles_loop<F> loop = {
        body, n, bytes
    };

    if (bytes > rb_tiles_limit<F>::bytes)
        rb_gpu_fail(cuda->gpu, "a kernel shares more memory than it is allowed");
    else
        rb_gpu_host_run(cuda->gpu, rb_tiles_loop<F>::run, &loop, sizeof(loop));
}

#endif

/* Called while a kernel is prepared: it will be launched with `bytes` of memory to share.  The
 * limit is the instantiation's, which other kernels use too and for which they may want more, so it
 * is always set to the most. */
template <class F> static int rb_tiles_allow(const F &, size_t bytes)
{
    size_t room = rb_tiles_most(), most = room < RB_TILE_MOST ? room : (size_t)RB_TILE_MOST;

    return bytes <= most && rb_tiles_set<F>(most) ? 0 : RB_EUNSUPPORTED;
}

/* ---- Products ---------------------------------------------------------------------------------*/

/* c[m, n] += a[m, k] b[k, n]; SWAP_A: a is stored [k, m], SWAP_B: b is stored [n, k].  A thread
 * makes 4 x 4 elements; each is summed from the first to the last. */
template <bool SWAP_A, bool SWAP_B, class T>
static inline RB_GPU void rb_tile_loops(struct rb_tile &tile, int m, int n, int k,
                                        const rb_tile_matrix<T> &a, const rb_tile_matrix<T> &b,
                                        const rb_tile_matrix<float> &c)
{
    tile.each(m / 4 * (n / 4), [&](int64_t at) {
        int64_t i0 = at / (n / 4) * 4, j0 = at % (n / 4) * 4;
        float sum[4][4];

        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sum[i][j] = c(i0 + i, j0 + j);
        for (int l = 0; l < k; l++) {
            float x[4], y[4];

            for (int i = 0; i < 4; i++)
                x[i] = rb_tile_get(SWAP_A ? a(l, i0 + i) : a(i0 + i, l));
            for (int j = 0; j < 4; j++)
                y[j] = rb_tile_get(SWAP_B ? b(j0 + j, l) : b(l, j0 + j));
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    sum[i][j] += x[i] * y[j];
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                c(i0 + i, j0 + j) = sum[i][j];
    });
}

template <bool SWAP_A, bool SWAP_B>
static inline RB_GPU void
rb_tile_multiply(struct rb_tile &tile, int m, int n, int k, const rb_tile_matrix<float> &a,
                 const rb_tile_matrix<float> &b, const rb_tile_matrix<float> &c)
{
    rb_tile_loops<SWAP_A, SWAP_B>(tile, m, n, k, a, b, c);
}

#ifdef __CUDACC__

template <bool SWAP> struct rb_tile_order {
    typedef nvcuda::wmma::row_major type;
};
template <> struct rb_tile_order<true> {
    typedef nvcuda::wmma::col_major type;
};

/* Fragments of 16 x 16 go round the warps. */
template <bool SWAP_A, bool SWAP_B>
static inline RB_GPU void
rb_tile_multiply(struct rb_tile &, int m, int n, int k, const rb_tile_matrix<uint16_t> &a,
                 const rb_tile_matrix<uint16_t> &b, const rb_tile_matrix<float> &c)
{
    namespace wmma = nvcuda::wmma;
    const int step = RB_TILE_STEP, across = n / step;
    const __nv_bfloat16 *from_a = (const __nv_bfloat16 *)a.at;
    const __nv_bfloat16 *from_b = (const __nv_bfloat16 *)b.at;
    wmma::fragment<wmma::matrix_a, step, step, step, __nv_bfloat16,
                   typename rb_tile_order<SWAP_A>::type>
        x;
    wmma::fragment<wmma::matrix_b, step, step, step, __nv_bfloat16,
                   typename rb_tile_order<SWAP_B>::type>
        y;
    wmma::fragment<wmma::accumulator, step, step, step, float> sum;

    for (int at = (int)threadIdx.x / RB_WARP; at < m / step * across;
         at += RB_TILE_THREADS / RB_WARP) {
        int i = at / across * step, j = at % across * step;

        wmma::load_matrix_sync(sum, &c(i, j), c.row, wmma::mem_row_major);
        for (int l = 0; l < k; l += step) {
            wmma::load_matrix_sync(x, from_a + (SWAP_A ? l * a.row + i : i * a.row + l), a.row);
            wmma::load_matrix_sync(y, from_b + (SWAP_B ? j * b.row + l : l * b.row + j), b.row);
            wmma::mma_sync(sum, x, y, sum);
        }
        wmma::store_matrix_sync(&c(i, j), sum, c.row, wmma::mem_row_major);
    }
    __syncthreads();
}

#else

template <bool SWAP_A, bool SWAP_B>
static inline void
rb_tile_multiply(struct rb_tile &tile, int m, int n, int k, const rb_tile_matrix<uint16_t> &a,
                 const rb_tile_matrix<uint16_t> &b, const rb_tile_matrix<float> &c)
{
    rb_tile_loops<SWAP_A, SWAP_B>(tile, m, n, k, a, b, c);
}

#endif

#endif
