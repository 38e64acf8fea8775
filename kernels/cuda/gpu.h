/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA backend asks of a GPU's runtime: memory, copies, matrix products, a stream.
 *
 * device, twins, operators > [gpu] > CUDA runtime, cuBLASLt | the host
 *
 * There are two of these: gpu.c and product.c on CUDA; and gpu_host*.c, for tests, on which the
 * same operators run as plain loops, in memory that the host's programs cannot reach otherwise.
 *
 * Work is queued on one stream, and sends are queued with it; only the other copies and rb_gpu_wait
 * wait for it.  The other copies have a stream for each way, so that work queued behind them does
 * not wait.  The first error stays: every call after it does nothing, and rb_gpu_check says what it
 * was. */
#ifndef RB_KERNELS_CUDA_GPU_H
#define RB_KERNELS_CUDA_GPU_H

#include "base/error.h"
#include "kernels/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rb_gpu;

/* In the numeric class: one more with each change of kernels that changes bits. */
enum { RB_GPU_KERNELS = 3 };

struct rb_gpu_about {
    char name[128];
    uint64_t bytes;
    char numeric_class[192];
    char bus[32]; /* PCI */
};

/* RB_ENOTFOUND and a sentence where there is no driver or no GPU. */
int rb_gpu_count(int *ret_count, struct rb_why *why);
int rb_gpu_describe(int index, struct rb_gpu_about *ret_about, struct rb_why *why);

int rb_gpu_open(int index, struct rb_gpu **ret_gpu, struct rb_why *why);
void rb_gpu_close(struct rb_gpu *gpu);

/* May be called by any thread; zeroed; NULL where there is none. */
void *rb_gpu_alloc(struct rb_gpu *gpu, size_t bytes);
void rb_gpu_free(struct rb_gpu *gpu, void *memory);

/* Host to GPU, behind what is queued and in front of what will be; `from` is the caller's again
 * when this returns.  A send of up to some megabytes does not wait for the GPU. */
void rb_gpu_send(struct rb_gpu *gpu, void *to, const void *from, size_t bytes);
/* Host to GPU and GPU to host, behind what is queued; done when they return. */
void rb_gpu_in(struct rb_gpu *gpu, void *to, const void *from, size_t bytes);
void rb_gpu_out(struct rb_gpu *gpu, void *to, const void *from, size_t bytes);
/* From one place of GPUs to another, behind what is queued; rb_gpu_copied waits for all of these.
 */
void rb_gpu_copy(struct rb_gpu *gpu, void *to, const void *from, size_t bytes);
void rb_gpu_copied(struct rb_gpu *gpu);
/* Queued, as kernels are; within the GPU's memory. */
void rb_gpu_within(struct rb_gpu *gpu, void *to, const void *from, size_t bytes);
void rb_gpu_zero(struct rb_gpu *gpu, void *at, size_t bytes);
void rb_gpu_wait(struct rb_gpu *gpu);

int rb_gpu_check(struct rb_gpu *gpu, struct rb_why *why);
/* Say that something went wrong outside. */
void rb_gpu_fail(struct rb_gpu *gpu, const char *what);

/* Make the calling thread's calls go to this GPU; false: it has failed, launch nothing.  The stream
 * for launches. */
bool rb_gpu_enter(struct rb_gpu *gpu);
void *rb_gpu_stream(struct rb_gpu *gpu);
/* Behind a launch: was it accepted? */
void rb_gpu_launched(struct rb_gpu *gpu);

/* ---- Tapes ----
 *
 * Between start and end what the calling thread launches, multiplies and clears is kept instead of
 * done; that thread may not copy to or from the host, or between GPUs.  Other threads copy as
 * always.  Errors in between are the tape's, not the GPU's. */
struct rb_gpu_tape;

/* `bytes`: of values on the GPU that the tape's kernels may read, set with each play. */
int rb_gpu_tape_start(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_tape **ret_tape,
                      struct rb_why *why);
void *rb_gpu_tape_values(struct rb_gpu_tape *tape);
int rb_gpu_tape_end(struct rb_gpu_tape *tape, struct rb_why *why);
/* Queues it behind what is queued; `values` are taken before it returns. */
void rb_gpu_tape_play(struct rb_gpu_tape *tape, const void *values);
void rb_gpu_tape_free(struct rb_gpu_tape *tape);

/* ---- Marks ---- as in kernels/device.h */
struct rb_gpu_marks;

int rb_gpu_marks_new(struct rb_gpu *gpu, size_t n, struct rb_gpu_marks **ret_marks,
                     struct rb_why *why);
