/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/restore.h"
#include "daemon/rpc/handout.h"
#include "proto/checkpoint_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The job has done steps, and its state went with its processes; or it has done none. */
static void refuse_export(struct rb_request *request, const struct rb_job_facts *job)
{
    const char *name = job->job.job->name, *phase = rb_phase_text(job->state.state->phase);
    int64_t step = job->progress.message ? job->progress.progress->step : 0;

    if (step > 0)
        rb_request_failf(request, RB_EREFUSED,
                         "job %s has no weights to export: its state at step %" PRId64
                         " was not kept (%s); pause keeps it, and so does cancel without --now",
                         name, step, phase);
    else
        rb_request_failf(request, RB_EREFUSED,
                         "job %s has no weights to export: it has not done its first step (%s)",
                         name, phase);
}

static void try_next(struct rb_handout *handout, const Rb__Checkpoint *kept)
{
    handout->tried = rb_realloc(handout->tried, (handout->n_tried + 2) * sizeof *handout->tried);
    handout->tried[handout->n_tried++] = rb_string(kept->path);
    handout->tried[handout->n_tried] = NULL;
    handout->step = kept->step;
    rb_handout_fetch(handout, kept->node, kept->path);
}

void rb_handout_fetch_kept(struct rb_handout *handout)
{
    const struct rb_job_facts *job =
        rb_facts_job(rb_methods_facts(handout->op.methods), handout->job);
    struct rb_request *request = handout->op.request;
    struct rb_arena arena = {0};
    bool local;
    const Rb__Checkpoint *kept =
        job && job->state.message
            ? rb_restore_without(job, (const char *const *)handout->tried, &arena, &local)
            : NULL;

    if (!job && !handout->unfit.text[0])
        rb_why_set(&handout->unfit, RB_ENOTFOUND, "it was deleted meanwhile");
    if (kept && kept->step >= 1) {
        try_next(handout, kept);
    } else if (handout->unfit.text[0]) {
        rb_handout_fail(handout, RB_ENOTFOUND, &handout->unfit);
    } else {
        rb_handout_free(&handout->op);
        refuse_export(request, job);
    }
    rb_arena_done(&arena);
}

static void fetch_piece(const void *data, size_t size, void *context)
{
    struct rb_handout *handout = context;

    if (rb_request_gone(handout->op.request)) {
        rb_handout_fail_gone(handout);
        return;
    }
    handout->bytes += size;
    rb_request_pass(handout->op.request, handout->call, data, size);
    rb_handout_end_turn(handout); /* the file is open, and stays what it is */
}

static void fetched(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_handout *handout = context;
    struct rb_request *request = handout->op.request;
    json_t *reply;

    (void)body;
    handout->call = NULL;
    rb_request_passed(request);
    if ((err == RB_ENOTFOUND || err == RB_EUNREADABLE) && handout->tried && !handout->bytes) {
        if (!handout->unfit.text[0]) /* removed behind rubatod's back, or damaged */
            rb_why_set(&handout->unfit, err, "its state at step %" PRId64 " is %s: %s",
                       handout->step, err == RB_ENOTFOUND ? "not there any more" : "damaged",
                       why->text);
        rb_handout_fetch_kept(handout);
        return;
    }
    if (err) {
        rb_handout_fail(handout, err, why);
        return;
    }
    reply = json_pack("{s:I,s:I}", "step", (json_int_t)handout->step, "bytes",
                      (json_int_t)handout->bytes);
    if (handout->unfit.text[0])
        json_object_set_new(reply, "notes", json_pack("[s]", handout->unfit.text));
    rb_handout_free(&handout->op);
    rb_request_reply(request, reply);
}

void rb_handout_fetch(struct rb_handout *handout, const char *node, const char *path)
{
    const char *tail = strrchr(path, '.');
    bool whole = tail && !strcmp(tail, ".safetensors");
    RB_CLEANUP(rb_freep)
    char *file = whole ? rb_string(path) : rb_format("%s/" RB_CHECKPOINT_MODEL, path);
    json_t *body = json_pack("{s:s,s:s,s:b}", "job", handout->job, "path", file, "listed",
                             handout->tried && !whole);

    rb_handout_call(handout, node,
                    &(struct rb_client_options){
                        .method = "node-file",
                        .body = body,
                        .piece = fetch_piece,
                        .done = fetched,
                    });
}
