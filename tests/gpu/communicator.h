/* SPDX-License-Identifier: Apache-2.0 */
/* What it takes to make a communicator of several processes, and to sum by it: lines of the table
 * of tests/gpu/run.
 *
 * times > [communicator] > kernels/device.h (circles) */
#ifndef RB_TESTS_GPU_COMMUNICATOR_H
#define RB_TESTS_GPU_COMMUNICATOR_H

/* With this process as the first rank and children as the others, each on a device of its number.
 * The exit status. */
int communicator_times(int ranks);

#endif
