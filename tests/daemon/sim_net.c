/* SPDX-License-Identifier: Apache-2.0 */
/* Links between workers, as TCP and sockets are: in order, each message once, late; nothing passes
 * between nodes that are apart, and what was sent waits, until the link is given up. */
#include "sim_worker.h"

#include "base/hash.h"

#include <string.h>

struct passage {
    struct sim_group *group;
    uint32_t from, to;
    struct sim_message *message;
};

static void push(struct sim_queue *queue, struct sim_message *message)
{
    message->next = NULL;
    if (queue->last)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
}

/* A message that was on its way when the nodes came apart is older than some that wait. */
static void push_in_order(struct sim_queue *queue, struct sim_message *message)
{
    struct sim_message **at = &queue->first;

    if (!queue->last || queue->last->number < message->number) {
        push(queue, message);
        return;
    }
    while ((*at)->number < message->number)
        at = &(*at)->next;
    message->next = *at;
    *at = message;
}

static struct sim_message *pop(struct sim_queue *queue)
{
    struct sim_message *message = queue->first;

    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->last = NULL;
    }
    return message;
}

uint64_t sim_tag(unsigned purpose, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t parts[4] = {purpose, a, b, c};

    return rb_hash64(parts, sizeof parts) | 1;
}

struct sim_group *sim_group(struct sim *sim, struct sim_job *job, uint32_t number, uint32_t size,
                            uint64_t digest, uint32_t rank)
{
    struct sim_group *group = sim->groups;

    while (group && (group->job != job || group->number != number || group->digest != digest ||
                     group->seats[rank].open))
        group = group->next;
    if (group)
        return group;
    group = sim_new(sim, sizeof *group);
    group->job = job;
    group->number = number;
    group->digest = digest;
    group->size = size;
    group->next = sim->groups;
    sim->groups = group;
    return group;
}

static bool apart(const struct sim *sim, const struct sim_group *group, uint32_t from, uint32_t to)
{
    const struct sim_process *a = group->seats[from].process, *b = group->seats[to].process;

    return a && b && a->node != b->node &&
           (sim->apart[a->node - sim->nodes][b->node - sim->nodes] || a->node->down ||
            b->node->down);
}

static void on_arrival(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct passage *passage = who;
    struct sim_seat *seat = &passage->group->seats[passage->to];

    (void)stamp;
    (void)what;
    if (seat->closed || !seat->process || !seat->process->alive)
        return;
    if (apart(sim, passage->group, passage->from, passage->to)) {
        push_in_order(&passage->group->links[passage->from][passage->to].stalled, passage->message);
        return;
    }
    if (passage->message->end)
        seat->lost[passage->from] = true;
    else if (!seat->lost[passage->from])
        push(&seat->inbox[passage->from], passage->message);
    sim_pump(seat->process);
}

static uint64_t way(struct sim *sim, const struct sim_group *group, uint32_t from, uint32_t to)
{
    const struct sim_process *a = group->seats[from].process, *b = group->seats[to].process;
    uint64_t low = a && b && a->node == b->node ? 10 : 100;

    return sim_chance(sim, 40) ? sim_between(sim, low, low * 4) : sim_between(sim, low, 40000);
}

static void dispatch(struct sim *sim, struct sim_group *group, uint32_t from, uint32_t to,
                     struct sim_message *message)
{
    struct sim_link *link = &group->links[from][to];
    struct passage *passage;
    uint64_t at;

    if (link->stalled.first || apart(sim, group, from, to)) {
        push(&link->stalled, message);
        return;
    }
    at = sim->now + way(sim, group, from, to);
    if (at <= link->last)
        at = link->last + 1;
    link->last = at;
    passage = sim_new(sim, sizeof *passage);
    *passage = (struct passage){group, from, to, message};
    sim_in(sim, at - sim->now, on_arrival, passage, 0, NULL);
}

static void send_message(struct sim *sim, struct sim_group *group, uint32_t from, uint32_t to,
                         uint64_t tag, const void *bytes, size_t size, bool end)
{
    struct sim_link *link = &group->links[from][to];
    struct sim_message *message;

    if (link->ended)
        return;
    message = sim_new(sim, sizeof *message + size);
    message->tag = tag;
    message->size = size;
    message->number = ++link->sent;
    message->end = link->ended = end;
    if (size)
        memcpy(message->bytes, bytes, size);
    dispatch(sim, group, from, to, message);
}

static bool trains_in(const struct sim_process *process, const struct sim_group *group)
{
    return process->use == SIM_USE_TRAINING && process->in_group &&
           process->in_group->group == group;
}

void sim_send(struct sim *sim, struct sim_group *group, uint32_t from, uint32_t to, uint64_t tag,
              const void *bytes, size_t size)
{
    struct sim_process *process = group->seats[from].process;

    if (process->alive)
        send_message(sim, group, from, to, tag, bytes, size, false);
    if (process->ends_behind && !--process->ends_behind) {
        sim->disturbed = sim->now;
        sim_process_kill(process, true, "killed in the middle of what it sends");
    }
    if (process->stops_behind && !trains_in(process, group) && !--process->stops_behind)
        sim_node_stand(sim, process->node);
}

