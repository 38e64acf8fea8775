/* SPDX-License-Identifier: Apache-2.0 */
/* Time as a heap of events; chance from the seed; the trace of both. */
#include "sim.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIX_MS UINT64_C(1600000000000)

struct sim_event {
    uint64_t at, sequence;
    sim_act *act;
    void *who, *what;
    uint64_t stamp;
};

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->sequence < b->sequence;
}

void sim_in(struct sim *sim, uint64_t us, sim_act *act, void *who, uint64_t stamp, void *what)
{
    struct sim_event event = {sim->now + us, ++sim->sequence, act, who, what, stamp};
    size_t i = sim->events++;

    if (sim->events > sim->room) {
        sim->room = sim->room ? sim->room * 2 : 1024;
        sim->heap = rb_realloc(sim->heap, sim->room * sizeof *sim->heap);
    }
    for (; i && before(&event, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

static struct sim_event take(struct sim *sim)
{
    struct sim_event first = sim->heap[0], last = sim->heap[--sim->events];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < sim->events) {
        if (child + 1 < sim->events && before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!before(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

bool sim_next(struct sim *sim)
{
    struct sim_event event;

    if (!sim->events)
        return false;
    event = take(sim);
    sim->now = event.at;
    sim->happened++;
    event.act(sim, event.who, event.stamp, event.what);
    return true;
}

uint64_t sim_chance(struct sim *sim, uint64_t below)
{
    sim->random += UINT64_C(0x9e3779b97f4a7c15);
    return below ? rb_hash_mix(sim->random) % below : 0;
}

uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high)
{
    return low + sim_chance(sim, high - low + 1);
}

uint64_t sim_ms(const struct sim *sim)
{
    return UNIX_MS + sim->now / 1000;
}

void *sim_new(struct sim *sim, size_t size)
{
    return rb_arena_alloc(&sim->arena, size);
}

void sim_say(struct sim *sim, const char *who, const char *format, ...)
{
    va_list args;

    if (!sim->traces)
        return;
    printf("%12.6f  %-10s ", (double)sim->now / 1e6, who);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    int size;

    if (sim->failure[0])
        return;
    size = snprintf(sim->failure, sizeof sim->failure, "at %.6f s: ", (double)sim->now / 1e6);
    va_start(args, format);
    vsnprintf(sim->failure + size, sizeof sim->failure - (size_t)size, format, args);
    va_end(args);
    sim_say(sim, "CHECK", "%s", sim->failure);
}
