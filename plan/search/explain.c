/* SPDX-License-Identifier: Apache-2.0 */
/* Why a candidate is chosen, or what speaks against it. */
#include "plan/search/inside.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/schedule_pipeline.h"

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

/* A number of fewer devices that is quicker, of a half, a quarter, ...; 0: none. */
static uint32_t find_quicker(const struct rb_search_work *work, double *seconds)
{
    const struct rb_search_how *how = work->how;
    RB_CLEANUP(rb_freep) uint32_t *shares = rb_alloc(work->devices * sizeof *shares);
    uint32_t found = 0;

    for (uint32_t n = work->devices / 2; n; n /= 2) {
        struct rb_predict_how step = {how->model, how->cluster, how->profile, n, shares, 0};
        struct rb_predict_step one;

        struct rb_search_candidate fewer = {.verdict = RB_SEARCH_RUNS,
                                            .memory = (double)rb_footprint_bytes(how->model, 0, n)};

        rb_search_check_memory(work, &fewer);
        rb_search_even(work, n, shares);
        if (fewer.verdict == RB_SEARCH_MISFIT || rb_predict_data(&step, &one, NULL))
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

/* The quickest data-parallel candidate that fits and may be chosen; NULL: there is none. */
static const struct rb_search_candidate *find_data(const struct rb_search_work *work)
{
    const struct rb_search_candidate *best = NULL;

    for (size_t i = 0; i < work->search->n; i++) {
        const struct rb_search_candidate *one = &work->search->candidates[i];

        if (one->open && !one->way.stages && one->verdict != RB_SEARCH_MISFIT &&
            (!best || one->seconds < best->seconds))
            best = one;
    }
    return best;
}

/* "data parallelism is 12.3 % slower" */
static void beside(const char *what, const struct rb_search_candidate *other, double seconds,
                   char *text, size_t room)
{
    char speed[32] = "";

    if (other && other->verdict != RB_SEARCH_MISFIT) {
        compare(other->seconds, seconds, speed, sizeof speed);
        snprintf(text, room, "%s is %s", what, speed);
    } else {
        snprintf(text, room, "%s does not fit", what);
    }
}

/* "; 2 devices would take 18.6 ms" */
static void tell_quicker(const struct rb_search_work *work, const struct rb_search_candidate *one,
                         char *text, size_t room)
{
    double quickest = one->seconds;
    uint32_t fewer = find_quicker(work, &quickest);

    if (fewer)
        snprintf(text, room, "; %" PRIu32 " device%s would take %.4g ms", fewer,
                 fewer == 1 ? "" : "s", 1e3 * quickest);
}

static void explain_stages(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    char rest[80] = "parallel.pipeline says so", quicker[64] = "";

    if (!work->pinned)
        beside("data parallelism", find_data(work), one->seconds, rest, sizeof rest);
    tell_quicker(work, one, quicker, sizeof quicker);
    rb_search_say(one, "what a submit runs: %s; devices wait %.0f %% of the step%s", rest,
                  100 * one->idle, quicker);
}

/* Why data parallelism has as much of the state on a device as it has. */
static void explain_state(const struct rb_search_work *work, const struct rb_search_candidate *one,
                          char *text, size_t room)
{
    const struct rb_search_candidate *data = &work->search->candidates[work->data];

    if (one->open && one != data)
        beside("all of the state everywhere", data, one->seconds, text, room);
    else
        snprintf(text, room, "%s",
                 !rb_footprint_open(work->how->spec, 0) ? "state.replicas says so"
                 : work->copies[0]                      ? "all of the state would not fit"
                                                        : "it fits, and a death moves nothing");
}

static void explain_data(const struct rb_search_work *work, struct rb_search_candidate *one)
{
    char state[80] = "", quicker[64] = "";

    explain_state(work, one, state, sizeof state);
    tell_quicker(work, one, quicker, sizeof quicker);
    rb_search_say(one,
                  "what a submit runs: %s; computing %.0f %% of the step, sums %.0f %%, update "
                  "%.0f %%%s",
                  state, 100 * one->computing / one->seconds, 100 * one->summing / one->seconds,
                  100 * (one->updating + one->gathering) / one->seconds, quicker);
}

/* The pins by which a job file asks for this way.  A pin of the stages or of the replicas leaves
 * the other as a submit has it. */
static void find_pins(const struct rb_search_work *work, const struct rb_search_candidate *one,
                      char *text, size_t room)
{
    const struct rb_search_way *way = &one->way;
    bool kind = way->stages || !rb_pipeline_pinned(work->how->spec);
    bool state = !rb_search_same_copies(way->copies, work->copies[0], work->devices);
    int used = snprintf(text, room, "pin");

    if (kind)
        used += snprintf(text + used, room - (size_t)used, " spec.parallel.pipeline: %" PRIu32 "%s",
                         way->stages ? way->stages : 1, state ? " and" : "");
    if (state && way->copies)
        used += snprintf(text + used, room - (size_t)used, " spec.state.replicas: %" PRIu32,
                         way->copies);
    else if (state)
        used += snprintf(text + used, room - (size_t)used, " spec.state.replicas: all");
    snprintf(text + used, room - (size_t)used, " to have it");
}

static void explain(const struct rb_search_work *work, struct rb_search_candidate *one,
                    const struct rb_search_candidate *chosen)
{
    char speed[32] = "", rest[sizeof one->reason] = "", pins[120] = "";

    if (one->verdict == RB_SEARCH_CHOSEN && one->way.stages) {
        explain_stages(work, one);
        return;
    }
    if (one == chosen) {
        explain_data(work, one);
        return;
    }
    if (!chosen || one->verdict == RB_SEARCH_MISFIT)
        return;
    compare(one->seconds, chosen->seconds, speed, sizeof speed);
    find_pins(work, one, pins, sizeof pins);
    if (one->verdict == RB_SEARCH_RUNS && !one->reason[0])
        snprintf(rest, sizeof rest, "%.0f %% of the memory; %s", 100 * one->memory / chosen->memory,
                 pins);
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
