/* SPDX-License-Identifier: Apache-2.0 */
/* The little of oneDNN that Rubato uses, behind plain structs.
 *
 * matmul, conv > [onednn] > libdnnl 2.6 (3.x has another interface: onednn*.c alone would change)
 *
 * An operation is prepared once, with everything it needs: the primitive, reorders to and from the
 * blocked layouts it likes, and memory for them.  That is a room that all operations of a device
 * share, or, for an operation that needs much, memory that the caller can spare.  One operation
 * runs at a time, on the caller's thread alone. */
#ifndef RB_KERNELS_CPU_ONEDNN_H
#define RB_KERNELS_CPU_ONEDNN_H

#include "base/error.h"
#include "proto/dtype.h"

#include <stdbool.h>
#include <stddef.h>

/* As wide as oneDNN's own lists of sizes, all of which it may read. */
enum { RB_DNNL_AXES = 12 };

struct rb_dnnl;
struct rb_dnnl_op;

/* The instruction set that oneDNN uses here: "avx512_core_bf16".  Static text. */
const char *rb_dnnl_isa(void);

/* How this processor multiplies bfloat16. */
enum rb_dnnl_bfloat {
    RB_DNNL_BFLOAT_NOT,
    RB_DNNL_BFLOAT_SLOW, /* at about half the speed of float32 */
    RB_DNNL_BFLOAT_FAST,
};
enum rb_dnnl_bfloat rb_dnnl_bfloat(void);

/* Major, minor, patch. */
void rb_dnnl_version(int ret_version[3]);

int rb_dnnl_open(struct rb_dnnl **ret_dnnl, struct rb_why *why);
void rb_dnnl_close(struct rb_dnnl *dnnl);

/* C [batch, m, n] = A [batch, m, k] B [batch, k, n] + bias [n].  A batch axis of size 1 in a or b
 * is broadcast.  Steps are in elements: one for each axis of a and of b.  Factors are RB_F32 or
 * RB_BF16, sums and bias float32; the product is RB_F32, or rounded to RB_BF16.  RB_EUNSUPPORTED
 * where oneDNN has only plain loops for bfloat16. */
struct rb_dnnl_matmul {
    enum rb_dtype factors, product;
    int batch_axes;
    int64_t a_dim[RB_DNNL_AXES], b_dim[RB_DNNL_AXES],
        c_dim[RB_DNNL_AXES]; /* batch axes, rows, columns */
    int64_t a_step[RB_DNNL_AXES], b_step[RB_DNNL_AXES];
    bool bias;
};
/* Addresses for running: a, b, bias or NULL, c. */
int rb_dnnl_matmul(struct rb_dnnl *dnnl, const struct rb_dnnl_matmul *how,
                   struct rb_dnnl_op **ret_op, struct rb_why *why);

/* Memory that the caller can spare while an operation runs: `from` bytes from where the output
 * goes. */
struct rb_dnnl_spare {
    size_t bytes; /* 0: nothing */
    ptrdiff_t from;
};

/* A convolution over 1 to 3 spatial axes; all tensors row-major, x and y perhaps in blocks of
 * channels (proto/blocked.h); types as in a product. */
struct rb_dnnl_conv {
    int spatial;
    int64_t group;
    const struct rb_tensor_type *x, *w, *y; /* N C spatial, M C/group kernel, N M spatial */
    bool x_blocked, y_blocked;
    int64_t strides[RB_DNNL_AXES], dilations[RB_DNNL_AXES], begins[RB_DNNL_AXES],
        ends[RB_DNNL_AXES];
    bool bias;
    struct rb_dnnl_spare spare;
};
enum rb_dnnl_conv_kind {
    RB_DNNL_CONV,        /* addresses: x, w, bias or NULL, y */
    RB_DNNL_CONV_GRAD_X, /* dy, w, dx */
    RB_DNNL_CONV_GRAD_W, /* dy, x, dw */
};
int rb_dnnl_conv(struct rb_dnnl *dnnl, enum rb_dnnl_conv_kind kind, const struct rb_dnnl_conv *how,
                 struct rb_dnnl_op **ret_op, struct rb_why *why);

void rb_dnnl_run(struct rb_dnnl_op *op, void *const *addresses);
/* 0, or why an operation since rb_dnnl_open was not carried out.  Any thread may ask. */
int rb_dnnl_check(struct rb_dnnl *dnnl, struct rb_why *why);
void rb_dnnl_free(struct rb_dnnl_op *op);

#endif
