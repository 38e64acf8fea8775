/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the ways that can run is chosen. */
#include "plan/search/inside.h"

#include "plan/schedule_pipeline.h"

#include <math.h>

static bool same(const struct rb_search_work *work, const struct rb_search_way *a,
                 const struct rb_search_way *b)
{
    return rb_pipeline_stages(a->stages, work->devices) ==
               rb_pipeline_stages(b->stages, work->devices) &&
           rb_search_same_copies(a->copies, b->copies, work->devices);
}

/* The candidate that is kept unless another way is clearly quicker: the one that trains, else data
 * parallelism, with all of the state where that is open, so that a death moves nothing.  NULL: it
 * does not fit. */
static struct rb_search_candidate *find_habit(const struct rb_search_work *work)
{
    struct rb_search *search = work->search;
    struct rb_search_candidate *habit = &search->candidates[work->data];

    for (size_t i = 0; work->how->running && i < search->n; i++)
        if (search->candidates[i].open &&
            same(work, work->how->running, &search->candidates[i].way))
            habit = &search->candidates[i];
    return habit->verdict == RB_SEARCH_RUNS ? habit : NULL;
}

/* Prices are wrong by some per cent. */
void rb_search_choose(const struct rb_search_work *work)
{
    static const double clear = 0.95;
    struct rb_search_candidate *best = find_habit(work);
    double limit = best ? clear * best->seconds : INFINITY;

    for (size_t i = 0; work->open && i < work->search->n; i++) {
        struct rb_search_candidate *one = &work->search->candidates[i];

        if (one->open && one->verdict == RB_SEARCH_RUNS && one->seconds < limit) {
            best = one;
            limit = one->seconds;
        }
    }
    if (best)
        best->verdict = RB_SEARCH_CHOSEN;
}
