/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/submit_inside.h"

#include "base/clock.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

int rb_submission_id(char ret_id[13], struct rb_why *why)
{
    unsigned char bytes[6];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return rb_why_set(why, RB_EIO, "cannot make an identifier: no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static Rb__Job describe(struct rb_submission *made, char *id, const char *node)
{
    Rb__Job job = RB__JOB__INIT;

    job.name = made->name;
    job.id = id;
    job.created = rb_clock_unix_ms();
    job.spec = made->spec;
    job.model = made->written[0];
    job.weights = made->written[1];
    job.profile = made->profile.size ? made->written[2] : NULL;
    job.node = (char *)node;
    job.steps = made->compiled.model->steps;
    job.microbatches = made->compiled.microbatches;
    job.has_blocks = job.has_replicas = 1;
    job.blocks = made->compiled.model->n_blocks;
    job.replicas = made->replicas;
    job.footprint = made->footprint;
    job.summary = made->compiled.summary;
    job.resume = made->resume;
    job.has_resume_step = made->resume != NULL;
    job.resume_step = made->resume ? made->resume_step : 0;
    job.numeric_class = made->numeric_class;
    return job;
}

static void write_event(const Rb__Job *job, const char *text, struct rb_writes *writes)
{
    Rb__Event event = RB__EVENT__INIT;

    event.time = job->created;
    event.job = job->name;
    event.job_id = job->id;
    event.kind = (char *)"submitted";
    event.text = (char *)text;
    rb_writes_event(writes, RB_ANY_REVISION, &event, "000%.8s", job->id);
}

void rb_submission_put(const Rb__Job *job, const char *text, struct rb_writes *writes)
{
    Rb__Wish wish = RB__WISH__INIT;
    Rb__JobState state = RB__JOB_STATE__INIT;

    wish.want = job->spec->devices ? job->spec->devices->want : 1;
    wish.has_asked = 1;
    wish.asked = job->created;
    state.phase = RB__PHASE__Pending;
    rb_writes_put(writes, RB_ABSENT, &job->base, "jobs/%s/job", job->id);
    rb_writes_put(writes, RB_ABSENT, &wish.base, "jobs/%s/wish", job->id);
    rb_writes_put(writes, RB_ABSENT, &state.base, "jobs/%s/state", job->id);
    write_event(job, text, writes);
}

static json_t *reply_of(const struct rb_submission *made, const Rb__Job *job)
{
    json_t *notes = json_array();

    rb_reflect_lines(made->compiled.notes.data, notes);
    return json_pack("{s:s,s:s,s:I,s:I,s:s,s:I,s:o}", "name", job->name, "id", job->id, "steps",
                     (json_int_t)job->steps, "microbatches", (json_int_t)job->microbatches,
                     "summary", job->summary, "resumeStep", (json_int_t)job->resume_step, "notes",
                     notes);
}

int rb_submission_write(struct rb_submission *made, const char *node, struct rb_writes *writes,
                        json_t **ret_reply, struct rb_why *why)
{
    char id[13], text[600];
    int err = rb_submission_id(id, why);

    if (err)
        return err;

    Rb__Job job = describe(made, id, node);

    snprintf(text, sizeof(text), "%s", job.summary);
    if (job.resume)
        snprintf(text, sizeof(text), "%s; goes on from step %" PRId64, job.summary,
                 job.resume_step);
    rb_submission_put(&job, text, writes);
    *ret_reply = reply_of(made, &job);
    return 0;
}
