/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as one of its members holds it: rank, orders, group.
 *
 * Configure > prepare > [configuration] > step thread
 *
 * Immutable once prepared, but for `steal`; owned by the mailbox, then by the step thread.
 *
 * How the members get the same state is decided while the configuration is prepared.  With a
 * roster: newcomers are fed beside the training, and the configuration is entered by the flip of a
 * vote or not at all.  Without one: members align when they open the configuration
 * (worker/join/opening.h). */
#ifndef RB_WORKER_CONFIGURATION_H
#define RB_WORKER_CONFIGURATION_H

#include "base/error.h"
#include "coll/coll.h"
#include "kernels/device.h"
#include "control.pb-c.h"
#include "plan.pb-c.h"
#include "worker/circle.h"
#include "worker/join/feed.h"
#include "worker/join/roster.h"
#include "worker/state/placement.h"
#include "worker/stages/stage.h"
#include "worker/step/steal.h"

#include <stdatomic.h>
#include <stdint.h>

struct rb_configuration {
    uint32_t number;
    uint32_t rank, size;
    bool recovers;   /* it follows a death */
    bool stands;     /* its state is gathered to be saved: it trains no step */
    uint64_t digest; /* hash of the digest in Configure: what votes compare */
    char *restore;   /* where to load the state from when no member has any; NULL: not here */
    Rb__Plan *plan;
    const Rb__RankPlan *orders; /* this rank's, in `plan` */
    struct rb_placement placement;
    struct rb_stage *stage; /* NULL: one rank computes each microbatch alone */
    uint32_t lanes; /* of parts of the filters, agreed by all (worker/lanes.h); 0: not agreed on */
    struct rb_steal *steal; /* NULL: each rank computes what is planned for it */
    struct rb_coll *coll;
    struct rb_circle *circle;       /* sums go from GPU to GPU; NULL: by `coll` */
    struct rb_circle_coming coming; /* the circle that is made after a death */
    struct rb_roster *roster;       /* NULL: all members open the configuration at once */
    uint8_t *wants; /* by block: to be held before the flip; NULL: nothing, or this member is fed */
    struct rb_feed *feed; /* uses `coll` until the flip; NULL: this rank feeds nobody */
};

/* Does the configuration train in laps (worker/stages/lap.h)? */
static inline bool rb_configuration_laps(const struct rb_configuration *configuration)
{
    return configuration->stage && configuration->stage->laps;
}

/* Read the plan that `order` names and check it against the model: each microbatch is computed once
 * (in each stage), every rank reduces alike and votes once.  coll is left NULL. */
int rb_configuration_read(const Rb__Configure *order, const Rb__Model *model,
                          struct rb_configuration **ret_configuration, struct rb_why *why);

/* Meet the other members (rb_coll_open). */
int rb_configuration_meet(struct rb_configuration *configuration, const Rb__Configure *order,
                          const char *job, struct rb_listener *listener, int timeout_ms,
                          const atomic_bool *cancel, struct rb_why *why);

/* Tell the others this member's role and which blocks it holds (1; else 0), and hear the same of
 * them: fills in the roster, where there can be one. */
int rb_configuration_introduce(struct rb_configuration *configuration, const struct rb_role *role,
                               const uint8_t *held, struct rb_why *why);

/* Find out whether sums and moves can go from GPU to GPU.  ret_none: why they cannot, empty where
 * nobody expects it.  An error is one of the links. */
int rb_configuration_circle(struct rb_configuration *configuration, struct rb_device *device,
                            struct rb_why *ret_none, struct rb_why *why);

/* After a death.  inherit: begin to make a circle out of what is left of `past`, which is empty
 * afterwards.  arrive: ask after each step whether the circle is ready.  Where the sums change to
 * the circle, or will not, that is logged. */
int rb_configuration_inherit(struct rb_configuration *configuration, struct rb_device *device,
                             struct rb_circle_past *past, struct rb_why *why);
int rb_configuration_arrive(struct rb_configuration *configuration, int64_t level,
                            struct rb_why *why);

/* Must this member be fed? */
bool rb_configuration_follows(const struct rb_configuration *configuration);

/* Before a step uses the group: wait until the feed is done with it. */
int rb_configuration_settle(const struct rb_configuration *configuration, struct rb_why *why);

/* Ends the feed, closes the group. */
void rb_configuration_free(struct rb_configuration *configuration);

#endif
