/* SPDX-License-Identifier: Apache-2.0 */
/* Sums from GPU to GPU: the members of a configuration agree by its links whether they can.
 *
 * prepare > [circle] > links (coll), devices
 *
 * A circle belongs to one configuration, so each configuration makes a new one, beside the
 * training.  The links carry everything else, and also sums and moves (worker/carry.h) where there
 * is no circle.
 *
 * After a death nobody waits for a circle.  The survivors make theirs out of the old one while they
 * train by the links, and ask each other after each step whether it is ready. */
#ifndef RB_WORKER_CIRCLE_H
#define RB_WORKER_CIRCLE_H

#include "coll/coll.h"
#include "kernels/device.h"

/* All members call this in the same place.  *ret_circle NULL: the links are used, and `ret_none`
 * says why.  An error is one of the links. */
int rb_circle_agree(struct rb_coll *coll, uint64_t tag, struct rb_device *device, int timeout_ms,
                    struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why);

/* A circle that was stopped by a death, and this rank's place in it.  circle NULL: there was
 * none. */
struct rb_circle_past {
    struct rb_circle *circle;
    uint32_t number; /* of its configuration */
    int rank, size;
};

/* A circle that is being made out of an old one. */
struct rb_circle_coming {
    bool on;                  /* all ranks wait for it; the same at every rank */
    struct rb_circle *circle; /* NULL: this rank could not make it, which the others will hear, */
    struct rb_why lost;       /* and why */
    uint64_t until;           /* no rank waits for it longer than this */
};

/* All members call this in the same place; `past` is empty afterwards.  ret_coming->on false: there
 * will be no circle, and ret_none says why where one was to be expected.  An error is one of the
 * links. */
int rb_circle_inherit(struct rb_coll *coll, uint64_t tag, struct rb_circle_past *past,
                      int timeout_ms, struct rb_circle_coming *ret_coming, struct rb_why *ret_none,
                      struct rb_why *why);

/* While coming->on: is the circle ready at every rank?  Then it moves to *ret_circle and coming->on
 * is false.  If any rank gives up, all do, and `ret_none` says why. */
int rb_circle_arrive(struct rb_coll *coll, uint64_t tag, struct rb_circle_coming *coming,
                     struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why);

#endif
