/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: the one door to arithmetic.  What a device computes decides bits; where it computes does
 * not.
 *
 * plan > worker (interpreter) > [device] > cpu | cuda
 *
 * A device has one thread of its own: the caller's.  Everything that may allocate, compile or fail
 * for a wrong shape happens in prepare; running a kernel fails only with its device
 * (rb_device_check): a GPU can break, a CPU's products can find no memory.  The result of a kernel
 * depends on its inputs and its key alone: never on addresses, on what ran before, on other
 * processes or on the number of the device. */
#ifndef RB_KERNELS_DEVICE_H
#define RB_KERNELS_DEVICE_H

#include "base/error.h"
#include "proto/dtype.h"
#include "proto/operators.h"
#include "proto/views.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rb_device;
struct rb_kernel;

struct rb_attribute {
    const char *key; /* as in proto/operators.h */
    const int64_t *ints;
    int n_ints;
    const float *floats;
    int n_floats;
};

/* An operator with the types it will see.  dtype RB_NONE: that input or output is absent. */
struct rb_call {
    enum rb_op op;
    uint32_t id; /* the instruction's id: keys randomness */
    int n_in, n_out;
    const struct rb_tensor_type *in, *out;
    const struct rb_attribute *attributes;
    int n_attributes;
    bool slices; /* tensors may start at any multiple of their elements' size; else of 64 */
    /* Memory that is free while the kernel runs, for it to use as it likes: spare_bytes of it (0:
     * none), `spare` bytes from the first output, wherever that is (a multiple of 64). */
    size_t spare_bytes;
    ptrdiff_t spare;
};

/* An attribute's first value, or `otherwise` where it is absent. */
int64_t rb_call_int(const struct rb_call *call, const char *key, int64_t otherwise);
float rb_call_float(const struct rb_call *call, const char *key, float otherwise);
const struct rb_attribute *rb_call_attribute(const struct rb_call *call, const char *key);

/* What the random numbers of a run are keyed by, beside the instruction's id. */
struct rb_key {
    uint64_t seed, step;
    uint32_t microbatch;
};

/* Part of each numeric class: raised with any change after which some job's bits differ, and with
 * nothing else, so that jobs go on across versions.  tests/models/bits.json has digests of the
 * weights that models come to. */
#define RB_NUMERICS 1

struct rb_device_about {
    char name[128]; /* "NVIDIA H200"; empty: a core */
    /* What must be equal on two machines for equal bits: "cpu avx512_core_bf16 bf16-as-fp32
     * onednn-2.6.3 libc-2.36 threads=1 numerics-1". */
    char numeric_class[192];
    uint64_t bytes; /* of its memory; 0: the host's */
    char bus[32];   /* a GPU's PCI address, "0000:1b:00.0"; empty: it has none */
};

/* How many devices of `kind` ("cpu", "cuda") this machine has, at least one; an error and a
 * sentence where it has none.  Devices other than CPUs come from a module, which this call opens
 * (kernels/module.h). */
int rb_device_count(const char *kind, int *ret_count, struct rb_why *why);
int rb_device_describe(const char *kind, int index, struct rb_device_about *ret_about,
                       struct rb_why *why);

/* The numeric class of this machine's CPUs, which all of them share; "unknown" for other kinds.
 * Static text. */
const char *rb_device_numeric_class(const char *kind);

int rb_device_open(const char *kind, int index, struct rb_device **ret_device, struct rb_why *why);
void rb_device_close(struct rb_device *device);

/* Zeroed memory, 64-byte aligned (2 MiB where large).  NULL when there is none.  Large memory of a
 * CPU takes up physical memory only where it was written. */
void *rb_device_alloc(struct rb_device *device, size_t bytes);
void rb_device_free(struct rb_device *device, void *memory);

/* The same for memory that other processes of this host may read where it lies (rb_coll_show); and
 * the file by which they map it, which has the memory's bytes.  -1: this memory cannot be shown, or
 * none can. */
void *rb_device_alloc_shown(struct rb_device *device, size_t bytes);
int rb_device_shown(struct rb_device *device, const void *memory);

/* Does large memory take up physical memory only where it was written?  Else it is taken at once.
 */
bool rb_device_sparse(const struct rb_device *device);

/* A range of such memory is no longer needed: the device gives its physical memory back as far as
 * it can, and the range is zero again. */
void rb_device_discard(struct rb_device *device, void *memory, size_t bytes);

/* The same for a range that will be written again soon: it is zero, and its physical memory stays.
 */
