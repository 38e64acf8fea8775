/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: the one door to arithmetic.  What a device does decides bits; where it does it does not.
 *
 * plan > worker (interpreter) > [device] > cpu | cuda
 *
 * A device has one thread of its own: the caller's.  Everything that may allocate, compile or fail
 * for a wrong shape happens in prepare; running a kernel cannot fail, but with the device: a GPU
 * can break, a CPU's products can find no memory (rb_device_check).  The result of a kernel depends
 * on its inputs and its key alone: never on addresses, on what ran before, on other processes or on
 * the number of the device.
 */
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
    bool slices; /* some may start anywhere, at a multiple of their elements' size; else of 64 */
    /* Memory that is free while the kernel runs, for it to write what it likes to: so many bytes,
     * so far from the first output, wherever that is (a multiple of 64).  0: there is none. */
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

/* Part of each numeric class: raised with any change behind which some job's bits are others, and
 * with nothing else, so that jobs go on across versions.  tests/models/bits.json has what weights
 * come to. */
#define RB_NUMERICS 1

struct rb_device_about {
    char name[128]; /* "NVIDIA H200"; empty: a core */
    /* What must be equal on two machines for equal bits: "cpu avx512_core_bf16 bf16-as-fp32
     * onednn-2.6.3 libc-2.36 threads=1 numerics-1". */
    char numeric_class[192];
    uint64_t bytes; /* of its memory; 0: the host's */
    char bus[32];   /* a GPU's PCI address, "0000:1b:00.0"; empty: it has none */
};

/* How many devices of `kind` ("cpu", "cuda") are here, at least one; a sentence where there is
 * none.  Devices other than CPUs come from a module that is opened now (kernels/module.h). */
int rb_device_count(const char *kind, int *ret_count, struct rb_why *why);
int rb_device_describe(const char *kind, int index, struct rb_device_about *ret_about,
                       struct rb_why *why);

/* The class of CPUs, which all of a machine have in common; "unknown" for other kinds.  Static
 * text. */
const char *rb_device_numeric_class(const char *kind);

int rb_device_open(const char *kind, int index, struct rb_device **ret_device, struct rb_why *why);
void rb_device_close(struct rb_device *device);

/* Zeroed memory, 64-byte aligned (2 MiB where large).  NULL when there is none.  Large memory of a
 * CPU takes room only as far as it was written. */
void *rb_device_alloc(struct rb_device *device, size_t bytes);
void rb_device_free(struct rb_device *device, void *memory);

/* The same for what other processes of this host may read as it lies (rb_coll_show), and the file
 * that they can map: its bytes are the memory's.  -1: it cannot be shown, here or at all. */
void *rb_device_alloc_shown(struct rb_device *device, size_t bytes);
int rb_device_shown(struct rb_device *device, const void *memory);

/* Does large memory take room so here?  Else all of it is taken at once. */
bool rb_device_sparse(const struct rb_device *device);

/* A range of such memory is not needed any more: its room is given back as far as the device can,
 * and it is zero again. */
void rb_device_discard(struct rb_device *device, void *memory, size_t bytes);

/* The same for what will be written again soon: it is zero, and its room stays. */
void rb_device_clear(struct rb_device *device, void *memory, size_t bytes);

/* Of such memory, `extents` (ascending and apart) will be written often, and the rest seldom or
 * never.  Changes no bit: memory of a CPU comes in large pages, of which one byte takes all, and
 * from here on in small ones where much of a large one would be taken for nothing. */
struct rb_extent {
    size_t first, bytes; /* from the start of the memory */
};
void rb_device_expect(struct rb_device *device, void *memory, size_t bytes,
                      const struct rb_extent *extents, size_t n);

/* ---- Two sides ----
 *
 * A GPU has memory of its own, so what rb_device_alloc gives has two sides under one address: what
 * this process reads and writes there is the host's side, what kernels and the arithmetic below
 * read and write is the device's.  Both are zero at first; nothing goes from one to the other but
 * by these calls, which any thread may make.  On a CPU the sides are one, and they cost nothing.
 *
 * All pointers that kernels and the arithmetic below are given, results included, are to memory of
 * the device.  Work is queued, and pushes with it; a pull waits for what was queued before it. */

/* The device's side to the host's, before the host reads what the device has written. */
void rb_device_pull(struct rb_device *device, void *memory, size_t bytes);

