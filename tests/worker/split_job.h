/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that were submitted with a pin on parts of filters: nets of several kinds, cut for few words
 * or layer by layer.
 *
 * a kind, an aim > [split_job] > FOLDER/model, data > rb_filters_cut, rb_split_plan, rb_model_load
 */
#ifndef RB_TESTS_WORKER_SPLIT_JOB_H
#define RB_TESTS_WORKER_SPLIT_JOB_H

#include "plan/partition/filters.h"
#include "plan.pb-c.h"
#include "proto/spec.h"

#include <stdint.h>

struct rb_buffer;

enum {
    SPLIT_MOST = 4,    /* parts */
    SPLIT_SAMPLES = 6, /* in a step: a microbatch of 4 and one of 2 */
    SPLIT_KINDS = 6,
    SPLIT_AIMS = 2,
};

struct split_kind {
    const char *name, *settings[5];
    int n_settings, inputs;
    const char *shape;
    void (*write)(struct rb_buffer *ret_onnx); /* NULL: the generator called `name` does */
};

extern const struct split_kind split_kinds[SPLIT_KINDS];
extern const enum rb_filters_aim split_aims[SPLIT_AIMS];

struct split_job {
    char folder[64];
    Rb__Model *model; /* NULL: only the folder exists */
    enum rb_filters_aim aim;
    double words; /* sent by the partition in as many parts as are tried */
    uint32_t parts;
};

/* A folder with a model and data. */
void split_job_write(const struct split_kind *kind, struct split_job *made);

/* The job file of that folder, with a pin on so many parts.  The caller frees it. */
Rb__JobFile *split_job_read(const char *folder, int parts, enum rb_filters_aim aim);

/* The folder, and the Model as it is compiled for a pin on SPLIT_MOST parts; FOLDER/model, too. */
void split_job_make(const struct split_kind *kind, enum rb_filters_aim aim, struct split_job *made);

void split_job_done(struct split_job *made);

#endif
