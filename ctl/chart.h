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

/* A bar that fills `part` (0 to 1) of `width` cells. */
void rb_chart_bar(double part, int width, bool blocks, struct rb_buffer *out);

/* A curve of the losses of all rows, `height` lines high and up to `width` cells wide, the numbers
 * beside it included.  Where there are more rows than columns, several rows share a column, which
 * shows their mean; `!` marks a loss that is no number.  Below the curve are the steps, and the
 * number of devices of each part. */
void rb_chart_losses(const struct rb_history *history, int width, int height, bool blocks,
                     struct rb_lines *out);

#endif