void rb_device_clear(struct rb_device *device, void *memory, size_t bytes);

/* Says that `extents` (ascending and apart) of such memory will be written often, and the rest
 * seldom or never.  Changes no bit.  Memory of a CPU comes in large pages, and one written byte
 * takes a whole page; from here on it comes in small pages where much of a large one would be taken
 * for nothing. */
struct rb_extent {
    size_t first, bytes; /* from the start of the memory */
};
void rb_device_expect(struct rb_device *device, void *memory, size_t bytes,
                      const struct rb_extent *extents, size_t n);

/* ---- Two sides ----
 *
 * A GPU has memory of its own, so what rb_device_alloc gives has two sides under one address: what
 * this process reads and writes there is the host's side, what kernels and the arithmetic below
 * read and write is the device's.  Both are zero at first; only these calls, which any thread may
 * make, copy from one side to the other.  On a CPU the two sides are one, and the calls cost
 * nothing.
 *
 * All pointers given to kernels and to the arithmetic below, results included, point to memory of
 * the device.  Work is queued, and pushes are queued with it; a pull waits for what was queued
 * before it. */

/* Copy the device's side to the host's, before the host reads what the device has written. */
void rb_device_pull(struct rb_device *device, void *memory, size_t bytes);

/* Copy the host's side to the device's, after the host has written what the device will read.  Work
 * that was queued before still reads the old bytes, work that is queued from here on reads the new
 * ones.  When this returns the host may write its side again, though a GPU need not have come so
 * far (with very much memory it has).  Push and pull leave memory alone that is not the device's.
 */
void rb_device_push(struct rb_device *device, void *memory, size_t bytes);

/* Copy from one place in memory of the device to another, which do not overlap, queued as kernels
 * are: for small results that are pulled together later, and for what the device itself reads next,
 * such as a sum that is one rank's own. */
void rb_device_copy(struct rb_device *device, void *to, const void *from, size_t bytes);

/* 0, or what has gone wrong on the device since it was opened; then nothing that was pulled since
 * the error is valid.  Call this before results are told to anyone. */
int rb_device_check(struct rb_device *device, struct rb_why *why);

/* ---- Circles ----
 *
 * GPUs of several processes that add up their memory, and give each other parts of it, without
 * their hosts.  One rank writes a ticket, and all ranks enter with it, each by itself and beside
 * whatever its device does; once every rank is in, a sum or a move is one call.  Which GPU sums
 * with which does not show in the bits: the summands are integers.
 *
 * Only rb_circle_sum and rb_circle_move wait for other ranks, and only as long as over() is false.
 */
enum { RB_CIRCLE_TICKET = 128 };
struct rb_circle;

/* Do devices of this kind have ways to each other? */
bool rb_device_circles(const struct rb_device *device);

/* Write a ticket.  RB_EUNSUPPORTED and a sentence: this device cannot be in a circle. */
int rb_circle_ticket(struct rb_device *device, void *ret_ticket, struct rb_why *why);
int rb_circle_enter(struct rb_device *device, const void *ticket, int rank, int size,
                    struct rb_circle **ret_circle, struct rb_why *why);
/* Is every rank in?  An error: they never will be. */
int rb_circle_ready(struct rb_circle *circle, bool *ret_ready, struct rb_why *why);

/* out[i] = the sum over ranks of in[i], or in[i] of one rank, for i in the ranges; in memory of the
 * device, behind what is queued.  Every rank gives the same list.  Ranges may overlap where their
 * ranks differ, and `out` is written only where this rank is to have the sum.  RB_EPEER: over() was
 * true, or the circle failed, before all ranks were through; the circle is of no further use.
 * Other errors are the device's (rb_device_check). */
enum { RB_CIRCLE_ALL = -1 };
struct rb_circle_range {
    int from, to; /* ranks, or RB_CIRCLE_ALL; from a single rank a range goes to all */
    size_t first, count;
};
int rb_circle_sum(struct rb_circle *circle, const int32_t *in, int32_t *out,
                  const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                  void *context, struct rb_why *why);

/* Move memory of the device from some ranks to others, all at once and behind what is queued.
 * Every rank gives the same list, but for `memory`: the address at this rank, NULL at a rank that
 * has no part in the move.  Errors as above. */
struct rb_circle_move {
    int from, to;
    void *memory;
    size_t bytes;
};
int rb_circle_move(struct rb_circle *circle, const struct rb_circle_move *moves, size_t n,
                   bool (*over)(void *context), void *context, struct rb_why *why);

