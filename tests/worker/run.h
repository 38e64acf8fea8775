/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the tiny job on workers, and what it comes to when nothing happens to it.
 *
 * tiny (the job), cluster (processes) > [run] > tests of whatever may happen to workers */
#ifndef RB_TESTS_WORKER_RUN_H
#define RB_TESTS_WORKER_RUN_H

#include "tests/worker/cluster.h"
#include "tests/worker/tiny.h"

enum { RUN_MOST = 5 }; /* ranks that there are plans for */

/* rubato-worker: run_begin, or main, sets it. */
extern const char *run_program;

/* The command line of a test: RUBATO-WORKER [FILTER].  false: it is not that, and stderr has it. */
bool run_begin(int argc, char **argv);

/* Short: what is compared at its end.  And the same for those who meddle with it: whatever happens,
 * and however slow the machine is, it comes in time, as the run ends when its test has seen enough.
 */
extern const struct tiny_options run_job, run_endless;

struct run {
    struct cluster cluster;
    int64_t steps; /* of an endless one: those that it made, once it has ended */
    char weights[160];
};

void run_open(struct run *run, const struct tiny_options *options);
void run_close(struct run *run);

/* Workers that start meanwhile die at this fault point (base/fault.h), the first who passes it
 * alone. */
void run_arm(struct run *run, const char *fault);
void run_disarm(void);

/* Start workers with that, wait for a death of it, and recover. */
void run_with_death(struct run *run, const char *fault, int workers);

/* Ends the run: that digest, and a row of every step, told by one of them at least. */
void run_finish(struct run *run, const char *alone);

/* Ends an endless run, where it is: its state is saved and is, to the bit, what these options come
 * to on one device in as many steps, and so is every row that was told.  All leave in order. */
void run_end(struct run *run, const struct tiny_options *alone);
/* And a row of every step was told. */
void run_end_whole(struct run *run, const struct tiny_options *alone);

/* What options come to on one device. */
void run_alone(const struct tiny_options *options, char ret_digest[33]);

/* The same of run_job with its rows, kept: once, before the others. */
void run_refer(void);
const char *run_reference(void);
Rb__Row *run_reference_row(int64_t step);
/* Ends a run of run_job: the same digest, and the same numbers in every row that was told. */
void run_compare(struct run *run);

#endif
