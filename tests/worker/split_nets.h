/* SPDX-License-Identifier: Apache-2.0 */
/* Nets whose layers are added and put together in other ways, on 3 x 8 x 8 images, as ONNX. */
#ifndef RB_TESTS_WORKER_SPLIT_NETS_H
#define RB_TESTS_WORKER_SPLIT_NETS_H

struct rb_buffer;

/* Blocks with norms: identities in a row, a block with a stride and a convolution beside it, and
 * one with norm and Relu in front, of two convolutions; filters come in blocks of channels. */
void split_nets_residual(struct rb_buffer *ret_onnx);

/* A difference with a grouped convolution, a gate of one number a filter, an activation that is
 * read as it is and pooled, filters behind each other, and neurons with their shortcut. */
void split_nets_gated(struct rb_buffer *ret_onnx);

#endif
