/* SPDX-License-Identifier: Apache-2.0 */
/* Bars and curves out of characters.
 *
 * top_view > [chart] > lines
 *
 * Pure.  With `blocks` of Unicode's block elements, eight to a cell; without, of ASCII alone. */
#ifndef RB_CTL_CHART_H
#define RB_CTL_CHART_H

#include "base/buffer.h"
#include "ctl/history.h"
#include "ctl/lines.h"

#include <stdbool.h>

/* So much of `width` cells: part 0 to 1. */
void rb_chart_bar(double part, int width, bool blocks, struct rb_buffer *out);

/* The losses of all rows, `height` lines high and up to `width` cells wide with the numbers beside
 * it; several rows share a column where there are more of them, which shows their mean, and `!` a
 * loss that is no number.  Below it from which steps, and on how many devices each part was done.
 */
void rb_chart_losses(const struct rb_history *history, int width, int height, bool blocks,
                     struct rb_lines *out);

#endif
