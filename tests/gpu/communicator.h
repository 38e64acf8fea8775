/* SPDX-License-Identifier: Apache-2.0 */
/* The time to make a communicator of several processes, and to sum by it: lines of the table of
 * tests/gpu/run.
 *
 * times > [communicator] > kernels/device.h (circles) */
#ifndef RB_TESTS_GPU_COMMUNICATOR_H
#define RB_TESTS_GPU_COMMUNICATOR_H

/* This process is the first rank and children are the others, each on the device of its number.
 * Returns the exit status. */
int communicator_times(int ranks);

#endif
