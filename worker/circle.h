/* SPDX-License-Identifier: Apache-2.0 */
/* Sums from GPU to GPU: whether a configuration's members can, agreed upon by its links.
 *
 * prepare > [circle] > links (coll), devices
 *
 * It is made beside the training, each time anew: a circle is of one configuration.  The links stay
 * for everything else, and for sums and moves (worker/carry.h) where there is none.
 *
 * Behind a death nobody waits for one to be made.  Those who are left make theirs out of the old
 * one while they train by the links, and ask each other behind each step whether it is there. */
#ifndef RB_WORKER_CIRCLE_H
#define RB_WORKER_CIRCLE_H

#include "coll/coll.h"
#include "kernels/device.h"

/* All members call it in the same place.  *ret_circle NULL: the links are used, and `ret_none` says
 * why.  An error is one of the links. */
int rb_circle_agree(struct rb_coll *coll, uint64_t tag, struct rb_device *device, int timeout_ms,
                    struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why);

/* A circle that was stopped by a death, and what this rank was in it.  circle NULL: there was none.
 */
struct rb_circle_past {
    struct rb_circle *circle;
    uint32_t number; /* of its configuration */
    int rank, size;
};

/* One that is made out of another. */
struct rb_circle_coming {
    bool on;                  /* all wait for it: the same at every rank */
    struct rb_circle *circle; /* NULL: it came to nothing here, which the others will hear, */
    struct rb_why lost;       /* and why */
    uint64_t until;           /* it is waited for no longer than this */
};

/* All members call it in the same place; `past` is empty behind it.  ret_coming->on false: there
 * will be none, and ret_none says why where one was to be expected.  An error is one of the links.
 */
int rb_circle_inherit(struct rb_coll *coll, uint64_t tag, struct rb_circle_past *past,
                      int timeout_ms, struct rb_circle_coming *ret_coming, struct rb_why *ret_none,
                      struct rb_why *why);

/* While coming->on: is it there, everywhere?  Then it is *ret_circle and no longer coming; where
 * any gives up, all do, and `ret_none` says why. */
int rb_circle_arrive(struct rb_coll *coll, uint64_t tag, struct rb_circle_coming *coming,
                     struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why);

#endif
