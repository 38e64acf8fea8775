/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks read sums where they were made: what the planner prices is what workers do.
 *
 * [views] > plan/simulate/predict, worker/step/views */
#ifndef RB_PROTO_VIEWS_H
#define RB_PROTO_VIEWS_H

/* At most so many data-parallel cores of one host, which all have all of the state: reading sums
 * takes fewer passes over memory than sending them. */
enum { RB_VIEWS_RANKS = 3 };

#endif
