/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: rubatod's command line and its file, as one value.
 *
 * argv, --config FILE > [settings] > DaemonSettings (complete) */
#ifndef RB_DAEMON_SETTINGS_H
#define RB_DAEMON_SETTINGS_H

#include "base/error.h"
#include "settings.pb-c.h"

#include <stdbool.h>

struct rb_settings {
    Rb__DaemonSettings *value; /* complete; free with rb_settings_done */
    bool help, version;        /* asked for: then there is no value */
};

extern const char rb_settings_usage[];

/* The command line wins over the file.  What is missing is filled in: state_dir made absolute, the
 * node's name, cpu_devices = `cores`.  Any error is one of usage. */
int rb_settings_read(int argc, char *const *argv, unsigned cores, struct rb_settings *ret,
                     struct rb_why *why);
/* How long to wait for jobs to leave when told to stop. */
uint64_t rb_settings_leave_ms(const Rb__DaemonSettings *settings);

/* Where others reach this node's rubatod, and its workers: an address without a port. */
char *rb_settings_host(const Rb__DaemonSettings *settings);

void rb_settings_done(struct rb_settings *settings);

#endif
