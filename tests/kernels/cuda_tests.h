/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the CUDA backend by subject; cuda_test.c runs them.  *state is an open device. */
#ifndef RB_TESTS_KERNELS_CUDA_TESTS_H
#define RB_TESTS_KERNELS_CUDA_TESTS_H

#include "kernels/device.h"

void *cuda_get(struct rb_device *device, size_t bytes); /* the memory; the test fails without it */

/* A kernel by its case (case.h), which must not be refused; and a check that its results are those
 * of the reference, wherever its tensors lie. */
struct rb_kernel *cuda_prepare(struct rb_device *device, const char *text);
void cuda_check(struct rb_device *device, struct rb_kernel *kernel, const char *text,
                uint64_t seed);

/* cuda_kernels.c */
void convolutions_come_in_tiles(void **state);
void products_round_behind_a_bias(void **state);
void a_relu_may_be_late(void **state);
void a_relu_behind_a_nan_is_told(void **state);
void a_scatter_keeps_a_nan(void **state);
void what_is_not_there_shows(void **state);
void a_stray_class_shows(void **state);
void limits_are_kept(void **state);
void scratch_is_kept(void **state);

/* cuda_memory.c */
void memory_has_two_sides(void **state);
void what_goes_wrong_is_kept(void **state);
void large_copies_are_whole(void **state);
void pushes_keep_their_place(void **state);
void copies_keep_their_place(void **state);
void large_pushes_keep_their_place(void **state);

/* cuda_sums.c */
void fixed_sums_are_the_references(void **state);
void squares_depend_on_n_alone(void **state);
void adamw_is_pytorchs(void **state);
void sgd_is_pytorchs(void **state);
void statistics_decay(void **state);

/* cuda_tapes.c */
void a_tape_does_what_asking_does(void **state);
void a_copy_is_not_kept(void **state);
void tapes_can_be_unwanted(void **state);
void marks_have_times(void **state);

/* cuda_circles.c */
void circles_sum_and_end(void **state);
void circles_sum_for_some(void **state);
void circles_move(void **state);
void circles_shrink(void **state);

#endif
