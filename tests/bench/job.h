/* SPDX-License-Identifier: Apache-2.0 */
/* A job in a temporary folder, loaded in this process: what the benches of training measure.
 *
 * model new, data > compile > [job] > rb_model at level 0, and the orders of one device alone or of
 * a rank of several */
#ifndef RB_TESTS_BENCH_JOB_H
#define RB_TESTS_BENCH_JOB_H

#include "worker/configuration.h"
#include "worker/model.h"
#include "worker/step/step.h"

enum { BENCH_MAX_SETTINGS = 8, BENCH_MAX_WORKERS = 8 };

/* A model, its settings and how it is trained. */
struct bench_case {
    const char *name;                         /* on the command line */
    const char *kind;                         /* of `model new`; NULL: of a file */
    const char *onnx;                         /* that file */
    const char *settings[BENCH_MAX_SETTINGS]; /* NULL behind the last */
    const char *data;                         /* text | words | classes */
    int64_t features[3];                      /* classes: the shape of a sample, 0 behind it */
    int64_t seq;                              /* text and words: elements in a sample */
    int64_t batch, steps;
    const char *optimizer; /* as in the job file */
    const char *precision; /* the same; NULL: fp32 */
    const char *device;    /* NULL: cpu; else the first of this kind */
};

struct bench_job {
    char folder[64];
    struct rb_model *model;
    struct rb_listener *listener;
    struct rb_configuration configuration; /* this process alone, or with others */
    char summary[320];
    const char *device;
};

/* Make the data, compile and load.  Ends the process with a sentence where anything fails. */
void bench_job_open(const struct bench_case *from, int64_t micro_batch, struct bench_job *ret_job);
void bench_job_close(struct bench_job *job);

/* The same for several processes: one makes the job, then each loads it and waits for the
 * others. */
void bench_job_make(const struct bench_case *from, int64_t micro_batch, struct bench_job *ret_job);
void bench_job_load(struct bench_job *job, int rank, int size);
void bench_job_unload(struct bench_job *job);
void bench_job_remove(struct bench_job *job);

/* Back to the initial weights. */
void bench_job_reset(struct bench_job *job);

/* One step as a worker takes it. */
void bench_job_step(struct bench_job *job, struct rb_step_result *ret_result);

/* If `err` is set, prints why and ends the process. */
void bench_check(int err, const struct rb_why *why);

/* The time for which this thread has had a core: other load on a shared machine does not count. */
uint64_t bench_clock_ns(void);

/* ms by the clock since rb_clock_ns() was `start`. */
double bench_since(uint64_t start);

/* The median of n numbers; sorts them. */
double bench_median(double *values, size_t n);

/* A line on the processor, its numeric class, and how busy the machine is. */
void bench_cpu_print(void);

#endif
