/* SPDX-License-Identifier: Apache-2.0 */
/* A worker and its agent: orders come in order, and what the worker says is kept until it is out of
 * date, so that an agent that comes later hears the same (worker/control/control.c, reports.c). */
#include "sim_worker.h"

#include <stdio.h>
#include <string.h>

enum { ALONE_US = 60000000, NEVER_CAME_US = 30000000 };

struct delivery {
    struct sim_process *process;
    struct sim_word word;
};

static void on_word(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct delivery *delivery = who;
    struct sim_process *process = delivery->process;

    (void)what;
    if (process->agent == stamp)
        sim_agent_hear(sim, process, &delivery->word);
}

/* To the agent that is connected now, behind all words from before. */
static void say(struct sim_process *process, const struct sim_word *word)
{
    struct sim *sim = process->sim;
    struct delivery *delivery;
    uint64_t at = sim->now + sim_between(sim, 20, 1500);

    if (!process->agent)
        return;
    delivery = sim_new(sim, sizeof *delivery);
    *delivery = (struct delivery){process, *word};
    if (at <= process->said)
        at = process->said + 1;
    process->said = at;
    sim_in(sim, at - sim->now, on_word, delivery, process->agent, NULL);
}

/* Drop a word, unless it is about a later configuration. */
static void forget(struct sim_process *process, enum sim_word_kind kind, uint32_t number)
{
    if (process->words[kind].number <= number)
        process->words[kind].order = 0;
}

void sim_tell(struct sim_process *process, enum sim_word_kind kind, const struct sim_word *word)
{
    struct sim_word *slot = &process->words[kind];

    if (kind == SIM_READY || kind == SIM_FLIPPED)
        forget(process, SIM_UNREADY, word->number);
    if (kind == SIM_UNREADY || kind == SIM_FLIPPED)
        forget(process, SIM_READY, word->number);
    if (kind == SIM_FLIPPED)
        process->words[SIM_FROZE].order = 0;
    *slot = *word;
    slot->kind = kind;
    slot->order = ++process->sim->sequence;
    say(process, slot);
}

void sim_tell_unready(struct sim_process *process, uint32_t number, const char *reason)
{
    struct sim_word word = {.number = number};

    snprintf(word.reason, sizeof word.reason, "%s", reason);
    sim_say(process->sim, process->name, "not ready for %u: %s", number, reason);
    sim_tell(process, SIM_UNREADY, &word);
}

static void say_row(struct sim_process *process, int64_t step)
{
    struct sim_word word = {
        .kind = SIM_ROW,
        .number = process->row_number[step],
        .rank = process->row_rank[step],
        .level = step,
        .microbatch_us = (uint32_t)process->job->step_us / 2 * process->slowness,
    };

    say(process, &word);
}

void sim_tell_rows(struct sim_process *process)
{
    say_row(process, process->rows);
}

/* ---- The connection ---------------------------------------------------------------------------*/

struct sim_word sim_hello(const struct sim_process *process)
{
    return (struct sim_word){
        .kind = SIM_HELLO,
        .configured = process->configured,
        .fence = process->fence,
        .ready = process->ready,
        .number = process->announced,
        .level = process->stands_level,
        .frozen = process->stands_frozen,
        .done = process->stands_done,
        .saving = process->leave && process->leave_saves && !process->ends,
    };
}

void sim_process_connect(struct sim_process *process, uint64_t agent, int64_t rows_after)
{
    struct sim_word hello = sim_hello(process);
    uint64_t said = 0;

    process->agent = agent;
    process->met = true;
    process->alone++;
    say(process, &hello);
    for (int64_t step = rows_after + 1; step <= process->rows; step++)
        if (process->row_number[step])
            say_row(process, step);
    for (;;) { /* in the order in which it was said */
        struct sim_word *next = NULL;

        for (int k = 0; k < SIM_WORDS; k++)
            if (process->words[k].order > said && (!next || process->words[k].order < next->order))
                next = &process->words[k];
        if (!next)
            return;
        said = next->order;
        say(process, next);
    }
}

/* A process without an agent and without state ends by itself. */
static void on_alone(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)sim;
    (void)what;
    if (!process->alive || stamp != process->alone || process->agent)
        return;
    if (process->stands_level < 0 && !process->in_group) {
        process->leave = true;
        sim_pump(process);
    } else {
        sim_in(sim, ALONE_US, on_alone, process, stamp, NULL);
    }
}

void sim_process_await(struct sim_process *process)
{
    sim_in(process->sim, NEVER_CAME_US, on_alone, process, process->alone, NULL);
}

void sim_process_hang_up(struct sim_process *process)
{
    process->agent = 0;
    sim_in(process->sim, ALONE_US, on_alone, process, ++process->alone, NULL);
}

/* ---- Orders -----------------------------------------------------------------------------------*/

static void on_order(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;
    struct sim_order *order = what, **last = &process->orders;

    (void)sim;
    (void)stamp;
    while (*last)
        last = &(*last)->next;
    *last = order;
    sim_pump(process);
}

void sim_order(struct sim_process *process, const struct sim_order *order)
{
    struct sim *sim = process->sim;
    struct sim_order *copy = sim_new(sim, sizeof *copy);

    *copy = *order;
    copy->next = NULL;
    sim_in(sim, 50, on_order, process, 0, copy); /* always as long: in order */
}

bool sim_pump_orders(struct sim_process *process)
{
    struct sim_order *order = process->orders;

    if (!order)
        return false;
    process->orders = order->next;
    if (order->fence < process->fence) {
        sim_say(process->sim, process->name, "refuses an order of an older leader");
        return true;
    }
    process->fence = order->fence;
    sim_obey(process, order);
    return true;
}
