/* SPDX-License-Identifier: Apache-2.0 */
/* The job file as a value: read, overridden, checked, completed.
 *
 * job.yaml > [spec] > Spec (complete) > daemon, plan */
#ifndef RB_PROTO_SPEC_H
#define RB_PROTO_SPEC_H

#include "base/error.h"
#include "spec.pb-c.h"

#include <stdbool.h>

/* Read `path` ("-": stdin), apply n overrides "spec.key=value", check and complete: fill in
 * defaults, make paths absolute (from the job file's folder; for stdin or a pipe from the current
 * one), take the name from metadata.  Every message carries file, line and column where there are
 * any.  Free with rb__job_file__free_unpacked. */
int rb_spec_read(const char *path, const char *const *overrides, int n, Rb__JobFile **ret_job,
                 struct rb_why *why);

/* The same from memory; relative paths count from `folder`. */
int rb_spec_parse(const char *file, const char *folder, const char *text, size_t size,
                  const char *const *overrides, int n, Rb__JobFile **ret_job, struct rb_why *why);

/* Ranges and words of a complete spec; called by both of the above and by the daemon. */
int rb_spec_check(const char *name, const Rb__Spec *spec, struct rb_why *why);

/* Is the job pinned to an asynchronous pipeline, whose bits depend on its stages? */
bool rb_spec_asynchronous(const Rb__Spec *spec);

/* Is a numeric class one of this kind of device?  Its name begins with the kind.  NULL is of
 * none. */
bool rb_spec_class_is(const char *numeric_class, const char *kind);

/* Steps in all, given how many samples an epoch has and how many tokens a sample (0: none).  At
 * least the asked number of epochs or tokens is trained: a part of a step counts as a step.  0: the
 * job file counts tokens and the data have none. */
int64_t rb_spec_steps(const Rb__Spec *spec, int64_t samples, int64_t tokens_a_sample);

/* A size as users write it: bytes, or 500k 64M 8G 1T, or 512Ki 64Mi 4Gi 1Ti. */
int rb_spec_bytes(const char *text, uint64_t *ret_bytes);

/* A duration as users write it: seconds, or 500ms 90s 5m 2h 1d 1m30s. */
int rb_spec_duration_ms(const char *text, int64_t *ret_ms);

#endif
