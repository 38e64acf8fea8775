/* SPDX-License-Identifier: Apache-2.0 */
/* What is reported of stragglers: each change in facts has its one event in the same transaction,
 * and no straggler is reported before its slowness has lasted, nor beside a change that is being
 * prepared. */
#include "sim.h"

#include "daemon/facts/members.h"
#include "daemon/facts/writes.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <string.h>

enum { LASTS_MS = 30000 };

static const Rb__Straggler *told(const Rb__JobState *state, const char *worker)
{
    for (size_t i = 0; i < state->n_stragglers; i++)
        if (state->stragglers[i]->has_told && !strcmp(state->stragglers[i]->worker, worker))
            return state->stragglers[i];
    return NULL;
}

/* How many of the stragglers told of in `of` are not told of in `before`. */
static size_t count_new(const Rb__JobState *of, const Rb__JobState *before)
{
    size_t n = 0;

    for (size_t i = 0; i < of->n_stragglers; i++)
        n += of->stragglers[i]->has_told && !told(before, of->stragglers[i]->worker);
    return n;
}

static size_t count_events(const struct rb_write *writes, size_t n, const char *kind)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        found += writes[i].kind == RB_WRITE_PUT && !strncmp(writes[i].key, "events/", 7) &&
                 strstr(writes[i].value, kind) != NULL;
    return found;
}

static void check_when(struct sim *sim, const Rb__JobState *before, const Rb__JobState *after)
{
    for (size_t i = 0; i < after->n_stragglers; i++) {
        const Rb__Straggler *one = after->stragglers[i];

        if (!one->has_told || told(before, one->worker))
            continue;
        if (one->told < one->since + LASTS_MS)
            sim_fail(sim, "%s is told of as a straggler after %" PRIu64 " ms", one->worker,
                     one->told - one->since);
        if (before->next)
            sim_fail(sim, "%s is told of as a straggler beside a change", one->worker);
    }
}

void sim_check_stragglers(struct sim *sim, const Rb__JobState *before, const Rb__JobState *after,
                          const struct rb_write *writes, size_t n)
{
    size_t came = count_new(after, before), went = count_new(before, after);

    check_when(sim, before, after);
    if (rb_phase_final(after->phase)) /* a job that is over has none, whatever was told */
        return;
    if (came != count_events(writes, n, "\"straggler\""))
        sim_fail(sim, "%zu came to be stragglers, and as many events there are not", came);
    if (went != count_events(writes, n, "\"straggler-over\""))
        sim_fail(sim, "%zu are stragglers no more, and as many events there are not", went);
}
