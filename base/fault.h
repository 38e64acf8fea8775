/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points: named moments at which a test build can be made to die.
 *
 * a test's environment > [fault] > worker, daemon
 *
 * `rb_fault("worker.vote.sent")` is a moment; without the build option `faults` it compiles to
 * nothing.  A program arms itself once, at its start, from its environment:
 *
 *   RUBATO_FAULT=POINT[:rank=R][:at=N][:do=kill|stop|exit|MSms][,...]
 *   RUBATO_FAULT=@FILE, which has that text
 *   RUBATO_FAULT_ONCE=PATH
 *
 * At the Nth passage (of the process; N is 1 unless given) the process sends itself SIGKILL or
 * SIGSTOP, or exits; with do=20ms it sleeps for 20 ms there and at every later passage, as a slower
 * device would.  `rank` is the rank that the process was last told to prepare for.  With
 * RUBATO_FAULT_ONCE the fault first makes the file PATH.I (I: its place in the list, from 0), and
 * lets the moment pass if that file is there already.  So it fires once in a whole cluster, and not
 * in the process that replaces the dead one.  Sleeping is not bound to the file.
 *
 * This is the one place with global state: what is armed belongs to the process, as death does. */
#ifndef RB_BASE_FAULT_H
#define RB_BASE_FAULT_H

#include "base/error.h"

#include <stdbool.h>

/* The name of each point, and what has just happened there.  docs/faults.md names every one, and
 * tests/e2e/sweep.py goes through them as `rubato-worker --faults` prints them. */
#define RB_FAULT_POINTS(X)                                                                         \
    X("worker.preparing", "told to prepare a configuration")                                       \
    X("worker.met", "connected to all members of it, and nobody knows")                            \
    X("worker.go", "told to flip to it")                                                           \
    X("worker.feed", "a piece of the state, or what a step did to it, goes to a newcomer")         \
    X("worker.follow", "such a piece has come")                                                    \
    X("worker.followed", "a newcomer has all of them and is not in yet")                           \
    X("worker.entered", "a new configuration is entered, and nobody knows")                        \
    X("worker.opening", "about to say which state it has")                                         \
    X("worker.opening.copy", "a piece of the state was sent or received")                          \
    X("worker.opening.hashed", "all members hold the same bits")                                   \
    X("worker.computed", "a microbatch is in the local sums")                                      \
    X("worker.reduce", "about to reduce a bucket")                                                 \
    X("worker.reduced", "a bucket is reduced")                                                     \
    X("worker.frame", "one peer has all of a message, others perhaps not")                         \
    X("worker.vote", "all is reduced, its record is about to be sent")                             \
    X("worker.voted", "it knows the decision and has changed nothing")                             \
    X("worker.update", "in the middle of the update: a block is applied")                          \
    X("worker.viewed", "it has read the sums of the others, who perhaps have not read its own")    \
    X("worker.gather", "its blocks are updated, their weights are about to be sent")               \
    X("worker.gathered", "all weights are of the new level")                                       \
    X("worker.taken", "it was given blocks that it is to hold in a configuration to come")         \
    X("worker.committed", "the step is committed, its row is not written")                         \
    X("worker.row", "its row is written, nothing else")                                            \
    X("worker.frozen", "it lost a peer and says so")                                               \
    X("worker.stands", "it has gathered the state to be saved, and trains no step")                \
    X("worker.save.copied", "the state is copied to be saved")                                     \
    X("worker.save.written", "a checkpoint is written under a temporary name")                     \
    X("worker.save.renamed", "a checkpoint has its name")                                          \
    X("worker.done", "the last step is committed, nothing is saved")                               \
    X("daemon.elected", "it coordinates")                                                          \
    X("daemon.preparing", "a new configuration is in etcd")                                        \
    X("daemon.going", "a configuration is in etcd as ready: GO")                                   \
    X("daemon.active", "a configuration is in etcd as active")                                     \
    X("daemon.spawned", "a worker is started")                                                     \
    X("daemon.configured", "a worker is told to prepare")                                          \
    X("daemon.went", "a worker is told to flip")                                                   \
    X("daemon.heard", "a worker has said something, other than rows")                              \
    X("daemon.row", "a row is kept")                                                               \
    X("daemon.reported", "a worker's report is in etcd")                                           \
    X("daemon.reaped", "a worker ended and nobody knows")                                          \
    X("daemon.telling", "a worker ended, the other nodes' agents are about to be told")            \
    X("daemon.told", "told that a worker of another node is dead")                                 \
    X("daemon.foreseen", "a survivor is about to be told to go on without the dead")

#ifdef RB_FAULTS

/* plan, once: the texts above; NULL: nothing is armed.  RB_EINVAL; RB_EIO if a file cannot be read,
 * but a missing file arms nothing.  Call it before there is a second thread. */
int rb_fault_arm(const char *plan, const char *once, struct rb_why *why);

void rb_fault_rank(int rank);
void rb_fault(const char *point);

/* Passages of an armed point in this process; -1: the point is not armed. */
long rb_fault_passages(const char *point);

#else

static inline int rb_fault_arm(const char *plan, const char *once, struct rb_why *why)
{
    (void)plan, (void)once, (void)why;
    return 0;
}

static inline void rb_fault_rank(int rank)
{
    (void)rank;
}

static inline void rb_fault(const char *point)
{
    (void)point;
}

#endif

/* The points of this build, from 0; false past the last, and at once if the build has none. */
bool rb_fault_describe(int i, const char **ret_name, const char **ret_meaning);

#endif
