/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the world share about its workers and agents: for world*.c alone.
 *
 * world > [world_agent] > world_left, world_worker */
#ifndef RB_TESTS_DAEMON_WORLD_INSIDE_H
#define RB_TESTS_DAEMON_WORLD_INSIDE_H

#include "world.h"

/* ---- Workers: world_worker.c ------------------------------------------------------------------*/

/* The process that serves a member, by the world's own knowledge. */
struct worker *world_serving(struct world *world, const char *job, const Rb__Configuration *conf,
                             size_t m);
void world_freeze(struct worker *w);
bool world_same_members(const Rb__Configuration *a, const Rb__Configuration *b);

/* ---- What deaths leave: world_left.c ----------------------------------------------------------*/

/* The foreseen configuration in which the worker trains; NULL: none. */
struct world_left *world_left_of(struct world *world, const struct worker *w);

/* The agent of node `n` knows of deaths of its own at once, and tells the other agents, one now,
 * one later. */
void world_tell_deaths(struct world *world, size_t n);

/* The agent's own members go to what is left, without asking anyone; what is being prepared beside
 * is left alone. */
bool world_go_to_left(struct world *world, size_t n, const struct rb_job_facts *job);

#endif
