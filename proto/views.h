/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads sums where they were made: what the planner prices is what workers do.
 *
 * [views] > plan/simulate/predict, worker/views */
#ifndef RB_PROTO_VIEWS_H
#define RB_PROTO_VIEWS_H

/* So many data-parallel cores of one host at most, which all have all of the state: it takes fewer
 * passes over memory than sending sums. */
enum { RB_VIEWS_RANKS = 3 };

#endif
