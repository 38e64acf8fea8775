/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of metrics as a file of events that TensorBoard shows as curves.
 *
 * metrics > [tensorboard] > FOLDER/events.out.tfevents.SECONDS.JOB
 *
 * The file follows from the rows alone, byte for byte: a file that is written anew begins with the
 * same bytes, so a TensorBoard that reads it meanwhile notices nothing.  Where a file ends in the
 * middle of a record, TensorBoard takes the records before it. */
#ifndef RB_CTL_TENSORBOARD_H
#define RB_CTL_TENSORBOARD_H

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

/* ---- Bytes ---- */

/* CRC-32C (Castagnoli), the checksum of records. */
uint32_t rb_crc32c(const void *bytes, size_t size);

/* The beginning of a file; time: ms since 1970. */
void rb_tensorboard_begin(int64_t time, struct rb_buffer *out);

/* An event with a point for each known column that has a number in this row. */
void rb_tensorboard_row(const json_t *columns, const json_t *row, struct rb_buffer *out);

/* ---- The file ---- */

struct rb_tensorboard {
    const char *folder, *job;
    char *path; /* NULL: there is no row yet, and no file */
    int fd;
    int64_t rows, first, last; /* first, last: steps */
};

/* Append the rows of one reply. */
int rb_tensorboard_add(struct rb_tensorboard *board, const json_t *columns, const json_t *rows,
                       struct rb_why *why);
void rb_tensorboard_done(struct rb_tensorboard *board);

#endif
