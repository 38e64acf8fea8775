/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of one call of rubatoctl: its exit code, what it prints, what it asks.
 *
 * words > [cli] > fake_run > exit code, stdout, stderr, calls
 *
 * Each check fails the test if rubatoctl does otherwise. */
#ifndef RB_TESTS_CTL_CLI_H
#define RB_TESTS_CTL_CLI_H

#include "tests/ctl/fake.h"

#include <jansson.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Answers to `status`, and a job file whose model is gpt.onnx. */
extern const char cli_running[], cli_succeeded[], cli_job[];

/* The exit code, a part of stdout and a part of stderr. */
void cli_expect(const struct fake *fake, int code, const char *out, const char *err,
                const char *const *words);

/* What rubatoctl prints where it succeeds.  The caller frees it. */
json_t *cli_run_json(const struct fake *fake, const char *const *words);

/* `text`, which may be NULL, contains `part`. */
void cli_has(const char *text, const char *part);

/* A call so far contains `part`. */
void cli_called(const struct fake *fake, const char *part);

/* Write a file in the fake's folder. */
void cli_put(const struct fake *fake, const char *name, const char *text);

#endif
