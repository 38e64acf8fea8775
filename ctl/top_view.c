/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_view.h"

#include "base/error.h"
#include "ctl/top_page.h"

int rb_top_room(const struct rb_top_page *page, int kept)
{
    const int left = page->height - (int)page->out->n - kept;

    return left > 0 ? left : 0;
}

void rb_top_blank(const struct rb_top_page *page)
{
    rb_lines_add(page->out, RB_LOOK_PLAIN, "%s", "");
}

void rb_top_trouble(const struct rb_top_page *page)
{
    if (page->seen->trouble)
        rb_lines_add(page->out, RB_LOOK_BAD, "%s", page->seen->trouble);
}

static void view_help(const struct rb_top_page *page)
{
    static const char *const lines[] = {
        "up, k; down, j     choose a job",
        "enter              look at it",
        "s                  order jobs by age, name, phase, step, devices",
        "q                  back, or leave",
        "ctrl-c             leave, at once also while rubatod is silent",
        "",
        "The losses are those of the newest steps, means where there are more steps than columns;",
        "'!' is a loss that is no number.  Below it is on how many devices they were done.  A",
        "device's bar is how much of a step it computes; the rest is all else: exchange, update,",
        "waiting.",
        "",
        "Nothing here changes a job: grow, shrink, pause and others are verbs of rubatoctl.",
        "",
    };

    rb_lines_add(page->out, RB_LOOK_HEAD, "rubatoctl top");
    rb_top_blank(page);
    for (size_t i = 0; i < RB_COUNT(lines); i++)
        rb_lines_add(page->out, RB_LOOK_PLAIN, "%s", lines[i]);
    rb_lines_add(page->out, RB_LOOK_TALK, "any key: back");
}

void rb_top_view(const struct rb_top_seen *seen, int width, int height, bool blocks,
                 struct rb_lines *out)
{
    const struct rb_top_page page = {seen, width, height, blocks, out};

    if (seen->help)
        view_help(&page);
    else if (seen->job)
        rb_top_job(&page);
    else
        rb_top_all(&page);
    rb_lines_cut(out, width, height);
}
