/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of device is made of: one table of functions, found by name.
 *
 * device.c > [backend] > cpu | cuda
 *
 * device.c has checked a call before `prepare` sees it: operator, attribute keys, counts of inputs
 * and outputs, types and sizes (rb_call_check).  Whether shapes fit each other is judged by the
 * CPU: another backend sees only calls that the CPU has accepted. */
#ifndef RB_KERNELS_BACKEND_H
#define RB_KERNELS_BACKEND_H

#include "kernels/device.h"

struct rb_device_ops {
    const char *kind;
    /* As rb_device_count and rb_device_describe. */
    int (*count)(int *ret_count, struct rb_why *why);
    int (*describe)(int index, struct rb_device_about *ret_about, struct rb_why *why);
    int (*open)(int index, struct rb_device **ret_device, struct rb_why *why);
    void (*close)(struct rb_device *device);
    /* Zeroed and at least 64-byte aligned, or NULL; `release` takes NULL too. */
    void *(*alloc)(struct rb_device *device, size_t bytes);
    /* Both are NULL where no memory can be shown. */
    void *(*alloc_shown)(struct rb_device *device, size_t bytes);
    int (*shown)(struct rb_device *device, const void *memory);
    void (*release)(struct rb_device *device, void *memory);
    void (*discard)(struct rb_device *device, void *memory, size_t bytes);
    /* NULL where all memory is taken at once. */
    void (*expect)(struct rb_device *device, void *memory, size_t bytes,
                   const struct rb_extent *extents, size_t n);
    /* NULL where the host's memory is the device's. */
    void (*pull)(struct rb_device *device, void *memory, size_t bytes);
    void (*push)(struct rb_device *device, void *memory, size_t bytes);
    void (*copy)(struct rb_device *device, void *to, const void *from, size_t bytes);
    int (*check)(struct rb_device *device, struct rb_why *why);
    /* Does all that may fail, and sets the kernel's run and free. */
    int (*prepare)(struct rb_device *device, const struct rb_call *call,
                   struct rb_kernel **ret_kernel, struct rb_why *why);
    /* As rb_tape_*; NULL where nothing is gained by tapes. */
    int (*tape_start)(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                      struct rb_why *why);
    int (*tape_end)(struct rb_tape *tape, struct rb_why *why);
    bool (*tape_play)(struct rb_tape *tape, const struct rb_key *key, const struct rb_fixed *sums,
                      size_t n_sums);
    void (*tape_free)(struct rb_tape *tape);
    /* As rb_circle_*; NULL where devices have no way to each other. */
    int (*circle_ticket)(struct rb_device *device, void *ret_ticket, struct rb_why *why);
    int (*circle_enter)(struct rb_device *device, const void *ticket, int rank, int size,
                        struct rb_circle **ret_circle, struct rb_why *why);
    int (*circle_ready)(struct rb_circle *circle, bool *ret_ready, struct rb_why *why);
    int (*circle_sum)(struct rb_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why);
    int (*circle_move)(struct rb_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why);
    void (*circle_leave)(struct rb_circle *circle);
    void (*circle_stop)(struct rb_circle *circle);
    int (*circle_shrink)(struct rb_circle *circle, const int *gone, int n,
                         struct rb_circle **ret_circle, struct rb_why *why);
    /* As rb_shelf_*; NULL where devices cannot take from each other.  put and take get ranges that
     * lie on the shelf. */
    int (*shelf_open)(struct rb_device *device, size_t bytes, void *ret_address,
                      struct rb_shelf **ret_shelf, struct rb_why *why);
    int (*shelf_find)(struct rb_device *device, const void *address, size_t bytes,
                      struct rb_shelf **ret_shelf, struct rb_why *why);
    void (*shelf_put)(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n);
    void (*shelf_take)(struct rb_shelf *shelf, size_t at, const struct iovec *to, int n);
    void (*shelf_close)(struct rb_shelf *shelf);
    /* As rb_marks_*; marks_reached is NULL where all work is done at once. */
    int (*marks_new)(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                     struct rb_why *why);
    void (*marks_set)(struct rb_marks *marks, size_t i);
    double (*marks_between)(struct rb_marks *marks, size_t from, size_t to);
    bool (*marks_reached)(struct rb_marks *marks, size_t i);
    void (*marks_free)(struct rb_marks *marks);
    /* As in device.h. */
    void (*fixed_add)(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                      float weight, int exponent, int32_t limit, uint32_t *largest, bool *overflow);
    void (*fixed_squares)(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                          double scale, double *ret_squares);
    void (*apply_adamw)(struct rb_device *device, float *w, float *m, float *v, struct rb_sums sums,
                        size_t n, int exponent, float scale, const struct rb_adamw *how,
                        double *ret_squares);
    void (*apply_sgd)(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                      int exponent, float scale, const struct rb_sgd *how, double *ret_squares);
    void (*predict)(struct rb_device *device, float *out, const float *w, const float *m,
                    const float *v, size_t n, const struct rb_predict *how);
    void (*apply_statistic)(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                            int exponent, float keep);
};

/* The first member of a backend's own device. */
struct rb_device {
    const struct rb_device_ops *ops;
    struct rb_device *checker; /* device.c's: a CPU that says which calls fit; NULL on a CPU */
};

/* The first member of a backend's own kernel. */
struct rb_kernel {
    void (*run)(struct rb_kernel *kernel, const void *const *in, void *const *out,
                const struct rb_key *key);
    void (*free)(struct rb_kernel *kernel);
    /* As rb_kernel_sum; NULL where there is no shorter way. */
    void (*sum)(struct rb_kernel *kernel, const void *const *in, const struct rb_fixed *into);
    /* As rb_kernel_run_each and rb_kernel_sum_each; NULL where nothing is gained.  `each` is called
     * for runs that share the inputs 1 to `shared`. */
    int shared;
    void (*each)(struct rb_kernel *kernel, int n, const void *const *const *in,
                 void *const *const *out, const struct rb_key *keys);
    void (*sum_each)(struct rb_kernel *kernel, int n, const void *const *const *in,
                     const struct rb_fixed *into);
};

/* The first member of a backend's own tape. */
struct rb_tape {
    const struct rb_device_ops *ops;
};

/* And of its circle, and its shelf. */
struct rb_circle {
    const struct rb_device_ops *ops;
};

struct rb_shelf {
    const struct rb_device_ops *ops;
};

/* And of its marks. */
struct rb_marks {
    const struct rb_device_ops *ops;
};

extern const struct rb_device_ops rb_cpu_ops;

/* Static text. */
const char *rb_cpu_numeric_class(void);

#endif
