/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a job file, and what each stands for.
 *
 * job.yaml > [spec_paths] > Spec > the code that opens them
 *
 * In a complete spec all paths are absolute: the spec is read in processes, and on nodes, that have
 * other current folders. */
#ifndef RB_PROTO_SPEC_PATHS_H
#define RB_PROTO_SPEC_PATHS_H

#include "base/error.h"
#include "spec.pb-c.h"

/* Relative paths count from `folder`. */
void rb_spec_paths_complete(Rb__Spec *spec, const char *folder);

/* RB_EINVAL: a path is still relative. */
int rb_spec_paths_check(const Rb__Spec *spec, struct rb_why *why);

/* Where the job keeps its checkpoints, as the job file has it; NULL: it names no place.  Code that
 * opens the folder takes its rb_file_real (base/file.h), so that all mean the same folder. */
const char *rb_spec_checkpoints(const Rb__Spec *spec);

#endif
