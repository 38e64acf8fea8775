/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: started, or found again, and their end noticed at once.
 *
 * agent > [spawn] > rubato-worker */
#ifndef RB_DAEMON_AGENT_SPAWN_H
#define RB_DAEMON_AGENT_SPAWN_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct rb_process;

/* how: "status 1", "signal 9 (Killed)", "ended".  Runs once; release the process in it or later. */
typedef void rb_process_ended(const char *how, void *context);

struct rb_spawn {
    const char *program; /* rubato-worker */
    const char *job, *worker, *kind, *run_folder, *host, *log_path;
    uint32_t device;
    int cpu; /* core to be pinned to; -1: none */
};

/* Its own session, one compute thread, stdin from nowhere, both outputs appended to log_path. */
int rb_process_spawn(uv_loop_t *loop, const struct rb_spawn *spawn, rb_process_ended *ended,
                     void *context, struct rb_process **ret, struct rb_why *why);

/* Follow a process that this rubatod did not start.  RB_ENOTFOUND: it is gone. */
int rb_process_adopt(uv_loop_t *loop, pid_t pid, rb_process_ended *ended, void *context,
                     struct rb_process **ret, struct rb_why *why);

/* What keeps a process from running though it lives, as a clause; NULL: nothing that can be seen.
 */
const char *rb_process_stopped(pid_t pid);

pid_t rb_process_pid(const struct rb_process *process);
void rb_process_kill(struct rb_process *process);

/* Stop watching; a living process lives on. */
void rb_process_release(struct rb_process *process);

/* The cores this process may use; *ret_cores is the caller's to free. */
unsigned rb_cores(int **ret_cores);

/* A program that lies beside this one; the caller frees it. */
char *rb_program_beside(const char *name);
char *rb_program_self(void);

/* What a program writes to its standard output before it ends well, added to `out`.  Waits for the
 * program, 5 minutes at most: for use at start, or on a thread. */
int rb_program_output(const char *program, const char *const *arguments, struct rb_buffer *out,
                      struct rb_why *why);

/* One line of that; the caller frees it. */
int rb_program_line(const char *program, const char *const *arguments, char **ret,
                    struct rb_why *why);

#endif
