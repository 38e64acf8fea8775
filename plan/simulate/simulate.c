/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/simulate.h"

#include "base/arena.h"
#include "plan/simulate/simulate_inside.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum state { WAITING, READY, LATENT, FLOWING, ENDED };

/* The state of a task while it is simulated. */
struct progress {
    enum state state;
    int before;   /* tasks that it still waits for */
    double left;  /* seconds of latency, then work */
    int follower; /* the first edge to a task that waits for it; -1: none */
    int next;     /* in the list of its slot's ready tasks; -1: none */
};

struct edge {
    int task, next;
};

struct slot {
    int ready; /* the first task that waits for it, by number; -1: none */
    bool busy;
};

struct rb_simulate {
    struct rb_simulate_task *tasks;
    struct progress *progress;
    struct edge *edges;
    struct rb_simulate_resource *resources;
    struct slot *slots;
    size_t n_tasks, n_edges, n_resources, n_slots;
    size_t room_tasks, room_edges;
    /* while it runs */
    double now;
    int *active; /* latent and flowing tasks, in the order in which they began */
    size_t n_active, ended;
    double *rates, *weights; /* by task */
};

struct rb_simulate *rb_simulate_new(void)
{
    return rb_alloc(sizeof(struct rb_simulate));
}

void rb_simulate_free(struct rb_simulate *simulate)
{
    if (!simulate)
        return;
    free(simulate->tasks);
    free(simulate->progress);
    free(simulate->edges);
    free(simulate->resources);
    free(simulate->slots);
    free(simulate->active);
    free(simulate->rates);
    free(simulate->weights);
    free(simulate);
}

/* ---- What there is to do ---------------------------------------------------------------------*/

int rb_simulate_slot(struct rb_simulate *simulate)
{
    simulate->slots =
        rb_realloc(simulate->slots, (simulate->n_slots + 1) * sizeof *simulate->slots);
    simulate->slots[simulate->n_slots] = (struct slot){.ready = -1};
    return (int)simulate->n_slots++;
}

int rb_simulate_resource(struct rb_simulate *simulate, double capacity)
{
    simulate->resources =
        rb_realloc(simulate->resources, (simulate->n_resources + 1) * sizeof *simulate->resources);
    simulate->resources[simulate->n_resources] =
        (struct rb_simulate_resource){.capacity = capacity};
    return (int)simulate->n_resources++;
}

int rb_simulate_add(struct rb_simulate *simulate, const struct rb_simulate_task *task)
{
    if (simulate->n_tasks == simulate->room_tasks) {
        simulate->room_tasks = 2 * simulate->room_tasks + 64;
        simulate->tasks =
            rb_realloc(simulate->tasks, simulate->room_tasks * sizeof *simulate->tasks);
        simulate->progress =
            rb_realloc(simulate->progress, simulate->room_tasks * sizeof *simulate->progress);
    }
    simulate->tasks[simulate->n_tasks] = *task;
    simulate->progress[simulate->n_tasks] = (struct progress){.follower = -1, .next = -1};
    return (int)simulate->n_tasks++;
}

void rb_simulate_use(struct rb_simulate_task *task, int resource, double amount)
{
    if (amount > 0 && task->n_uses < RB_SIMULATE_USES)
        task->uses[task->n_uses++] = (struct rb_simulate_use){resource, amount};
}

void rb_simulate_after(struct rb_simulate *simulate, int task, int before)
{
    if (simulate->n_edges == simulate->room_edges) {
        simulate->room_edges = 2 * simulate->room_edges + 64;
        simulate->edges =
            rb_realloc(simulate->edges, simulate->room_edges * sizeof *simulate->edges);
    }
    simulate->edges[simulate->n_edges] = (struct edge){task, simulate->progress[before].follower};
    simulate->progress[before].follower = (int)simulate->n_edges++;
    simulate->progress[task].before++;
}

size_t rb_simulate_count(const struct rb_simulate *simulate)
{
    return simulate->n_tasks;
}

const struct rb_simulate_task *rb_simulate_task(const struct rb_simulate *simulate, size_t i)
{
    return &simulate->tasks[i];
}

/* ---- Events ----------------------------------------------------------------------------------*/

static void begin(struct rb_simulate *simulate, int i)
{
    struct rb_simulate_task *task = &simulate->tasks[i];
    struct progress *progress = &simulate->progress[i];

    task->start = simulate->now;
    progress->state = task->latency > 0 ? LATENT : FLOWING;
    progress->left = task->latency > 0 ? task->latency : task->work;
    simulate->active[simulate->n_active++] = i;
    if (task->slot >= 0)
        simulate->slots[task->slot].busy = true;
}

