/* SPDX-License-Identifier: Apache-2.0 */
/* Why a candidate is chosen, or what it has against it. */
#include "plan/search/inside.h"

#include "base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct rb_search_candidate *find_chosen(const struct rb_search *search)
{
    for (size_t i = 0; i < search->n; i++)
        if (search->candidates[i].verdict == RB_SEARCH_CHOSEN)
            return &search->candidates[i];
    return NULL;
}

/* Fewer devices that are quicker, of halves and their halves; 0: none. */
static uint32_t find_quicker(const struct rb_search_work *work, double *seconds)
{
    const struct rb_search_how *how = work->how;
    RB_CLEANUP(rb_freep) uint32_t *shares = rb_alloc(work->devices * sizeof *shares);
    uint32_t found = 0;

    for (uint32_t n = work->devices / 2; n; n /= 2) {
        struct rb_predict_how step = {how->model, how->cluster, how->profile, n, shares, 0};
        struct rb_predict_step one;

        rb_search_even(work, n, shares);
        if (rb_predict_data(&step, &one, NULL))
            continue;
        rb_simulate_free(one.simulate);
        if (one.seconds < *seconds) {
            *seconds = one.seconds;
            found = n;
        }
    }
    return found;
}

/* "12.3 % slower" */
static void compare(double seconds, double chosen, char *text, size_t room)
{
    double ratio = seconds / chosen;

    if (fabs(ratio - 1) < 0.0005)
        snprintf(text, room, "as fast");
    else
        snprintf(text, room, "%.1f %% %s", 100 * fabs(ratio - 1), ratio > 1 ? "slower" : "faster");
}

/* Of a pipeline that is chosen. */
static void explain_stages(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    char speed[32] = "", rest[64] = "parallel.pipeline says so";

    if (!work->pinned) {
        compare(work->search->candidates[work->data].seconds, one->seconds, speed, sizeof speed);
        snprintf(rest, sizeof rest, "data parallelism is %s", speed);
    }
    rb_search_say(one, "what a submit runs: %s; devices wait %.0f %% of the step", rest,
                  100 * one->idle);
}

static void explain(const struct rb_search_work *work, struct rb_search_candidate *one,
                    const struct rb_search_candidate *chosen)
{
    char speed[32] = "", rest[sizeof one->reason] = "";

    if (one->verdict == RB_SEARCH_CHOSEN && one->stages) {
        explain_stages(work, one);
        return;
    }
    if (one->verdict == RB_SEARCH_CHOSEN) {
        double quickest = one->seconds;
        uint32_t fewer = find_quicker(work, &quickest);

        if (fewer)
            snprintf(rest, sizeof rest, "; %" PRIu32 " device%s would take %.4g ms", fewer,
                     fewer == 1 ? "" : "s", 1e3 * quickest);
        rb_search_say(
            one,
            "what a submit runs: %s; computing %.0f %% of the step, sums %.0f %%, update %.0f "
            "%%%.60s",
            work->how->spec->state && work->how->spec->state->replicas ? "state.replicas says so"
            : work->chosen ? "all of the state would not fit"
                           : "it fits, and a death loses nothing",
            100 * one->computing / one->seconds, 100 * one->summing / one->seconds,
            100 * (one->updating + one->gathering) / one->seconds, rest);
        return;
    }
    if (!chosen || one->verdict == RB_SEARCH_MISFIT)
        return;
    compare(one->seconds, chosen->seconds, speed, sizeof speed);
    if (one->verdict == RB_SEARCH_RUNS && !one->reason[0])
        snprintf(rest, sizeof rest, "%.0f %% of the memory; pin state.replicas to have it",
                 100 * one->memory / chosen->memory);
    else
        snprintf(rest, sizeof rest, "%s", one->reason);
    rb_search_say(one, "%s; %.200s", speed, rest);
}

void rb_search_explain(const struct rb_search_work *work)
{
    struct rb_search *search = work->search;
    const struct rb_search_candidate *chosen = find_chosen(search);

    for (size_t i = 0; i < search->n; i++)
        explain(work, &search->candidates[i], chosen);
}
