/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated step as a picture: which lane computes, sends and waits, and when.
 *
 * simulate > [timeline] > SVG */
#ifndef RB_PLAN_SIMULATE_TIMELINE_H
#define RB_PLAN_SIMULATE_TIMELINE_H

#include "base/buffer.h"
#include "plan/simulate/simulate.h"

/* One row a lane, RB_TIMELINE_LANES at most; what is not coloured is waiting.  `title` is
 * escaped. */
enum { RB_TIMELINE_LANES = 64 };
void rb_timeline_svg(const struct rb_simulate *simulate, const char *title, struct rb_buffer *out);

#endif
