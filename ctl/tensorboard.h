/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of metrics as a file of events that TensorBoard shows as curves.
 *
 * metrics > [tensorboard] > FOLDER/events.out.tfevents.SECONDS.JOB
 *
 * The file follows from the rows alone, byte for byte: written anew it is the same as far as it
 * goes, so that a TensorBoard that reads it meanwhile notices nothing.  Of what ends in the middle
 * of a record TensorBoard takes the records before. */
#ifndef RB_CTL_TENSORBOARD_H
#define RB_CTL_TENSORBOARD_H

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/* ---- Bytes ---- */

/* CRC-32C (Castagnoli), as records have it. */
uint32_t rb_crc32c(const void *bytes, size_t size);

/* What a file begins with; time: ms since 1970. */
void rb_tensorboard_begin(int64_t time, struct rb_buffer *out);

/* An event with a curve's point for each column that is known and has a number here. */
void rb_tensorboard_row(const json_t *columns, const json_t *row, struct rb_buffer *out);

/* ---- The file ---- */

struct rb_tensorboard {
    const char *folder, *job;
    char *path; /* NULL: there was no row yet, and there is no file */
    int fd;
    int64_t rows, first, last; /* first, last: steps */
};

/* Rows of one reply, behind those before. */
int rb_tensorboard_add(struct rb_tensorboard *board, const json_t *columns, const json_t *rows,
                       struct rb_why *why);
void rb_tensorboard_done(struct rb_tensorboard *board);

#endif
