/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN from inside: for onednn*.c alone.
 *
 * [onednn_matmul, onednn_conv]: which primitive, with which layouts > onednn: ready to run */
#ifndef RB_KERNELS_CPU_ONEDNN_INSIDE_H
#define RB_KERNELS_CPU_ONEDNN_INSIDE_H

#include "kernels/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>

/* oneDNN's status as an error with a sentence. */
int rb_dnnl_status(dnnl_status_t code, const char *what, struct rb_why *why);

/* Layouts in which callers have their tensors: with steps in elements, row-major, and as oneDNN
 * names it. */
int rb_dnnl_strided(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                    const int64_t *steps, struct rb_why *why);
int rb_dnnl_plain(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                  struct rb_why *why);
int rb_dnnl_tagged(dnnl_memory_desc_t *md, enum rb_dtype dtype, int rank, const int64_t *dims,
                   dnnl_format_tag_t tag, struct rb_why *why);

/* What an operation is made from: its arguments' names with the caller's layouts. */
struct rb_dnnl_wanted {
    int name;    /* DNNL_ARG_... */
    int address; /* index into the addresses of rb_dnnl_run */
    bool output;
    const dnnl_memory_desc_t *layout; /* NULL: it is not there */
};

/* A primitive for op_desc; `hint`: for a gradient, its forward operation; or NULL. */
int rb_dnnl_describe(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                     const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *ret_desc,
                     struct rb_why *why);
int rb_dnnl_op_new(struct rb_dnnl *dnnl, const_dnnl_op_desc_t op_desc,
                   const_dnnl_primitive_desc_t hint, const struct rb_dnnl_wanted *wanted, int n,
                   struct rb_dnnl_spare spare, struct rb_dnnl_op **ret_op, struct rb_why *why);

/* Has oneDNN nothing but plain loops for it? */
bool rb_dnnl_op_slow(const struct rb_dnnl_op *op);
/* Frees it if so and the factors are bfloat16: plain loops are slower than float32 copies are. */
int rb_dnnl_refuse_slow(struct rb_dnnl_op **op, enum rb_dtype factors, struct rb_why *why);

#endif
