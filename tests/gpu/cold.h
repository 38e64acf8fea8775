/* SPDX-License-Identifier: Apache-2.0 */
/* What a process pays before its first step on a GPU, piece by piece: lines of the table of
 * tests/gpu/run.  Each piece is taken again at once: what that takes is paid each time.
 *
 * times > [cold] > kernels/device.h */
#ifndef RB_TESTS_GPU_COLD_H
#define RB_TESTS_GPU_COLD_H

#include "proto/dtype.h"

/* Of the first GPU, which nobody in this process has touched yet; products of such factors. */
void cold_times(enum rb_dtype factors);

#endif
