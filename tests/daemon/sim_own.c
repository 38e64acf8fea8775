/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's own processes: met, heard, looked at, reaped, adopted, as in daemon/agent/worker.c,
 * worker_said.c, watch.c and adopt.c. */
#include "sim_rubatod.h"

#include <string.h>

enum { LOOK_US = 100000, LOOKS_A_PING = 10 };

/* ---- Processes --------------------------------------------------------------------------------*/

struct sim_own *sim_own_find(struct sim_rubatod *rubatod, const struct sim_process *process)
{
    struct sim_own *own = rubatod->own;

    while (own && own->process != process)
        own = own->next;
    return own;
}

void sim_own_drop(struct sim_rubatod *rubatod, struct sim_own *own)
{
    struct sim_own **at = &rubatod->own;

    while (*at && *at != own)
        at = &(*at)->next;
    if (*at)
        *at = own->next;
    if (own->process->agent == rubatod->stamp && own->process->alive)
        sim_process_hang_up(own->process);
}

static void on_connect(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;
    struct sim_own *own = what;
    struct sim_process *process = own->process;

    (void)stamp;
    if (!rubatod->alive || !process->alive || process->agent == rubatod->stamp ||
        sim_own_find(rubatod, process) != own)
        return;
    if (!process->greets || process->stopped || process->hung)
        sim_in(sim, 50000, on_connect, rubatod, 0, own);
    else
        sim_process_connect(process, rubatod->stamp, sim_known(rubatod, process->job->id)->rows);
}

struct sim_own *sim_own_take_on(struct sim_rubatod *rubatod, struct sim_process *process,
                                uint32_t spawned_for)
{
    struct sim *sim = rubatod->sim;
    struct sim_own *own = sim_new(sim, sizeof *own), **last = &rubatod->own;

    own->process = process;
    own->level = own->first_step = own->newest = -1;
    own->told = (struct rb_agent_worker){
        .job = process->job->id,
        .worker = process->name,
        .device = process->device,
        .spawned_for = spawned_for,
        .waited = sim->now / 1000,
    };
    while (*last)
        last = &(*last)->next;
    *last = own;
    sim_in(sim, sim_between(sim, 500, 20000), on_connect, rubatod, 0, own);
    return own;
}

static void on_reaped(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;
    struct sim_rubatod *rubatod = process->node->rubatod;
    struct sim_own *own =
        rubatod && rubatod->stamp == stamp ? sim_own_find(rubatod, process) : NULL;

    (void)what;
    if (!own || own->told.gone)
        return;
    own->told.gone = true;
    own->told.connected = false;
    own->ended = sim_ms(sim);
    process->agent = 0;
    if (!own->failed && !own->told.left)
        own->reason = rb_arena_string(&sim->arena, "its process ended");
    sim_agent_poke(rubatod);
}

void sim_agent_ended(struct sim *sim, struct sim_process *process)
{
    struct sim_rubatod *rubatod = process->node->rubatod;

    if (rubatod)
        sim_in(sim, sim_between(sim, 1500, 5000), on_reaped, process, rubatod->stamp, NULL);
}

/* ---- What a worker says -----------------------------------------------------------------------*/

static void note_training(struct sim_own *own, bool trains)
{
    own->told.stepped = trains ? own->process->sim->now / 1000 + 1 : 0;
}

static void note_step(struct sim_own *own, const struct sim_word *row)
{
    own->newest = row->level;
    own->told.step_ms = own->process->job->step_us / 1000 * own->process->slowness;
    if (own->told.stepped)
        note_training(own, true);
}

static void take_hello(struct sim_own *own, const struct sim_word *word)
{
    own->told.connected = own->has_addresses = true;
    own->unheard = false;
    own->told.ready = word->ready;
    own->told.active = word->number;
    own->told.configured = word->configured;
    own->told.went = word->number;
    own->level = own->newest = word->level;
    own->frozen = word->frozen;
    own->done = word->done;
    if (word->saving && !own->told.left)
        own->told.left = own->process->sim->now / 1000 + 1;
    own->told.saving |= word->saving;
    note_training(own, word->number && !word->frozen && !word->done && !word->saving);
}

