/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks.  Pure parts never read them: they are given the time. */
#ifndef RB_BASE_CLOCK_H
#define RB_BASE_CLOCK_H

#include <stdint.h>

uint64_t rb_clock_ns(void);      /* monotonic */
uint64_t rb_clock_unix_ms(void); /* wall */

/* How long the calling thread has had a core: other threads and processes do not count. */
uint64_t rb_clock_thread_ns(void);

/* The time of day that a wall clock showed at `unix_ms`: "14:30:05 UTC".  Returns `ret`. */
enum { RB_CLOCK_TEXT = 16 };
char *rb_clock_text(uint64_t unix_ms, char ret[RB_CLOCK_TEXT]);

#endif
