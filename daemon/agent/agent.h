/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: this node's workers, spawned, adopted, told what facts say, reported, dismissed.
 *
 * store > [agent] > rubato-worker processes
 *
 * What to do is decided by rules (pure); here are the processes, sockets and files.  It works
 * the same with and without a leader, and without etcd on the last known facts.
 *
 * Its RPC methods, served at the node that has the worker or the file (all bodies have `job`, an
 * id):
 *
 * - node-metrics {job, after: step, limit, lost?} -> {columns: [...], rows: [[...]], last: newest
 *   step}: rows of one node, by step, beyond `after` (default 0), at most those of `limit` steps
 *   (default 10000, at most 100000); `lost`: also of commits that a later one of the same step has
 *   replaced.  Columns: rb_rows_columns in daemon/agent/rows.h.  A node has the rows of the steps
 *   in which it had a worker.
 * - node-logs {job, after: {FILE: offset}, limit} -> {pieces: [{file, node, offset, text}]}:
 *   `offset` is where the text ends: what to ask with next time.
 * - node-save {job, folder?, export?: bool} -> {step, path, bytes, node}: one of the job's workers
 *   here that has state writes it, while training goes on.  Without a folder an export goes to
 *   STATE/jobs/ID/export, a checkpoint to the job's checkpoint.path or, where it has none,
 *   STATE/jobs/ID/checkpoints.  A checkpoint is registered in facts too.  RB_ENOTFOUND: no such
 *   worker here.
 * - node-file {job, path, listed?: bool} -> data pieces, then {bytes}: a file below STATE/jobs/ID,
 *   the job's checkpoint.path or its resume folder.  `listed`: nothing but what the manifest of its
 *   checkpoint lists, RB_EUNREADABLE else.
 * - blob {digest} -> data pieces, then {bytes}.
 */
#ifndef RB_DAEMON_AGENT_AGENT_H
#define RB_DAEMON_AGENT_AGENT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct rb_daemon;
struct rb_agent;

struct rb_agent *rb_agent_new(struct rb_daemon *daemon);

/* Adopt the workers that live, clean up behind those that do not, and start to follow facts. */
int rb_agent_start(struct rb_agent *agent, struct rb_why *why);

/* Act no more, because the node is about to leave etcd: a worker that is spawned now would be left
 * behind. */
void rb_agent_stop(struct rb_agent *agent);

size_t rb_agent_workers(const struct rb_agent *agent); /* living processes */

/* No process is left, and facts have what became of each. */
bool rb_agent_idle(const struct rb_agent *agent);
/* Kill all workers but those that save the state of their job, which end by themselves.  Returns
 * how many those are. */
size_t rb_agent_kill_all(struct rb_agent *agent);

/* Leaves workers as they are. */
void rb_agent_free(struct rb_agent *agent);

#endif
