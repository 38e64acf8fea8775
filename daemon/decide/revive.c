/* SPDX-License-Identifier: Apache-2.0 */
/* Behind a GO members flip without being asked again.  So a configuration that is given up then,
 * because a node of its members is out of reach, may have been flipped to before its members hear
 * that it was given up, or before the coordinator hears of the flip.  Where a member trains, there
 * the job is: that configuration becomes the next one again, which all see has been flipped to.
 * What was decided meanwhile, for members that have left the old one, is given up.  Until then
 * agents keep the members that have flipped (daemon/agent/rules_serve.c).
 *
 * A member that gathered a state to be saved does not train: it stands, and is recovered from like
 * any member that is frozen (crash.c). */
#include "daemon/decide/turn.h"

#include <inttypes.h>

static bool is_entered(const struct rb_turn *turn, const Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        const Rb__WorkerReport *report;
        enum rb_life life = rb_member_life(turn->facts, turn->in, conf, m, &report);

        if (life == RB_LIFE_HERE && report->active == conf->number && rb_report_holds_state(report))
            return true;
    }
    return false;
}

bool rb_decide_revive(struct rb_turn *turn)
{
    const struct rb_fact_list *confs = &turn->in->configurations;
    Rb__Configuration *edit;

    for (size_t i = confs->n; i-- > 0;) {
        const Rb__Configuration *conf = confs->at[i].configuration;

        if (!rb_configuration_given_up(turn->in, conf) || rb_decide_gathers(conf) ||
            !is_entered(turn, conf))
            continue;
        rb_turn_abandon(turn, "an older configuration had been flipped to", false, NULL);
        edit = rb_turn_edit(turn, conf);
        edit->state = RB__CONFIGURATION__STATE__GO;
        edit->reason = NULL;
        edit->has_failed = 0;
        edit->n_blamed = 0;
        rb_turn_event(turn, NULL, "revived",
                      "configuration %" PRIu32 " was given up after it had been flipped to",
                      conf->number);
        turn->state.has_next = 1;
        turn->state.next = conf->number;
        turn->state_changed = true;
        return true;
    }
    return false;
}
