/* SPDX-License-Identifier: Apache-2.0 */
/* All of the state is lost, or a part of it: back to the newest checkpoint, or to the start.  Only
 * this counts against failure.maxRestarts, and only within failure.window. */
#include "daemon/decide/turn.h"

#include "daemon/facts/restore.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <string.h>

/* An hour for what cannot be read. */
static uint64_t window_ms(const char *text)
{
    int64_t ms;

    return text && !rb_spec_duration_ms(text, &ms) ? (uint64_t)ms : 3600000;
}

static void end_configurations(struct rb_turn *turn, const char *reason)
{
    rb_turn_end(turn, rb_turn_next(turn), reason);
    rb_turn_end(turn, rb_turn_active(turn), reason);
    turn->state.active = turn->state.next = 0;
    turn->state.saver = NULL;
    turn->state_changed = true;
    rb_turn_suspect(turn, false);
}

void rb_decide_fail(struct rb_turn *turn, const char *reason)
{
    end_configurations(turn, reason);
    rb_turn_phase(turn, RB__PHASE__Failed, reason);
    rb_turn_event(turn, NULL, "failed", "%s", reason);
}

/* What the workers said, if all ended by themselves; NULL: at least one was killed or is lost. */
static const char *own_failure(const struct rb_roll *roll)
{
    const char *said = NULL;

    for (size_t i = 0; i < roll->n; i++) {
        const Rb__WorkerReport *report = roll->at[i].report;

        if (!report || report->state != RB__WORKER_REPORT__STATE__FAILED || report->lost)
            return NULL;
        said = report->reason ? report->reason : "its workers failed without a word";
    }
    return said;
}

static size_t count_restart(struct rb_turn *turn, uint64_t window)
{
    uint64_t *kept = RB_ARENA_NEW(turn->arena, uint64_t, turn->state.n_restarts + 1);
    size_t n = 0;

    for (size_t i = 0; i < turn->state.n_restarts; i++)
        if (turn->state.restarts[i] + window > turn->now)
            kept[n++] = turn->state.restarts[i];
    kept[n++] = turn->now;
    turn->state.restarts = kept;
    turn->state.n_restarts = n;
    turn->state_changed = true;
    return n;
}

void rb_decide_restart(struct rb_turn *turn, const struct rb_roll *roll)
{
    const Rb__FailureSpec *failure = turn->in->job.job->spec->failure;
    uint32_t most = failure ? failure->max_restarts : 3;
    const char *said = own_failure(roll), *first = said;
    const char *what = roll->holders ? "a part of the state was lost with the workers that held it"
                                     : "all its workers were lost";
    const Rb__Checkpoint *source;
    bool local;
    size_t n;

    if (rb_decide_saved_meanwhile(turn, roll))
        return;
    if (turn->in->wish.wish->cancelled) { /* there is nothing to keep any more */
        rb_decide_cancel(turn);
        return;
    }
    if (said) {
        rb_decide_fail(turn, said);
        return;
    }
    for (size_t i = 0; i < roll->n && !first; i++)
        if (roll->at[i].report && roll->at[i].report->reason)
            first = roll->at[i].report->reason;
    n = count_restart(turn, window_ms(failure ? failure->window : NULL));
    if (n > most) {
        rb_decide_fail(turn, rb_turn_text(turn,
                                          "%s%s%s, %zu times by now: failure.maxRestarts is "
                                          "%" PRIu32,
                                          what, first ? ": " : "", first ? first : "", n, most));
        return;
    }
    source = rb_restore_source(turn->in, turn->arena, &local);
    end_configurations(turn, what);
    rb_turn_phase(turn, RB__PHASE__Pending, what);
    if (source)
        rb_turn_event(turn, NULL, "restarted", "%s%s%s; goes on from step %" PRId64 " in %s", what,
                      first ? ": " : "", first ? first : "", source->step, source->path);
    else
        rb_turn_event(turn, NULL, "restarted", "%s%s%s and there is no checkpoint; starts again",
                      what, first ? ": " : "", first ? first : "");
}
