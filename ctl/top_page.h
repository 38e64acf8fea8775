/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the screen of `top`, and what they share.
 *
 * top_view > [top_page]: top_all, top_job > lines
 *
 * Pure. */
#ifndef RB_CTL_TOP_PAGE_H
#define RB_CTL_TOP_PAGE_H

#include "ctl/top_view.h"

struct rb_top_page {
    const struct rb_top_seen *seen;
    int width, height; /* of the terminal */
    bool blocks;
    struct rb_lines *out;
};

/* Lines that are left, minus `kept` lines for other parts. */
int rb_top_room(const struct rb_top_page *page, int kept);

void rb_top_blank(const struct rb_top_page *page);
void rb_top_trouble(const struct rb_top_page *page); /* if there is any */

void rb_top_all(const struct rb_top_page *page); /* jobs and nodes */
void rb_top_job(const struct rb_top_page *page); /* one job */

#endif
