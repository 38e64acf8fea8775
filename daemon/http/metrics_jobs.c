/* SPDX-License-Identifier: Apache-2.0 */
/* A table of metrics, each a function from a job to a number that it may not have. */
#include "daemon/http/metrics.h"

#include "daemon/facts/members.h"
#include "daemon/facts/shown.h"
#include "daemon/http/text.h"

#include <string.h>

static const struct rb_fact *last(const struct rb_fact_list *list)
{
    return list->n ? &list->at[list->n - 1] : NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

struct view {
    const struct rb_facts *facts;
    const struct rb_job_facts *job;
    uint64_t now; /* unix ms */
};

static bool step(const struct view *view, double *ret)
{
    *ret = (double)rb_job_step(view->job);
    return true;
}

static bool steps_wanted(const struct view *view, double *ret)
{
    *ret = (double)view->job->job.job->steps;
    return true;
}

static bool told(const struct view *view, double *ret)
{
    *ret = view->job->progress.message ? (double)view->job->progress.progress->time / 1e3 : 0;
    return view->job->progress.message;
}

static bool loss(const struct view *view, double *ret)
{
    *ret = view->job->progress.message ? view->job->progress.progress->loss : 0;
    return view->job->progress.message;
}

static bool eval_loss(const struct view *view, double *ret)
{
    bool there = view->job->progress.message && view->job->progress.progress->has_eval_loss;

    *ret = there ? view->job->progress.progress->eval_loss : 0;
    return there;
}

static bool pace(const struct view *view, double *ret)
{
    *ret = rb_job_pace(view->job);
    return true;
}

static bool samples(const struct view *view, double *ret)
{
    *ret = view->job->progress.message ? (double)view->job->progress.progress->samples : 0;
    return view->job->progress.message;
}

static bool devices(const struct view *view, double *ret)
{
    const Rb__Configuration *active = rb_job_active(view->job);

    *ret = active ? (double)active->n_members : 0;
    return true;
}

static bool devices_wanted(const struct view *view, double *ret)
{
    *ret = view->job->wish.wish->want;
    return true;
}

static bool configuration(const struct view *view, double *ret)
{
    *ret = view->job->state.state->active;
    return true;
}

static bool restarts(const struct view *view, double *ret)
{
    *ret = (double)view->job->state.state->n_restarts;
    return true;
}

static bool stall(const struct view *view, double *ret)
{
    for (size_t i = view->job->configurations.n; i--;) {
        const Rb__Receipt *receipt = view->job->configurations.at[i].configuration->receipt;

        if (receipt) {
            *ret = receipt->stall_ms / 1e3;
            return true;
        }
    }
    return false;
}

static bool checkpoint_step(const struct view *view, double *ret)
{
    const struct rb_fact *kept = last(&view->job->checkpoints);

    *ret = kept ? (double)kept->checkpoint->step : 0;
    return kept;
}

/* Its node's clock may be ahead of ours. */
static bool checkpoint_age(const struct view *view, double *ret)
{
    const struct rb_fact *kept = last(&view->job->checkpoints);

    *ret = kept && view->now > kept->checkpoint->time
               ? (double)(view->now - kept->checkpoint->time) / 1e3
               : 0;
    return kept;
}

static bool checkpoint_bytes(const struct view *view, double *ret)
{
    const struct rb_fact *kept = last(&view->job->checkpoints);

    *ret = kept ? (double)kept->checkpoint->bytes : 0;
    return kept;
}

static bool checkpoint_failed(const struct view *view, double *ret)
{
    *ret = rb_job_checkpoint_failed(view->facts, view->job) != NULL;
    return true;
}

/* All of a name stand together. */
static const struct metric {
    const char *name, *split, *help;
    bool (*value)(const struct view *view, double *ret);
} metrics[] = {
    {"rubato_step", NULL, "Steps done; a fall back to a checkpoint lowers it.", step},
    {"rubato_steps_wanted", NULL, "Steps of the job.", steps_wanted},
    {"rubato_last_step_timestamp_seconds", NULL, "When the newest step was committed.", told},
    {"rubato_loss", "train", "Loss: of the newest step, and of the newest evaluation.", loss},
    {"rubato_loss", "eval", NULL, eval_loss},
    {"rubato_samples_per_second", NULL, "Samples trained on a second, over the last steps.", pace},
    {"rubato_data_cursor_samples", NULL, "Samples that the steps done have taken.", samples},
    {"rubato_devices", NULL, "Devices that the job trains on.", devices},
    {"rubato_devices_wanted", NULL, "Devices that the job was asked to have.", devices_wanted},
    {"rubato_configuration", NULL, "Number of the configuration that trains; 0: none.",
     configuration},
    {"rubato_restarts", NULL, "Falls back to a checkpoint or the start that failure.window counts.",
     restarts},
    {"rubato_last_reconfigure_stall_seconds", NULL, "Stall of the newest change with a receipt.",
     stall},
    {"rubato_checkpoint_step", NULL, "Step of the newest checkpoint.", checkpoint_step},
    {"rubato_checkpoint_age_seconds", NULL, "Time since the newest checkpoint was written.",
     checkpoint_age},
    {"rubato_checkpoint_bytes", NULL, "Size of the newest checkpoint.", checkpoint_bytes},
    {"rubato_checkpoint_failed", NULL,
     "Whether a checkpoint after the newest could not be written.", checkpoint_failed},
};

/* ---- Jobs ------------------------------------------------------------------------------------ */

static bool is_told(const struct rb_job_facts *job)
{
    return rb_job_shown(job) && !rb_phase_final(job->state.state->phase);
}

/* The id where the name alone would make two series one; else NULL. */
static const char *id_of(const struct rb_facts *facts, const struct rb_job_facts *job)
{
    for (size_t i = 0; i < facts->n_jobs; i++)
        if (&facts->jobs[i] != job && is_told(&facts->jobs[i]) &&
            !strcmp(facts->jobs[i].job.job->name, job->job.job->name))
            return job->id;
    return NULL;
}

static void write_phases(const struct rb_facts *facts, struct rb_buffer *out)
{
    rb_text_family(out, "rubato_jobs", "gauge", "Jobs in a phase, those that are over too.");
    for (size_t p = 0; p < rb__phase__descriptor.n_values; p++) {
        const ProtobufCEnumValue *phase = &rb__phase__descriptor.values[p];
        const struct rb_text_label labels[] = {{"phase", phase->name}, {0}};
        size_t n = 0;

        for (size_t i = 0; i < facts->n_jobs; i++)
            n += rb_job_shown(&facts->jobs[i]) &&
                 (int)facts->jobs[i].state.state->phase == phase->value;
        rb_text_sample(out, "rubato_jobs", labels, (double)n);
    }
}

static void write_states(const struct rb_facts *facts, struct rb_buffer *out)
{
    bool any = false;

    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *job = &facts->jobs[i];

        for (int phase = 0; is_told(job) && phase <= RB__PHASE__Cancelled; phase++) {
            const struct rb_text_label labels[] = {{"train_job", job->job.job->name},
                                                   {"id", id_of(facts, job)},
                                                   {"state", rb_phase_text((Rb__Phase)phase)},
                                                   {0}};

            if (rb_phase_final((Rb__Phase)phase))
                continue;
            if (!any)
                rb_text_family(out, "rubato_job_state", "gauge", "1 for the phase of the job.");
            any = true;
            rb_text_sample(out, "rubato_job_state", labels, (int)job->state.state->phase == phase);
        }
    }
}

static void write_metric(const struct rb_facts *facts, size_t m, uint64_t now,
                         struct rb_buffer *out, const char **headed)
{
    const struct metric *metric = &metrics[m];

    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *job = &facts->jobs[i];
        double value = 0;

        if (!is_told(job) || !metric->value(&(struct view){facts, job, now}, &value))
            continue;
        const struct rb_text_label labels[] = {{"train_job", job->job.job->name},
                                               {"id", id_of(facts, job)},
                                               {"split", metric->split},
                                               {0}};
        if (!*headed || strcmp(*headed, metric->name))
            rb_text_family(out, metric->name, "gauge",
                           metric->help ? metric->help : metrics[m - 1].help);
        *headed = metric->name;
        rb_text_sample(out, metric->name, labels, value);
    }
}

void rb_metrics_jobs(const struct rb_facts *facts, uint64_t now, struct rb_buffer *out)
{
    const char *headed = NULL;

    write_phases(facts, out);
    write_states(facts, out);
    for (size_t m = 0; m < sizeof(metrics) / sizeof(metrics[0]); m++)
        write_metric(facts, m, now, out, &headed);
}