const struct sim_message *sim_head(const struct sim_group *group, uint32_t rank, uint32_t from)
{
    return group->seats[rank].inbox[from].first;
}

void sim_take(struct sim_group *group, uint32_t rank, uint32_t from)
{
    pop(&group->seats[rank].inbox[from]);
}

static int expect(struct sim *sim, const struct sim_group *group, uint32_t rank, uint32_t from,
                  uint64_t tag, size_t size)
{
    const struct sim_message *head = sim_head(group, rank, from);

    if (!head)
        return group->seats[rank].lost[from] ? RB_EPEER : RB_EAGAIN;
    if (head->tag == tag && head->size == size)
        return RB_OK;
    sim_fail(sim, "%s hears something else from rank %u of configuration %u than it waits for",
             group->seats[rank].process->name, from, group->number);
    return RB_EINTERNAL;
}

int sim_gather(struct sim *sim, struct sim_group *group, uint32_t rank, uint64_t tag,
               const void *mine, void *all, size_t bytes)
{
    struct sim_seat *seat = &group->seats[rank];
    int result = RB_OK;

    if (seat->cancelled)
        return RB_ECANCELED;
    if (seat->gathering != tag) {
        uint32_t first = (uint32_t)sim_chance(sim, group->size);

        seat->gathering = tag;
        for (uint32_t i = 0; i < group->size && seat->process->alive; i++)
            if ((first + i) % group->size != rank)
                sim_send(sim, group, rank, (first + i) % group->size, tag, mine, bytes);
    }
    for (uint32_t r = 0; r < group->size; r++) {
        int err = r == rank ? RB_OK : expect(sim, group, rank, r, tag, bytes);

        if (err && (!result || err != RB_EAGAIN))
            result = err;
    }
    if (!seat->process->alive)
        return RB_EAGAIN;
    if (result)
        return result;
    for (uint32_t r = 0; r < group->size; r++) {
        if (bytes)
            memcpy((uint8_t *)all + r * bytes, r == rank ? mine : sim_head(group, rank, r)->bytes,
                   bytes);
        if (r != rank)
            sim_take(group, rank, r);
    }
    seat->gathering = 0;
    return RB_OK;
}

int sim_receive(struct sim *sim, struct sim_group *group, uint32_t rank, uint32_t from,
                uint64_t tag, void *bytes, size_t size)
{
    int err =
        group->seats[rank].cancelled ? RB_ECANCELED : expect(sim, group, rank, from, tag, size);

    if (err)
        return err;
    memcpy(bytes, sim_head(group, rank, from)->bytes, size);
    sim_take(group, rank, from);
    return RB_OK;
}

/* ---- Ends -------------------------------------------------------------------------------------*/

void sim_seat_close(struct sim *sim, struct sim_group *group, uint32_t rank)
{
    struct sim_seat *seat = &group->seats[rank];

    if (seat->closed || !seat->open)
        return;
    seat->closed = true;
    for (uint32_t r = 0; r < group->size; r++)
        if (r != rank)
            send_message(sim, group, rank, r, 0, NULL, 0, true);
}

/* heard: the process's kernel lives to report the end. */
void sim_net_died(struct sim *sim, struct sim_process *process, bool heard)
{
    for (struct sim_group *group = sim->groups; group; group = group->next)
        for (uint32_t r = 0; r < group->size; r++) {
            if (group->seats[r].process != process)
                continue;
            if (heard)
                sim_seat_close(sim, group, r);
            else
                group->seats[r].closed = true;
        }
}

void sim_net_healed(struct sim *sim)
{
    for (struct sim_group *group = sim->groups; group; group = group->next)
        for (uint32_t from = 0; from < group->size; from++)
            for (uint32_t to = 0; to < group->size; to++) {
                struct sim_queue stalled = group->links[from][to].stalled;

                group->links[from][to].stalled = (struct sim_queue){0};
                for (struct sim_message *message; (message = pop(&stalled)) != NULL;)
                    dispatch(sim, group, from, to, message);
            }
}

/* Probes went unanswered: both sides see the end, each behind what had come. */
void sim_net_gave_up(struct sim *sim, size_t a, size_t b)
{
    for (struct sim_group *group = sim->groups; group; group = group->next)
        for (uint32_t from = 0; from < group->size; from++)
            for (uint32_t to = 0; to < group->size; to++) {
                struct sim_process *one = group->seats[from].process,
                                   *other = group->seats[to].process;

                if (!one || !other || one->node != &sim->nodes[a] ||
                    other->node != &sim->nodes[b] || !group->seats[to].open ||
                    group->seats[to].closed)
                    continue;
                group->links[from][to].ended = group->links[to][from].ended = true;
                group->links[from][to].stalled = group->links[to][from].stalled =
                    (struct sim_queue){0};
                group->seats[to].lost[from] = true;
                group->seats[from].lost[to] = true; /* also a rank that has not come yet */
                if (other->alive)
                    sim_pump(other);
            }
}
