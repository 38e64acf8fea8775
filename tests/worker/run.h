/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the tiny job on workers, and its result when nothing happens to it.
 *
 * tiny (the job), cluster (processes) > [run] > tests of whatever may happen to workers */
#ifndef RB_TESTS_WORKER_RUN_H
#define RB_TESTS_WORKER_RUN_H

#include "tests/worker/cluster.h"
#include "tests/worker/tiny.h"

enum { RUN_MOST = 5 }; /* ranks that there are plans for */

/* The path of rubato-worker, set by run_begin or by main. */
extern const char *run_program;

/* The command line of a test: RUBATO-WORKER [FILTER].  false: it is something else, and stderr says
 * so. */
bool run_begin(int argc, char **argv);

/* run_job is short: its end is compared.  run_endless is the same for tests that interfere with it:
 * whatever they do is in time, however slow the machine is, because the run ends when its test has
 * seen enough. */
extern const struct tiny_options run_job, run_endless;

struct run {
    struct cluster cluster;
    int64_t steps; /* of an endless run: the steps that it made, once it has ended */
    char weights[160];
};

void run_open(struct run *run, const struct tiny_options *options);
void run_close(struct run *run);

/* Workers that start meanwhile die at this fault point (base/fault.h); only the first that passes
 * it dies. */
void run_arm(struct run *run, const char *fault);
void run_disarm(void);

/* Start workers with that fault, wait for a death by it, and recover. */
void run_with_death(struct run *run, const char *fault, int workers);

/* Ends the run: its digest is `alone`, and at least one worker reported a row of every step. */
void run_finish(struct run *run, const char *alone);

/* Ends an endless run where it is.  Its state is saved and is, to the bit, what options `alone`
 * give on one device in as many steps, and so is every row that was reported.  All workers leave in
 * order. */
void run_end(struct run *run, const struct tiny_options *alone);
/* And a row of every step was reported. */
void run_end_whole(struct run *run, const struct tiny_options *alone);

/* The result of options on one device. */
void run_alone(const struct tiny_options *options, char ret_digest[33]);

/* The same for run_job with its rows, which are kept: once, before the other tests. */
void run_refer(void);
const char *run_reference(void);
Rb__Row *run_reference_row(int64_t step);
/* Ends a run of run_job: the same digest, and the same numbers in every row that was reported. */
void run_compare(struct run *run);

#endif
