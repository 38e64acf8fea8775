/* SPDX-License-Identifier: Apache-2.0 */
/* rubatod: one a node. */
#include "base/fault.h"
#include "base/file.h"
#include "base/version.h"
#include "daemon/agent/spawn.h"
#include "daemon/etcd/private_etcd.h"
#include "daemon/life.h"
#include "daemon/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A data set of many files takes a descriptor for each, here at a submit and in workers, which
 * inherit the limit: systems give 1024 to begin with, and more to a process that asks. */
static void want_descriptors(void)
{
    enum { PLENTY = 65536 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= PLENTY)
        return;
    limit.rlim_cur = limit.rlim_max < PLENTY ? limit.rlim_max : PLENTY;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Threads for what may hang: folders on a network that is gone must not keep hosts from being
 * looked up, which libuv does on the same threads. */
static void want_threads(void)
{
    setenv("UV_THREADPOOL_SIZE", "16", 0);
}

int main(int argc, char **argv)
{
    struct rb_settings settings = {0};
    struct rb_why why = {0};
    int *cores = NULL;

    rb_file_hold_standard();
    if (argc > 1 && !strcmp(argv[1], RB_PRIVATE_ETCD_LAUNCH))
        return rb_private_etcd_launch(argc, argv);
    unsigned n_cores = rb_cores(&cores);
    free(cores);
    if (rb_settings_read(argc, argv, n_cores, &settings, &why)) {
        fprintf(stderr, "rubatod: %s; see: rubatod --help\n", why.text);
        return RB_EXIT_USAGE;
    }
    if (settings.help)
        fputs(rb_settings_usage, stdout);
    if (settings.version)
        puts("rubatod " RUBATO_VERSION);
    if (!settings.value)
        return RB_EXIT_OK;
    if (rb_fault_arm(getenv("RUBATO_FAULT"), getenv("RUBATO_FAULT_ONCE"), &why)) {
        fprintf(stderr, "rubatod: %s\n", why.text);
        return RB_EXIT_USAGE;
    }
    want_descriptors();
    want_threads();
    int status = rb_life(settings.value);
    rb_settings_done(&settings);
    return status;
}