/* The host's side to the device's, after the host has written what the device will read: what was
 * queued before still reads what was there, what is queued from here on reads this.  The host may
 * write its side again at once; a GPU need not have come so far (not so for very much memory).
 * Memory that is not the device's is left alone, by both. */
void rb_device_push(struct rb_device *device, void *memory, size_t bytes);

/* From one place in memory of the device to another, which do not overlap, queued as kernels are:
 * for what is small and is to be pulled later, with more of its kind, and for what the device goes
 * on to read, as a sum that is one rank's own. */
void rb_device_copy(struct rb_device *device, void *to, const void *from, size_t bytes);

/* 0, or what has gone wrong on the device since it was opened; nothing that was pulled since then
 * is worth anything.  To be asked before results are told to anyone. */
int rb_device_check(struct rb_device *device, struct rb_why *why);

/* ---- Circles ----
 *
 * GPUs of several processes that add up their memory, and give each other parts of it, without
 * their hosts.  A rank writes a ticket, all enter with it, each by itself and beside whatever its
 * device does; once everyone is in, sums and moves are a call.  Which GPU sums with which does not
 * show in the bits: they are integers.
 *
 * None of these waits for others but rb_circle_sum and rb_circle_move, and those only as long as
 * over() is false. */
enum { RB_CIRCLE_TICKET = 128 };
struct rb_circle;

/* Have devices of this kind ways to each other? */
bool rb_device_circles(const struct rb_device *device);

/* Can this one be in one?  RB_EUNSUPPORTED and a sentence: it cannot. */
int rb_circle_ticket(struct rb_device *device, void *ret_ticket, struct rb_why *why);
int rb_circle_enter(struct rb_device *device, const void *ticket, int rank, int size,
                    struct rb_circle **ret_circle, struct rb_why *why);
/* Is everyone in?  An error: they will never be. */
int rb_circle_ready(struct rb_circle *circle, bool *ret_ready, struct rb_why *why);

/* out[i] = sum over ranks of in[i] for i in the ranges, in memory of the device, behind what is
 * queued, or what is in[i] at one of them; everyone gives the same list.  Ranges may overlap where
 * their ranks differ, and `out` is touched only where this rank is to have the sum.  RB_EPEER: it
 * was over, or went wrong, before all were through; the circle is of no further use.  Others are
 * the device's (rb_device_check). */
enum { RB_CIRCLE_ALL = -1 };
struct rb_circle_range {
    int from, to; /* ranks, or RB_CIRCLE_ALL; from a single one it goes to all */
    size_t first, count;
};
int rb_circle_sum(struct rb_circle *circle, const int32_t *in, int32_t *out,
                  const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                  void *context, struct rb_why *why);

/* From some ranks to others, in memory of the device, all at once and behind what is queued.
 * Everyone gives the same list, in which `memory` is where it lies here, NULL for who has nothing
 * to do with the move.  Errors as above. */
struct rb_circle_move {
    int from, to;
    void *memory;
    size_t bytes;
};
int rb_circle_move(struct rb_circle *circle, const struct rb_circle_move *moves, size_t n,
                   bool (*over)(void *context), void *context, struct rb_why *why);

/* Others that still need it hear nothing of this: their over() is to say so. */
void rb_circle_leave(struct rb_circle *circle);

/* When it is over: nothing of it is under way on the device any more, and there are no sums but
 * with those who are left.  Waits for nobody. */
void rb_circle_stop(struct rb_circle *circle);

/* What is left of one that was stopped, without `gone`, n > 0 ascending ranks of it: those who are
 * left all call this, with the same, and keep their order.  It is to be asked whether it is ready
 * as one that was entered.  `circle` is this one's from here on, or has been left where it fails.
 * RB_EUNSUPPORTED and a sentence: there is no such way. */
int rb_circle_shrink(struct rb_circle *circle, const int *gone, int n,
                     struct rb_circle **ret_circle, struct rb_why *why);

/* ---- Shelves ----
 *
 * Memory of a device from which devices of other processes of this host take by themselves: what
 * goes that way passes no host's memory.  Its owner puts things there; whoever was told its address
 * takes them.  What lies there stays as it is until its owner puts something else in its place, or
 * all who have the shelf have closed it or died, in whatever order. */
enum { RB_SHELF_ADDRESS = 64 };
struct rb_shelf;

/* Has this kind of device any? */
bool rb_device_shelves(const struct rb_device *device);

