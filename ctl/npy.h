/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a NumPy file: version 1, little-endian, C order.
 *
 * model run > [npy] > file */
#ifndef RB_CTL_NPY_H
#define RB_CTL_NPY_H

#include "base/buffer.h"
#include "base/error.h"
#include "proto/dtype.h"

/* The header: 64-byte aligned, as NumPy writes it.  RB_EUNSUPPORTED for a type that NumPy lacks. */
int rb_npy_header(const struct rb_tensor_type *type, struct rb_buffer *out, struct rb_why *why);

int rb_npy_write(const char *path, const struct rb_tensor_type *type, const void *data,
                 struct rb_why *why);

#endif
