/* SPDX-License-Identifier: Apache-2.0 */
/* The two clocks.  Pure parts never call these: they are given the time. */
#ifndef RB_BASE_CLOCK_H
#define RB_BASE_CLOCK_H

#include <stdint.h>

uint64_t rb_clock_ns(void);      /* monotonic */
uint64_t rb_clock_unix_ms(void); /* wall */

#endif
