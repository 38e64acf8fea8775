/* SPDX-License-Identifier: Apache-2.0 */
/* A rubatod of a few lines, and rubatoctl run against it. */
#ifndef RB_TESTS_CTL_FAKE_H
#define RB_TESTS_CTL_FAKE_H

#include <sys/types.h>

/* The answer to a method.  Rows of one method are used in turn; the last one stays. */
struct fake_reply {
    const char *method;
    const char *body; /* JSON; NULL: {} */
    int error;        /* enum rb_error */
    const char *why;
    const char *data; /* sent first, in two pieces */
    enum { FAKE_ANSWER, FAKE_HANG_UP, FAKE_GARBAGE, FAKE_SILENCE } how;
};

struct fake {
    char folder[64];
    char endpoint[96];
    pid_t pid;
};

/* `replies` ends with a NULL method. */
void fake_start(struct fake *fake, const struct fake_reply *replies);
void fake_stop(struct fake *fake);

/* Every call so far, a line each: "method node body".  The caller frees it. */
char *fake_calls(const struct fake *fake);

struct outcome {
    int code;
    char *out, *err;
};

/* Start rubatoctl with these words (the last one NULL) in the fake's folder, its file `in` as stdin
 * where there is one, and wait for its end. */
pid_t fake_spawn(const struct fake *fake, const char *const *words);
struct outcome fake_wait(const struct fake *fake, pid_t pid);
struct outcome fake_run(const struct fake *fake, const char *const *words);
void outcome_done(struct outcome *outcome);

#endif