/* Begin task i, or queue it by its number where its slot is busy. */
static void offer(struct rb_simulate *simulate, int i)
{
    int slot = simulate->tasks[i].slot, *at;

    simulate->progress[i].state = READY;
    if (slot < 0) {
        begin(simulate, i);
        return;
    }
    for (at = &simulate->slots[slot].ready; *at >= 0 && *at < i; at = &simulate->progress[*at].next)
        ;
    simulate->progress[i].next = *at;
    *at = i;
}

/* Each free slot takes the first task that waits for it. */
static void fill_slots(struct rb_simulate *simulate)
{
    for (size_t s = 0; s < simulate->n_slots; s++) {
        struct slot *slot = &simulate->slots[s];
        int i = slot->ready;

        if (slot->busy || i < 0)
            continue;
        slot->ready = simulate->progress[i].next;
        begin(simulate, i);
    }
}

static void end(struct rb_simulate *simulate, int i)
{
    struct progress *progress = &simulate->progress[i];

    progress->state = ENDED;
    simulate->tasks[i].end = simulate->now;
    simulate->ended++;
    if (simulate->tasks[i].slot >= 0)
        simulate->slots[simulate->tasks[i].slot].busy = false;
    for (int e = progress->follower; e >= 0; e = simulate->edges[e].next)
        if (--simulate->progress[simulate->edges[e].task].before == 0)
            offer(simulate, simulate->edges[e].task);
}

static double rate_of(const struct rb_simulate *simulate, int i)
{
    return simulate->progress[i].state == LATENT ? 1 : simulate->rates[i];
}

static void find_rates(struct rb_simulate *simulate)
{
    RB_CLEANUP(rb_freep) int *flowing = rb_alloc((simulate->n_active + 1) * sizeof *flowing);
    size_t n = 0;

    for (size_t i = 0; i < simulate->n_active; i++)
        if (simulate->progress[simulate->active[i]].state == FLOWING)
            flowing[n++] = simulate->active[i];
    rb_simulate_rates(simulate->tasks, flowing, n, simulate->resources, simulate->n_resources,
                      simulate->weights, simulate->rates);
}

/* Seconds until the next active task changes its state. */
static double next_event(const struct rb_simulate *simulate)
{
    double soonest = INFINITY;

    for (size_t a = 0; a < simulate->n_active; a++) {
        int i = simulate->active[a];
        double left = simulate->progress[i].left;

        soonest = fmin(soonest, left > 0 ? left / rate_of(simulate, i) : 0);
    }
    return soonest;
}

/* Let `seconds` go by.  What is left of a task that is as good as done is rounding. */
static void advance(struct rb_simulate *simulate, double seconds)
{
    static const double sliver = 1e-9;
    size_t n = simulate->n_active, kept = 0;
    RB_CLEANUP(rb_freep) int *done = rb_alloc((n + 1) * sizeof *done);
    size_t n_done = 0;

    simulate->now += seconds;
    for (size_t a = 0; a < n; a++) {
        int i = simulate->active[a];
        struct progress *progress = &simulate->progress[i];
        double rate = rate_of(simulate, i);

        /* no work of infinite rate is ever left, and 0 times infinity is no number */
        progress->left = isinf(rate) ? 0 : progress->left - rate * seconds;
        if (progress->left <= sliver * rate * seconds && progress->state == LATENT &&
            simulate->tasks[i].work > 0) {
            progress->state = FLOWING;
            progress->left = simulate->tasks[i].work;
        } else if (isinf(rate) || progress->left <= sliver * rate * seconds) {
            done[n_done++] = i;
            continue;
        }
        simulate->active[kept++] = i;
    }
    simulate->n_active = kept;
    for (size_t d = 0; d < n_done; d++)
        end(simulate, done[d]);
}

int rb_simulate_run(struct rb_simulate *simulate, double *ret_seconds, struct rb_why *why)
{
    size_t n = simulate->n_tasks;

    simulate->active = rb_alloc((n + 1) * sizeof *simulate->active);
    simulate->rates = rb_alloc((n + 1) * sizeof *simulate->rates);
    simulate->weights = rb_alloc((n + 1) * sizeof *simulate->weights);
    for (size_t i = 0; i < n; i++)
        if (!simulate->progress[i].before)
            offer(simulate, (int)i);
    for (;;) {
        fill_slots(simulate);
        if (!simulate->n_active)
            break;
        find_rates(simulate);
        advance(simulate, next_event(simulate));
    }
    if (simulate->ended < n)
        return rb_why_set(why, RB_EINVAL, "%zu of %zu tasks wait for each other",
                          n - simulate->ended, n);
    *ret_seconds = simulate->now;
    return 0;
}
