/* SPDX-License-Identifier: Apache-2.0 */
/* Fused operators against the same operators one by one, on one device: equal to the bit.  For
 * tests of all devices. */
#ifndef RB_TESTS_KERNELS_CHAIN_H
#define RB_TESTS_KERNELS_CHAIN_H

#include "kernels/device.h"

/* Check every operator that a step may have. */
void rb_chain_check_each(struct rb_device *device);

/* Check random programs, of shapes, types and lengths of all kinds. */
void rb_chain_check_many(struct rb_device *device, int n);

/* Check that invalid programs are refused. */
void rb_chain_check_refusals(struct rb_device *device);

#endif
