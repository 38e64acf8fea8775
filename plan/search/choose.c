/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the ways that run is run. */
#include "plan/search/inside.h"

#include "plan/schedule_pipeline.h"

#include <math.h>

static struct rb_search_candidate *find_stages(const struct rb_search *search, uint32_t stages)
{
    for (size_t i = 0; i < search->n; i++)
        if (search->candidates[i].stages == stages)
            return &search->candidates[i];
    return NULL;
}

/* What is kept unless another way is clearly quicker: what trains, else data parallelism.  NULL: it
 * does not fit. */
static struct rb_search_candidate *find_habit(const struct rb_search_work *work)
{
    const uint32_t *running = work->how->running;
    uint32_t stages = running ? rb_pipeline_stages(*running, work->devices) : 0;
    struct rb_search_candidate *habit = stages ? find_stages(work->search, stages) : NULL;

    if (!habit)
        habit = &work->search->candidates[work->data];
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
        bool open = one->stages || i == work->data; /* not another number of replicas */

        if (open && one->verdict == RB_SEARCH_RUNS && one->seconds < limit) {
            best = one;
            limit = one->seconds;
        }
    }
    if (best)
        best->verdict = RB_SEARCH_CHOSEN;
    if (best && best->stages)
        rb_search_say(&work->search->candidates[work->data],
                      "pin spec.parallel.pipeline: 1 to have it");
}
