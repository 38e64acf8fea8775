/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/publish.h"

#include "daemon/facts/contingency.h"
#include "daemon/facts/shown.h"

#include <string.h>

/* Do facts have the configuration as planned, without knowing yet whether it trains? */
static bool is_to_come(const struct rb_job_facts *job, uint32_t number)
{
    const struct rb_fact *fact = rb_facts_configuration(job, number);

    return fact && (fact->configuration->state == RB__CONFIGURATION__STATE__PREPARING ||
                    fact->configuration->state == RB__CONFIGURATION__STATE__GO);
}

/* Rows are told again to a rubatod that comes back: progress only grows.  A job may be through
 * before facts know that its first configuration trains; and a step may be told behind a death. */
enum rb_publish rb_publish_progress(const struct rb_job_facts *job, const Rb__Progress *progress)
{
    const Rb__Progress *known = job->progress.message ? job->progress.progress : NULL;
    const Rb__Configuration *last = rb_job_last(job);
    uint32_t number = progress->configuration, active = job->state.state->active;

    if (known && (known->configuration > number ||
                  (known->configuration == number && known->step >= progress->step)))
        return RB_PUBLISH_NEVER;
    if (last && rb_contingency_descends(last, number))
        return RB_PUBLISH_NOW;
    return (active ? active < number : is_to_come(job, number)) ? RB_PUBLISH_LATER
                                                                : RB_PUBLISH_NEVER;
}

/* Did the configuration gather what `last` had, to park it?  Then it trains nothing and is never
 * the active one. */
static bool is_gathered_from(const struct rb_job_facts *job, const Rb__Configuration *last,
                             uint32_t number)
{
    const struct rb_fact *fact = rb_facts_configuration(job, number);

    return fact && number > last->number && !strcmp(fact->configuration->cause, "park");
}

/* Did the members have no state, and load some? */
static bool is_fresh_start(const Rb__Configuration *configuration)
{
    for (size_t m = 0; m < configuration->n_members; m++)
        if (configuration->members[m]->restores)
            return true;
    return false;
}

/* Has training gone on from `number` to `last` by changes of devices alone, each with the state of
 * the one before? */
static bool has_led_to(const struct rb_job_facts *job, const Rb__Configuration *last,
                       uint32_t number)
{
    const Rb__Configuration *at = last;

    while (at && !rb_contingency_descends(at, number)) {
        const Rb__Configuration *base = rb_contingency_base(job, at);
        bool goes_on = base && base->from && base->from < base->number && !is_fresh_start(base);
        const struct rb_fact *before = goes_on ? rb_facts_configuration(job, base->from) : NULL;

        at = before ? before->configuration : NULL;
    }
    return at != NULL;
}

/* Is the job about to begin anew, from what it had when that was decided? */
static bool begins_anew(const struct rb_job_facts *job, const Rb__Configuration *last)
{
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *each = job->configurations.at[i].configuration;

        if (each->number > last->number && rb_configuration_live(each) && is_fresh_start(each))
            return true;
    }
    return false;
}

/* A checkpoint keeps its worth through training since then (its writer may have left in between, or
 * gone on to gather the state), unless that training began with an older state. */
enum rb_publish rb_publish_checkpoint(const struct rb_job_facts *job,
                                      const Rb__Checkpoint *checkpoint)
{
    const Rb__Configuration *last = rb_job_last(job);
    uint32_t number = checkpoint->configuration;

    if (last && (has_led_to(job, last, number) || is_gathered_from(job, last, number)))
        return begins_anew(job, last) ? RB_PUBLISH_NEVER : RB_PUBLISH_NOW;
    return job->state.state->active < number ? RB_PUBLISH_LATER : RB_PUBLISH_NEVER;
}

uint32_t rb_publish_pace(const Rb__WorkerReport *known, uint32_t measured)
{
    uint32_t said = known ? known->microbatch_us : 0;
    uint32_t off = measured > said ? measured - said : said - measured;

    return !measured || (said && off <= said / 32) ? said : measured;
}
