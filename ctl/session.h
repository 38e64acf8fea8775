/* SPDX-License-Identifier: Apache-2.0 */
/* One run of rubatoctl: where rubatod is, how to print, when to stop waiting.
 *
 * main > [session] > verbs > client
 *
 * stdout is data, stderr is talk.  Every wait reads ctrl-c from a descriptor, so that a verb cleans
 * up after itself and says that the job goes on. */
#ifndef RB_CTL_SESSION_H
#define RB_CTL_SESSION_H

#include "base/buffer.h"
#include "ctl/client.h"
#include "spec.pb-c.h"

#include <stdbool.h>
#include <stdio.h>

enum rb_exit {
    RB_EXIT_DONE = 0,
    RB_EXIT_FAILED = 1,
    RB_EXIT_USAGE = 2,
    RB_EXIT_NOT_FOUND = 3,
    RB_EXIT_REFUSED = 4,
    RB_EXIT_UNREACHABLE = 5,
    RB_EXIT_TIMEOUT = 124,
    RB_EXIT_INTERRUPTED = 130,
};

enum rb_format { RB_FORMAT_TABLE, RB_FORMAT_JSON, RB_FORMAT_YAML, RB_FORMAT_CSV };

struct rb_session {
    struct rb_line_to to; /* rubatod; interrupt_fd -1: ctrl-c ends the process */
    enum rb_format format;
    FILE *out, *err;
    bool terminal;    /* err is a terminal */
    const char *verb; /* for messages */
};

/* The exit code of an error, as docs/rpc.md lists them. */
int rb_session_exit(int err);

/* Say what went wrong; returns the exit code. */
int rb_session_fail(const struct rb_session *session, int err, const struct rb_why *why);
int rb_session_usage(const struct rb_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ask the leader; where it answers that nothing was done for now (RB_EAGAIN), ask again for half a
 * minute.  Takes the reference to `body`.  deadline: rb_clock_ns; 0: ten minutes, or one minute for
 * methods that only read.  RB_ETIMEOUT comes from the deadline alone: silence of rubatod or etcd is
 * RB_EUNREACHABLE. */
int rb_session_call(const struct rb_session *session, const char *method, json_t *body,
                    uint64_t deadline, json_t **ret_body, struct rb_why *why);

/* A job's complete spec, as its submit left it; free with rb__spec__free_unpacked.  ret_class: the
 * numeric class of the job; free it. */
int rb_session_spec(const struct rb_session *session, const char *job, Rb__Spec **ret_spec,
                    char **ret_class, struct rb_why *why);

/* The same within a longer wait: a rubatod that is being restarted gets half a minute to come back.
 */
int rb_session_ask_again(const struct rb_session *session, const char *method, json_t *body,
                         uint64_t deadline, json_t **ret_body, struct rb_why *why);

/* From here on SIGTERM and SIGHUP are handled like ctrl-c, because there is something to undo. */
void rb_session_heed_ends(const struct rb_session *session);

/* RB_ECANCELED on ctrl-c, RB_ETIMEOUT where the deadline comes first. */
int rb_session_sleep(const struct rb_session *session, int ms, uint64_t deadline,
                     struct rb_why *why);

/* The deadline that --timeout (NULL: none, 0) sets; RB_EINVAL where the text is no duration, or the
 * verb does not wait. */
int rb_session_deadline(const char *timeout, bool waits, uint64_t *ret_deadline,
                        struct rb_why *why);

/* Print as JSON or YAML (tables are printed by the verbs); returns 0. */
int rb_session_print(const struct rb_session *session, const json_t *json);
void rb_session_put(const struct rb_session *session, struct rb_buffer *text); /* and free it */
void rb_session_notes(const struct rb_session *session, const json_t *reply);  /* its "notes" */

#endif
