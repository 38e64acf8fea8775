/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of a worker: each call makes one message and posts it.
 *
 * step, preparing and voting code > [tell] > reports > agent */
#ifndef RB_WORKER_CONTROL_TELL_H
#define RB_WORKER_CONTROL_TELL_H

#include "worker/checkpoint/saver.h"
#include "worker/configuration.h"
#include "worker/control/reports.h"
#include "worker/step/evaluate.h"
#include "worker/step/step.h"

void rb_tell_ready(struct rb_reports *reports, uint32_t number);
void rb_tell_unready(struct rb_reports *reports, uint32_t number, const char *reason);

/* How a configuration was entered. */
struct rb_entrance {
    int64_t level;
    uint64_t time;  /* unix ms */
    uint64_t bytes; /* that came here to enter it */
    bool stands;    /* and no step is trained in it */
};
void rb_tell_flipped(struct rb_reports *reports, const struct rb_configuration *configuration,
                     const struct rb_entrance *entrance);

/* Asks the group of `configuration` which of its links have ended. */
void rb_tell_frozen(struct rb_reports *reports, const struct rb_configuration *configuration,
                    int64_t level, const char *reason);

/* Reports the step that `model` has just taken, or the steps of its lap.  evaluation: of the last
 * of these steps, NULL where there was none.  The model keeps the row of a step, for ranks that it
 * must tell of the step.  interrupted: by a death; the row is owed until the evaluation is made up
 * (rb_tell_owed).  The rows of a lap are reported at once. */
void rb_tell_row(struct rb_reports *reports, const struct rb_configuration *configuration,
                 struct rb_model *model, const struct rb_step_result *result,
                 const struct rb_evaluation *evaluation, bool interrupted, double step_ms);

/* Reports what this rank did to come from level `before` to its present level when others told it
 * the outcome; nothing where it was given the level.  evaluates: the row of a step is owed, unless
 * it came with its evaluation. */
void rb_tell_told(struct rb_reports *reports, const struct rb_configuration *configuration,
                  struct rb_model *model, int64_t before, bool evaluates);

/* Reports the row that is owed, if one is.  evaluation: NULL where there will be none. */
void rb_tell_owed(struct rb_reports *reports, uint32_t rank, struct rb_model *model,
                  const struct rb_evaluation *evaluation);

/* final: the save of the end of the run; NULL at ranks that did not save it. */
void rb_tell_done(struct rb_reports *reports, int64_t level, const struct rb_saved *final);
/* err: RB_EUNREADABLE is told as such, RB_ELOST and RB_ENOMEM as errors that a new start may get
 * over. */
void rb_tell_failed(struct rb_reports *reports, int err, const char *reason);

#endif