/* Ranks that still need the circle are not told: their over() must say so. */
void rb_circle_leave(struct rb_circle *circle);

/* For a circle that is over: nothing of it is under way on the device any more, and only ranks that
 * are left can sum again (rb_circle_shrink).  Waits for no rank. */
void rb_circle_stop(struct rb_circle *circle);

/* Make a circle of what is left of a stopped one without `gone`, n > 0 ascending ranks of it.  All
 * ranks that are left call this with the same `gone`, and keep their order.  Ask rb_circle_ready as
 * for a circle that was entered.  `circle` belongs to the new circle from here on; where this
 * fails, it has been left.  RB_EUNSUPPORTED and a sentence: circles cannot shrink here. */
int rb_circle_shrink(struct rb_circle *circle, const int *gone, int n,
                     struct rb_circle **ret_circle, struct rb_why *why);

/* ---- Shelves ----
 *
 * Memory of a device from which devices of other processes of this host take by themselves, so that
 * nothing passes through the host's memory.  The owner puts parcels there; a process that was told
 * the address takes them.  What lies there stays as it is until the owner puts something else in
 * its place, or until all processes that have the shelf have closed it or died, in whatever order.
 */
enum { RB_SHELF_ADDRESS = 64 };
struct rb_shelf;

/* Does this kind of device have shelves? */
bool rb_device_shelves(const struct rb_device *device);

/* Open a shelf of this process; its address is what other processes need to find it while it is
 * open.  RB_EUNSUPPORTED and a sentence: there are no shelves here; RB_ENOMEM. */
int rb_shelf_open(struct rb_device *device, size_t bytes, void *ret_address,
                  struct rb_shelf **ret_shelf, struct rb_why *why);

/* Open another process's shelf, of `bytes` too.  RB_EUNSUPPORTED and a sentence: the shelf is on
 * another host, out of this device's reach, or closed. */
int rb_shelf_find(struct rb_device *device, const void *address, size_t bytes,
                  struct rb_shelf **ret_shelf, struct rb_why *why);

/* Copy memory of the device, piece after piece, to the shelf's bytes from `at` on, and the other
 * way: behind what is queued, and done when the call returns, unless rb_device_check finds an
 * error. */
void rb_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n);
void rb_shelf_take(struct rb_shelf *shelf, size_t at, const struct iovec *to, int n);

void rb_shelf_close(struct rb_shelf *shelf); /* NULL is fine */

/* Make `call` ready to run.  RB_EUNSUPPORTED (and a sentence naming operator, types and what is
 * missing) where the device cannot. */
int rb_kernel_prepare(struct rb_device *device, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why);

/* in, out: an address each, NULL for absent ones.  An output never overlaps an input. */
void rb_kernel_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                   const struct rb_key *key);
void rb_kernel_free(struct rb_kernel *kernel);

/* ---- Tapes ----
 *
 * This process launches each kernel on a GPU, which may take longer than the kernel.  So work that
 * is done again and again can be asked for once: between rb_tape_start and rb_tape_end the kernels,
 * the rb_device_copy and the rb_fixed_add that the calling thread asks for are not done but kept,
 * and rb_tape_play does them all at once.  Addresses and sizes stay as they were.  What differs
 * from one play to the next is given with each play: the key, and for each rb_fixed_add, in their
 * order, where its sums go and how.  The bits are those of asking for each kernel by itself. */
struct rb_tape;
struct rb_fixed;

/* Do tapes gain anything here?  On a CPU they do not. */
bool rb_device_tapes(const struct rb_device *device);

/* `sums`: the most rb_fixed_add that will be kept. */
int rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                  struct rb_why *why);
/* RB_EUNSUPPORTED: something cannot be kept; the tape is worth nothing, and the device is as it was
 * before the start. */
int rb_tape_end(struct rb_tape *tape, struct rb_why *why);
/* false, and nothing is done: n_sums is not the number that was kept, or memory of the device's own
 * has moved since; a new tape is needed. */
bool rb_tape_play(struct rb_tape *tape, const struct rb_key *key, const struct rb_fixed *sums,
                  size_t n_sums);
void rb_tape_free(struct rb_tape *tape);

/* ---- Marks ----
 *
 * Places in the work that is asked of a device, and when the device came to them by its own clock.
 * A CPU's clock is the time for which the calling thread has had a core, so that other load on the
 * machine does not count.  Not for use while a tape is kept. */
struct rb_marks;

