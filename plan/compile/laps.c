/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/laps.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <string.h>

/* Filling and draining a lap each take about one step for each stage in front: a few per cent of so
 * many steps. */
enum { SHORTEST = 32, STEPS_A_STAGE = 16 };

static const struct {
    const char *word;
    Rb__Asynchronous__Kind kind;
    bool formula;
} words[] = {
    {"vanilla", RB__ASYNCHRONOUS__KIND__VANILLA, false},
    {"stashing", RB__ASYNCHRONOUS__KIND__STASHING, false},
    {"2bw", RB__ASYNCHRONOUS__KIND__TWO_BUFFERS, false},
    {"spectrain", RB__ASYNCHRONOUS__KIND__SPECTRAIN, false},
    {"spectrain-formula", RB__ASYNCHRONOUS__KIND__SPECTRAIN, true},
};

/* Index of the job file's word; -1: it is none of them. */
static int find(const Rb__Spec *spec)
{
    const char *schedule = spec->parallel ? spec->parallel->schedule : NULL;

    for (size_t i = 0; schedule && i < RB_COUNT(words); i++)
        if (!strcmp(words[i].word, schedule))
            return (int)i;
    return -1;
}

static void add_stop(Rb__Asynchronous *how, int64_t every)
{
    if (every > 0)
        how->stops[how->n_stops++] = every;
}

Rb__Asynchronous *rb_laps_of(const Rb__Spec *spec)
{
    int word = find(spec);
    uint32_t lap = word < 0 ? 0 : STEPS_A_STAGE * spec->parallel->pipeline;
    Rb__Asynchronous *how;

    if (word < 0)
        return NULL;
    how = rb_alloc(sizeof *how);
    rb__asynchronous__init(how);
    how->kind = words[word].kind;
    how->has_formula = how->formula = words[word].formula;
    how->lap = lap < SHORTEST ? SHORTEST : lap;
    how->stops = rb_alloc(2 * sizeof *how->stops);
    add_stop(how, spec->train->eval->every);
    add_stop(how, spec->checkpoint ? spec->checkpoint->every : 0);
    return how;
}

const char *rb_laps_word(const Rb__Asynchronous *how)
{
    for (size_t i = 0; how && i < RB_COUNT(words); i++)
        if (words[i].kind == how->kind && words[i].formula == (how->formula != 0))
            return words[i].word;
    return NULL;
}

int64_t rb_laps_micro_batch(const Rb__Spec *spec)
{
    int word = find(spec);
    int64_t batch = spec->train->global_batch;

    if (word < 0)
        return 0;
    return words[word].kind == RB__ASYNCHRONOUS__KIND__TWO_BUFFERS
               ? batch / spec->parallel->pipeline
               : batch;
}
