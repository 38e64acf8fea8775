/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of rubato-worker.
 *
 * daemon/agent/spawn.c, a shell > [options] > main, control, listener */
#ifndef RB_WORKER_CONTROL_OPTIONS_H
#define RB_WORKER_CONTROL_OPTIONS_H

#include "base/error.h"

#include <sched.h>
#include <stdbool.h>

struct rb_worker_options {
    const char *job;           /* id, for groups and temporary names */
    const char *worker;        /* unique name of this process */
    const char *kind;          /* of the device */
    int device;                /* its number among those of its kind on the node */
    int cpu;                   /* core to stay on; -1: any */
    cpu_set_t cores;           /* the cores there were before: for threads in no hurry */
    const char *run_dir;       /* where the sockets go */
    const char *host;          /* address for peers on other machines */
    const char *log;           /* file for stderr; NULL: as it is */
    const char *numeric_class; /* print the numeric class of devices of this kind, and nothing else;
                                * NULL: work */
    const char *devices;       /* print the devices of this kind, and nothing else */
    const char *profile; /* print how long the program of this Model takes, and nothing else */
    bool faults;         /* print the fault points, and nothing else */
};

extern const char rb_worker_usage[];

/* The strings point into argv.  RB_EINVAL names what is wrong. */
int rb_worker_options_read(int argc, char **argv, struct rb_worker_options *ret_options,
                           struct rb_why *why);

#endif
