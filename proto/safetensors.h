/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors, byte for byte the same for the same tensors.
 *
 * worker (checkpoints, exports), plan (initial weights) > [safetensors] > file
 *
 * u64 little-endian header size, JSON header padded with spaces to a multiple of 8, data.  Tensors
 * lie in the order of decreasing element size, then name, as the reference writer puts them; no
 * time, no host, no job name. */
#ifndef RB_PROTO_SAFETENSORS_H
#define RB_PROTO_SAFETENSORS_H

#include "base/buffer.h"
#include "base/error.h"
#include "proto/dtype.h"

#include <stdint.h>

struct rb_safetensor {
    const char *name;
    struct rb_tensor_type type;
    const void *data;
};

/* A line of the header's `__metadata__`. */
struct rb_safetensor_note {
    const char *key, *text;
};

/* The order of the file: sorts `tensors` in place, appends size and header to `out`.  The data of
 * the tensors follow in that order, back to back. */
void rb_safetensors_header(struct rb_safetensor *tensors, int n, struct rb_buffer *out);

/* Header and data to an open file descriptor; fsyncs.  notes: written in their order, no key twice.
 * RB_EFULL on a full disk. */
int rb_safetensors_write(int fd, struct rb_safetensor *tensors, int n,
                         const struct rb_safetensor_note *notes, int n_notes, uint64_t *ret_bytes,
                         struct rb_why *why);

/* Read a file that nobody has to trust: sizes, overlaps, holes and duplicates are checked.  The
 * data point into `bytes`, in the order of the file, and may be unaligned (foreign writers need not
 * pad): copy with memcpy.  Free *ret_tensors (one allocation, names included) with free. */
int rb_safetensors_read(const void *bytes, size_t size, struct rb_safetensor **ret_tensors,
                        int *ret_n, struct rb_why *why);

/* The file's notes, in the order of their keys; no notes is no error.  Free *ret_notes (one
 * allocation) with free. */
int rb_safetensors_notes(const void *bytes, size_t size, struct rb_safetensor_note **ret_notes,
                         int *ret_n, struct rb_why *why);

#endif