/* One of our own, and what others need to find it while it is open.  RB_EUNSUPPORTED and a
 * sentence: there is no such way here; RB_ENOMEM. */
int rb_shelf_open(struct rb_device *device, size_t bytes, void *ret_address,
                  struct rb_shelf **ret_shelf, struct rb_why *why);

/* That of another process, which has `bytes` too.  RB_EUNSUPPORTED and a sentence: it is on another
 * host, out of this device's reach, or closed. */
int rb_shelf_find(struct rb_device *device, const void *address, size_t bytes,
                  struct rb_shelf **ret_shelf, struct rb_why *why);

/* From memory of the device, piece after piece, to the shelf's bytes from `at` on, and the other
 * way: behind what is queued, and done when they return, as far as rb_device_check finds nothing.
 */
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
 * A GPU is told of each kernel by this process, which may take longer than the kernel.  So what is
 * done again and again can be told once: between rb_tape_start and rb_tape_end the kernels, the
 * rb_device_copy and the rb_fixed_add that the calling thread asks for are not done but kept, and
 * rb_tape_play does them all with one word.  Addresses and sizes are as they were.  What differs
 * from one time to the next is given each time: the key, and for each rb_fixed_add, in their order,
 * where its sums go and how.  The bits are those of asking for each. */
struct rb_tape;
struct rb_fixed;

/* Is anything gained by them here?  On a CPU nothing is. */
bool rb_device_tapes(const struct rb_device *device);

/* `sums`: at most so many rb_fixed_add will be kept. */
int rb_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                  struct rb_why *why);
/* RB_EUNSUPPORTED: something cannot be kept; the tape is worth nothing, and the device is as it was
 * before the start. */
int rb_tape_end(struct rb_tape *tape, struct rb_why *why);
/* false, and nothing is done: there are not as many sums as were kept, or memory of the device's
 * own has moved since; a new tape is needed. */
bool rb_tape_play(struct rb_tape *tape, const struct rb_key *key, const struct rb_fixed *sums,
                  size_t n_sums);
void rb_tape_free(struct rb_tape *tape);

/* ---- Marks ----
 *
 * Places in what is asked of a device, and when it came to them by its own clock: the time that the
 * calling thread has had a core for, so that others on the machine do not count, or a GPU's.  Not
 * while a tape is kept. */
struct rb_marks;

int rb_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                 struct rb_why *why);
/* Behind what was asked for so far; one that was set before is moved. */
void rb_marks_set(struct rb_marks *marks, size_t i);
/* ns from one mark that was set to another; waits until the device has come to both.  0 where
 * rb_device_check has an error. */
double rb_marks_between(struct rb_marks *marks, size_t from, size_t to);
/* Has the device come to one that was set?  Does not wait for it.  true where rb_device_check has
 * an error. */
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

/* The bits that running it and adding its output would give: for kernels that may. */
void rb_kernel_sum(struct rb_kernel *kernel, const void *const *in, const struct rb_fixed *into);

/* ---- Several runs at once ----
 *
 * Runs of one kernel on inputs of their own, RB_KERNEL_EACH at most.  The bits are those of one
 * after the other; what all of them read or add to may be gone through once. */
enum { RB_KERNEL_EACH = 8 };

/* Is anything gained by them? */
bool rb_kernel_gathers(const struct rb_kernel *kernel);

void rb_kernel_run_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        void *const *const *out, const struct rb_key *keys);
void rb_kernel_sum_each(struct rb_kernel *kernel, int n, const void *const *const *in,
                        const struct rb_fixed *into);

/* Sum of squares of sum[i] * 2^-exponent * scale, in double, in a fixed order that depends on n
 * alone. */
void rb_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                      double scale, double *ret_squares);

/* Sums that nobody has written down: each is that of an element of all parts, modulo 2^32, and is
 * made when it is read.  Of memory that has another side on a device there is one part. */
struct rb_sums {
    const int32_t *parts[RB_VIEWS_RANKS];
    int n_parts;
};

static inline struct rb_sums rb_sums_of(const int32_t *sums)
{
    return (struct rb_sums){{sums}, 1};
}

/* One optimizer step on gradients sums[i] * 2^-exponent * scale (scale: 1/count and clipping).
 * ret_squares (may be NULL): on the way, what rb_fixed_squares says of these sums at scale 1. */
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
