/* SPDX-License-Identifier: Apache-2.0 */
/* Of the devices that nodes have, those that a job could run on. */
#include "daemon/rpc/submit_inside.h"

#include "base/arena.h"
#include "daemon/agent/spawn.h"

#include <string.h>
#include <unistd.h>

/* How much a device is wanted for a job of any kind: GPUs before cores, then those of this node. */
static int rank_of(const char *here, const Rb__Node *node, const Rb__Device *device)
{
    return (strcmp(device->kind, "cpu") ? 2 : 0) + !strcmp(node->name, here);
}

/* Why a job of a kind that no node has cannot be taken. */
static int refuse_kind(const struct rb_facts *facts, const char *kind, struct rb_why *why)
{
    const char *missing = NULL;

    for (size_t i = 0; i < facts->nodes.n && !missing; i++)
        missing = facts->nodes.at[i].node->missing;
    return rb_why_set(why, RB_EREFUSED,
                      "spec.devices.kind is %.*s, and no node has such a device%s%s",
                      rb_error_fit(kind, 40), kind, missing && !strcmp(kind, "cuda") ? ": " : "",
                      missing && !strcmp(kind, "cuda") ? missing : "");
}

int rb_submission_class(const struct rb_facts *facts, const char *here, const char *own,
                        const char *kind, const char **ret_class, struct rb_why *why)
{
    bool any = !kind || !strcmp(kind, "any");
    const char *class = NULL;
    int best = -1;

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            int rank = rank_of(here, node, node->devices[d]);

            if ((any || !strcmp(kind, node->devices[d]->kind)) && rank > best) {
                best = rank;
                class = rb_facts_class(node, node->devices[d]);
            }
        }
    }
    if (!class && !any && strcmp(kind, "cpu"))
        return refuse_kind(facts, kind, why);
    *ret_class = class ? class : own;
    return 0;
}

/* A device of this node that the job can be timed on, the one whose memory is least in use; NULL:
 * there is none. */
static const Rb__Device *find_device(const Rb__Node *here, const char *class)
{
    const Rb__Device *best = NULL;

    for (size_t d = 0; here && d < here->n_devices; d++) {
        const Rb__Device *device = here->devices[d];

        if (!strcmp(rb_facts_class(here, device), class) && !device->sick &&
            (!best || device->used < best->used))
            best = device;
    }
    return best;
}

/* What a device of the class has: of cores an even part of this machine's memory.  0: unknown. */
static uint64_t memory_of(const struct rb_facts *facts, const Rb__Node *here, const char *class)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t least = 0;

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            const Rb__Device *device = node->devices[d];

            if (device->has_bytes && !strcmp(rb_facts_class(node, device), class) &&
                (!least || device->bytes < least))
                least = device->bytes;
        }
    }
    if (least)
        return least;
    return pages > 0 && page > 0 && here && here->n_devices
               ? (uint64_t)pages * (uint64_t)page / here->n_devices
               : 0;
}

void rb_submission_place(struct rb_submission *job, const struct rb_facts *facts, const char *here,
                         const char *own)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, here);
    const Rb__Node *node = fact ? fact->node : NULL;
    const Rb__Device *device = find_device(node, job->numeric_class);

    job->memory = memory_of(facts, node, job->numeric_class);
    if (device || !strcmp(job->numeric_class, own))
        job->worker = rb_program_beside("rubato-worker");
    job->kind = rb_string(device ? device->kind : "cpu");
    job->ordinal = device && device->has_ordinal ? device->ordinal : 0;
}
