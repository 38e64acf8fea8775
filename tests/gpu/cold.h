/* SPDX-License-Identifier: Apache-2.0 */
/* What a process pays before its first step on a GPU, piece by piece: lines of the table of
 * tests/gpu/run.  Each piece is measured a second time at once: that time is paid each time.
 *
 * times > [cold] > kernels/device.h */
#ifndef RB_TESTS_GPU_COLD_H
#define RB_TESTS_GPU_COLD_H

#include "proto/dtype.h"

/* Times of the first GPU, which this process must not have used yet; for products of these
 * factors. */
void cold_times(enum rb_dtype factors);

#endif
