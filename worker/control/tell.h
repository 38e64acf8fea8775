/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of a worker: each makes one message and posts it.
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
    uint64_t bytes; /* that came here for it */
    bool stands;    /* and no step is trained in it */
};
void rb_tell_flipped(struct rb_reports *reports, const struct rb_configuration *configuration,
                     const struct rb_entrance *entrance);

/* Asks the group which of its links have ended. */
void rb_tell_frozen(struct rb_reports *reports, const struct rb_configuration *configuration,
                    int64_t level, const char *reason);

/* The step that `model` has just taken, or the steps of its lap; evaluation: of the last of them,
 * NULL where there was none.  The model keeps a step's, for others whom it must tell of it.
 * interrupted: by a death; the row is owed until the evaluation is made up (rb_tell_owed).  Those
 * of a lap are told at once. */
void rb_tell_row(struct rb_reports *reports, const struct rb_configuration *configuration,
                 struct rb_model *model, const struct rb_step_result *result,
                 const struct rb_evaluation *evaluation, bool interrupted, double step_ms);

/* The same of what this rank did to come from level `before` to its present one when others told it
 * what became of that; nothing where it was given the level.  evaluates: a step is owed, unless
 * those who told of it had its evaluation. */
void rb_tell_told(struct rb_reports *reports, const struct rb_configuration *configuration,
                  struct rb_model *model, int64_t before, bool evaluates);

/* What is owed, if anything is.  evaluation: NULL where there will be none. */
void rb_tell_owed(struct rb_reports *reports, uint32_t rank, struct rb_model *model,
                  const struct rb_evaluation *evaluation);

/* final: NULL but for who saved the end of the run. */
void rb_tell_done(struct rb_reports *reports, int64_t level, const struct rb_saved *final);
/* err: RB_EUNREADABLE is told as such, RB_ELOST and RB_ENOMEM as what a new start may get over. */
void rb_tell_failed(struct rb_reports *reports, int err, const char *reason);

#endif