/* What an earlier rubatod has reported about the same process. */
static void take_report(struct sim_own *own, const struct rb_facts *facts, const char *node)
{
    const struct rb_job_facts *job = rb_facts_job(facts, own->told.job);
    const struct rb_fact *fact = job ? rb_facts_report(job, node, own->told.device) : NULL;
    struct rb_arena *arena = &own->process->sim->arena;

    if (!fact || strcmp(fact->worker->worker, own->told.worker) != 0)
        return;
    own->told.spawned_for = fact->worker->spawned_for;
    own->told.unready = fact->worker->unready;
    own->flipped = fact->worker->flipped;
    own->first_step = fact->worker->first_step;
    own->rank = fact->worker->rank;
    own->has_rank = fact->worker->has_rank;
    own->unsaved = fact->worker->unsaved;
    if (fact->worker->n_without) {
        own->foreseen = fact->worker->active;
        own->without = RB_ARENA_NEW(arena, char *, fact->worker->n_without + 1);
        for (size_t i = 0; i < fact->worker->n_without; i++)
            own->without[own->n_without++] = rb_arena_string(arena, fact->worker->without[i]);
    }
    if (fact->worker->reason)
        own->reason = rb_arena_string(arena, fact->worker->reason);
    if (fact->worker->saved) {
        own->saved = rb_arena_copy(arena, fact->worker->saved, sizeof *own->saved);
        own->saved->path = rb_arena_string(arena, own->saved->path);
        own->saved->node = rb_arena_string(arena, own->saved->node);
    }
}

static void adopt(struct sim_rubatod *rubatod)
{
    struct sim *sim = rubatod->sim;

    for (size_t i = 0; i < sim->n_processes; i++) {
        struct sim_process *process = sim->processes[i];

        if (!process->alive || process->node != rubatod->node || !process->greets ||
            sim->broken == SIM_NO_ADOPT)
            continue;
        if (process->stopped || process->hung) { /* silent: it would be reported dead */
            if (sim->broken != SIM_NO_PROOF)
                sim_process_kill(process, true, "silent when rubatod came back");
            continue;
        }
        struct sim_own *own = sim_own_take_on(rubatod, process, 0);

        take_report(own, sim_client_facts(rubatod->client), rubatod->node->name);
        own->unheard = true;
        sim_say(sim, rubatod->node->name, "adopts %s", process->name);
    }
}

static void take_word(struct sim_rubatod *rubatod, struct sim_own *own, const struct sim_word *word)
{
    if (word->reason[0] && !word->unsaved)
        own->reason = rb_arena_string(&rubatod->sim->arena, word->reason);
    switch (word->kind) {
    case SIM_HELLO:
        take_hello(own, word);
        if (word->fence > rubatod->orders_fence)
            rubatod->orders_fence = word->fence;
        break;
    case SIM_READY:
        if (word->number > own->told.ready)
            own->told.ready = word->number;
        break;
    case SIM_UNREADY:
        own->told.unready = word->number;
        break;
    case SIM_FLIPPED:
        own->told.active = word->number;
        own->level = own->first_step = word->level;
        if (word->level > own->newest)
            own->newest = word->level;
        own->flipped = sim_ms(rubatod->sim);
        own->rank = word->rank;
        own->has_rank = true;
        own->frozen = word->frozen;
        note_training(own, !word->frozen);
        break;
    case SIM_FROZE:
        own->frozen = true;
        note_training(own, false);
        own->level = word->level;
        if (word->number > own->told.active)
            own->told.unready = word->number;
        break;
    case SIM_IS_DONE:
        own->done = true;
        note_training(own, false);
        own->level = word->level;
        if (word->saved)
            sim_take_saved(rubatod, own, word);
        break;
    case SIM_FAILED_WORD:
        own->failed = true;
        own->lost = word->lost;
        break;
    default:
        sim_take_saved(rubatod, own, word);
    }
}

void sim_agent_hear(struct sim *sim, struct sim_process *process, const struct sim_word *word)
{
    struct sim_rubatod *rubatod = process->node->rubatod;
    struct sim_own *own = rubatod ? sim_own_find(rubatod, process) : NULL;

    (void)sim;
    if (!own || rubatod->stamp != process->agent || own->told.gone)
        return;
    if (word->kind == SIM_ROW) {
        note_step(own, word);
        sim_take_row(rubatod, own, word);
        return;
    }
    take_word(rubatod, own, word);
    sim_agent_poke(rubatod);
}

/* ---- A look at the processes ------------------------------------------------------------------*/

static void on_look(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)what;
    if (!rubatod->alive)
        return;
    sim_in(sim, LOOK_US, on_look, rubatod, stamp + 1, NULL);
    for (struct sim_own *own = rubatod->own; own; own = own->next) {
        struct sim_process *process = own->process;

        if (own->told.gone)
            continue;
        own->told.stopped = process->alive && process->stopped ? "it is stopped" : NULL;
        if (own->told.stopped)
            sim_agent_poke(rubatod);
        if (stamp % LOOKS_A_PING || !own->told.connected)
            continue;
        own->told.unanswered = process->hung || process->stopped ? own->told.unanswered + 1 : 0;
        if (own->told.unanswered)
            sim_agent_poke(rubatod);
    }
}

void sim_agent_start(struct sim_rubatod *rubatod)
{
    adopt(rubatod);
    rubatod->started = true;
    sim_in(rubatod->sim, LOOK_US, on_look, rubatod, 1, NULL);
}