void rb_gpu_marks_set(struct rb_gpu_marks *marks, size_t i);
double rb_gpu_marks_between(struct rb_gpu_marks *marks, size_t from, size_t to);
bool rb_gpu_marks_reached(struct rb_gpu_marks *marks, size_t i);
void rb_gpu_marks_free(struct rb_gpu_marks *marks);

/* ---- Circles ---- as in kernels/device.h, of the GPU's own addresses */
struct rb_gpu_circle;

int rb_gpu_circle_ticket(struct rb_gpu *gpu, void *ret_ticket, struct rb_why *why);
int rb_gpu_circle_enter(struct rb_gpu *gpu, const void *ticket, int rank, int size,
                        struct rb_gpu_circle **ret_circle, struct rb_why *why);
int rb_gpu_circle_ready(struct rb_gpu_circle *circle, bool *ret_ready, struct rb_why *why);
int rb_gpu_circle_sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why);
int rb_gpu_circle_move(struct rb_gpu_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why);
void rb_gpu_circle_leave(struct rb_gpu_circle *circle);
void rb_gpu_circle_stop(struct rb_gpu_circle *circle);
int rb_gpu_circle_shrink(struct rb_gpu_circle *circle, const int *gone, int n,
                         struct rb_gpu_circle **ret_circle, struct rb_why *why);

/* ---- Shelves ----
 *
 * Memory of a GPU that a file descriptor names.  It is there until no process has it mapped and
 * none has the descriptor, whichever process made it. */
struct rb_gpu_shelf;

/* At least `bytes`; *ret_bytes: how many.  The descriptor is the caller's. */
int rb_gpu_shelf_new(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_shelf **ret_shelf, int *ret_fd,
                     size_t *ret_bytes, struct rb_why *why);
/* As many bytes as it has. */
int rb_gpu_shelf_map(struct rb_gpu *gpu, int fd, size_t bytes, struct rb_gpu_shelf **ret_shelf,
                     struct rb_why *why);
void *rb_gpu_shelf_memory(const struct rb_gpu_shelf *shelf);
void rb_gpu_shelf_free(struct rb_gpu_shelf *shelf);

/* ---- Products ---- */

/* c = a b (+ bias for every row), all row-major; `more`: c += a b; `relu`: what is below 0 becomes
 * 0, behind the bias.  Sums are float32 whatever the factors are.  Strides are in elements, from
 * one matrix of a batch to the next. */
struct rb_gpu_product_shape {
    int64_t m, n, k, batch;
    int64_t a_stride, b_stride, c_stride;
    int64_t a_row, b_row, c_row; /* elements from one row to the next */
    bool swap_a, swap_b;         /* a is stored [k, m], b [n, k] */
    bool bias, more, relu;
    bool short_in, short_out; /* factors, and the product, are bfloat16; else float32 */
    bool aligned;             /* every matrix starts at a multiple of 16 bytes */
};

/* A convolution by a library, in one call and an order that is the same each time.  Axes that are
 * absent have size and stride 1.  (x, w): y; (dy, w): dx; (dy, x): dw; all float32, or bfloat16. */
enum rb_gpu_conv_way { RB_GPU_CONV, RB_GPU_CONV_GRAD_X, RB_GPU_CONV_GRAD_W };
struct rb_gpu_conv_shape {
    enum rb_gpu_conv_way way;
    bool is_short;
    int64_t samples, inputs, outputs, group; /* channels of all groups */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
};

struct rb_gpu_conv;

/* RB_EUNSUPPORTED: there is no library, or it has no way for this.  ret_bytes: memory that the
 * convolution needs while it runs. */
int rb_gpu_conv_new(struct rb_gpu *gpu, const struct rb_gpu_conv_shape *shape,
                    struct rb_gpu_conv **ret_conv, size_t *ret_bytes, struct rb_why *why);
void rb_gpu_conv_run(struct rb_gpu_conv *conv, const void *a, const void *b, void *to,
                     void *memory);
void rb_gpu_conv_free(struct rb_gpu_conv *conv);

struct rb_gpu_product;

/* RB_EUNSUPPORTED: the library has no way for it; it may have one without the ReLU. */
int rb_gpu_product_new(struct rb_gpu *gpu, const struct rb_gpu_product_shape *shape,
                       struct rb_gpu_product **ret_product, struct rb_why *why);
/* A bias is float32; a product of bfloat16 has none. */
void rb_gpu_product_run(struct rb_gpu_product *product, const void *a, const void *b,
                        const float *bias, void *c);
void rb_gpu_product_free(struct rb_gpu_product *product);

#ifdef __cplusplus
}
#endif

#endif
