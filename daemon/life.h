/* SPDX-License-Identifier: Apache-2.0 */
/* A rubatod's life: everything is started in order, runs until a signal, and is stopped in order.
 *
 * main > [life] > all parts of the daemon */
#ifndef RB_DAEMON_LIFE_H
#define RB_DAEMON_LIFE_H

#include "settings.pb-c.h"

enum rb_exit {
    RB_EXIT_OK = 0,
    RB_EXIT_USAGE = 64,
    RB_EXIT_UNAVAILABLE = 69, /* no etcd, an address in use, no rubato-worker, no room */
    RB_EXIT_CONFIG = 78,      /* the state folder or the name is another rubatod's */
};

/* Returns the exit status; what went wrong is logged. */
int rb_life(const Rb__DaemonSettings *settings);

#endif
