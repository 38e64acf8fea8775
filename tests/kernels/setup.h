/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of kernels start with: a core as the group's state, and numbers. */
#ifndef RB_TESTS_KERNELS_SETUP_H
#define RB_TESTS_KERNELS_SETUP_H

#include <stdint.h>

/* For cmocka_run_group_tests: *state is a struct rb_device, a core. */
int setup_core(void **state);
int setup_done(void **state);

/* The next number of a fixed sequence, in [-1, 1). */
float setup_draw(uint32_t *seed);

#endif
