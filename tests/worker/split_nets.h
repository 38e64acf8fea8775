/* SPDX-License-Identifier: Apache-2.0 */
/* Nets whose layers are added and put together in other ways, on 3 x 8 x 8 images, as ONNX. */
#ifndef RB_TESTS_WORKER_SPLIT_NETS_H
#define RB_TESTS_WORKER_SPLIT_NETS_H

struct rb_buffer;

/* Blocks with norms: identities in a row, a block with a stride and a convolution in its shortcut,
 * and one with norm and Relu in front, of two convolutions; filters come in blocks of channels. */
void split_nets_residual(struct rb_buffer *ret_onnx);

/* A difference with a grouped convolution, a gate of one number a filter, an activation that is
 * read as it is and pooled, filters behind each other, and neurons with their shortcut. */
void split_nets_gated(struct rb_buffer *ret_onnx);

/* Branches that are flattened and then put behind each other, with as many elements a filter as
 * each branch has, and added to others like them; logits whose summands do not go together, which
 * only the loss reads. */
void split_nets_branches(struct rb_buffer *ret_onnx);

/* Activations that are read as they are and flattened, one of them twice. */
void split_nets_pooled(struct rb_buffer *ret_onnx);

/* Nets that are refused: with a trained number a filter, with a Dropout in front of the loss alone,
 * and with a product whose neurons are columns of its weight. */
void split_nets_scaled(struct rb_buffer *ret_onnx);
void split_nets_dropped(struct rb_buffer *ret_onnx);
void split_nets_columns(struct rb_buffer *ret_onnx);

#endif
