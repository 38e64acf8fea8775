/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RB_TESTS_KERNELS_LOOPS_H
#define RB_TESTS_KERNELS_LOOPS_H

enum { LOOPS_FUNCTIONS = 10, LOOPS_SUMS = 5 };

/* n numbers in; n results of each function and of each sum out. */
void loops_v1(const float *x, float *y, int n);
void loops_v3(const float *x, float *y, int n);
void loops_v4(const float *x, float *y, int n);

#endif