int rb_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                 struct rb_why *why);
/* Set mark i behind what was asked for so far; a mark that was set before is moved. */
void rb_marks_set(struct rb_marks *marks, size_t i);
/* ns from one mark that was set to another; waits until the device has come to both.  0 where
 * rb_device_check has an error. */
double rb_marks_between(struct rb_marks *marks, size_t from, size_t to);
/* Has the device come to mark i, which was set?  Does not wait for it.  true where rb_device_check
 * has an error. */
bool rb_marks_reached(struct rb_marks *marks, size_t i);
void rb_marks_free(struct rb_marks *marks);

/* ---- Arithmetic on the flat state ----
 *
 * Ranges of equal length `n`; exponents are powers of two: value = integer * 2^-exponent. */

/* sum[i] += round(g[i] * weight * 2^exponent), to nearest even.  `limit` = (2^31-1) / summands.
 *
 * Where |rounded| > limit, *overflow becomes true and the summand is clamped to it; a NaN adds 0.
 * *largest is raised to the largest bits of |g[i] * weight| as an unsigned integer, so a NaN or an
 * infinity shows as >= 0x7f800000. */
void rb_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow);

/* The same onto zeros, whatever `sum` holds: the first summand of a step. */
void rb_fixed_set(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow);

/* Where the summands of a tensor go, and how: as the arguments of the two above. */
struct rb_fixed {
    int32_t *sum;
    bool fresh; /* onto zeros */
    float weight;
    int exponent;
    int32_t limit;
    uint32_t *largest;
    bool *overflow;
};

/* May this kernel's only output go into sums without being written anywhere? */
bool rb_kernel_sums(const struct rb_kernel *kernel);

/* Run into sums a kernel of which rb_kernel_sums is true: the bits that running it and adding its
 * output would give. */
void rb_kernel_sum(struct rb_kernel *kernel, const void *const *in, const struct rb_fixed *into);

/* ---- Several runs at once ----
 *
 * Runs of one kernel on inputs of their own, RB_KERNEL_EACH at most.  The bits are those of one run
 * after the other; what all runs read or add to may be gone through once. */
enum { RB_KERNEL_EACH = 8 };

/* Is anything gained by several runs at once? */
bool rb_kernel_gathers(const struct rb_kernel *kernel);

void rb_kernel_run_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        void *const *const *out, const struct rb_key *keys);
void rb_kernel_sum_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        const struct rb_fixed *into);

/* Sum of squares of sum[i] * 2^-exponent * scale, in double, in a fixed order that depends on n
 * alone. */
void rb_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                      double scale, double *ret_squares);

/* Sums that are not written anywhere: sum i is that of element i of all parts, modulo 2^32, and is
 * made when it is read.  Memory that has another side on a device is one part. */
struct rb_sums {
    const int32_t *parts[RB_VIEWS_RANKS];
    int n_parts;
};

static inline struct rb_sums rb_sums_of(const int32_t *sums)
{
    return (struct rb_sums){{sums}, 1};
}

/* One optimizer step on gradients sums[i] * 2^-exponent * scale (scale: 1/count and clipping).
 * ret_squares (may be NULL): also returns what rb_fixed_squares says of these sums at scale 1. */
struct rb_adamw {
    float lr, beta1, beta2, eps, weight_decay; /* weight_decay 0 where the variable has none */
    float correction1, correction2;            /* 1 - beta^t */
};
void rb_apply_adamw(struct rb_device *device, float *w, float *m, float *v, struct rb_sums sums,
                    size_t n, int exponent, float scale, const struct rb_adamw *how,
                    double *ret_squares);

struct rb_sgd {
    float lr, momentum, weight_decay;
    bool nesterov, first; /* first: the buffer becomes the gradient, as in PyTorch */
};
void rb_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                  int exponent, float scale, const struct rb_sgd *how, double *ret_squares);

/* Weights as they will be some steps on, should the optimizer go on in the direction of its last
 * step: out[i] = w[i] - factor * m[i] (v NULL: sgd), or
 *                w[i] * keep - factor * m[i] / (sqrt(v[i]) * root + eps) (adamw).
 * m NULL: a copy of w. */
struct rb_predict {
    float keep, factor, root, eps;
};
void rb_predict(struct rb_device *device, float *out, const float *w, const float *m,
                const float *v, size_t n, const struct rb_predict *how);

/* A running statistic: w[i] = keep * w[i] + sums[i] * 2^-exponent. */
void rb_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                        int exponent, float keep);

#endif
