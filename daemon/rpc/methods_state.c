/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that hand out a job's state: checkpoint, export.
 *
 * While it trains, a node that has one of its workers is asked to save (members are asked by rank
 * until one can); the export is then fetched from that node.  Otherwise what was parked, finished
 * or checkpointed last is fetched from where it lies, if it is whole, and a checkpoint is a copy of
 * what was parked. */
#include "daemon/rpc/methods_inside.h"

#include "daemon/facts/members.h"
#include "daemon/facts/restore.h"
#include "proto/checkpoint_folder.h"
#include "proto/spec_paths.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_MS = 300000, /* to save, or to look whether it is whole, */
    LOST_MS = 3000,     /* and of a node whose lease has ended, which may be there again by then */
};

/* Of exports while a job trains, see take_turn. */
enum turn { FREE, WAITS, ALONE };

struct state_op {
    struct rb_op op;
    struct rb_client_call *call;
    bool exports;
    enum turn turn;
    char *job, *name;
    char *node;   /* that the call is to, */
    bool lost;    /* and has no lease */
    char **nodes; /* still to be asked */
    size_t n_nodes, asked;
    char **tried; /* paths of what is kept, NULL behind the last; NULL: it trains */
    size_t n_tried;
    struct rb_why unfit; /* the first of these that was not there, or damaged */
    int64_t step;
    uint64_t bytes;
};

static void end_turn(struct state_op *state);

static void state_free(struct rb_op *op)
{
    struct state_op *state = (struct state_op *)op;

    if (op->request)
        rb_request_passed(op->request);
    rb_op_remove(op);
    if (op->methods)
        end_turn(state);
    if (state->call)
        rb_client_cancel(state->call);
    for (size_t i = 0; i < state->n_nodes; i++)
        free(state->nodes[i]);
    for (size_t i = 0; i < state->n_tried; i++)
        free(state->tried[i]);
    free(state->tried);
    free(state->nodes);
    free(state->node);
    free(state->job);
    free(state->name);
    free(state);
}

static void fail(struct state_op *state, int err, const struct rb_why *why)
{
    struct rb_request *request = state->op.request;
    struct rb_why told = *why;

    if (err == RB_ENOTFOUND) /* the job is there; its state is not, just now */
        err = RB_EREFUSED;
    if (err == RB_ETIMEOUT && state->lost)
        err = rb_why_set(&told, RB_EUNREACHABLE, "node %s is out of reach", state->node);
    rb_why_add(&told, err, "job %s", state->name);
    state_free(&state->op);
    rb_request_fail(request, err, &told);
}

/* Nobody is told; what there is left to do for it ends. */
static void fail_gone(struct state_op *state)
{
    struct rb_why why = {{0}};

    rb_why_set(&why, RB_ECANCELED, "the caller has hung up");
    fail(state, RB_ECANCELED, &why);
}

/* ---- Fetching a file --------------------------------------------------------------------------*/

static void fetch_kept(struct state_op *state);

static void fetch_piece(const void *data, size_t size, void *context)
{
    struct state_op *state = context;

    if (rb_request_gone(state->op.request)) {
        fail_gone(state);
        return;
    }
    state->bytes += size;
    rb_request_pass(state->op.request, state->call, data, size);
    end_turn(state); /* it is open, and stays what it is */
}

static void fetched(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct state_op *state = context;
    struct rb_request *request = state->op.request;
    json_t *reply;

    (void)body;
    state->call = NULL;
    rb_request_passed(request);
    if ((err == RB_ENOTFOUND || err == RB_EUNREADABLE) && state->tried && !state->bytes) {
        if (!state->unfit.text[0]) /* removed behind rubatod's back, or damaged */
            rb_why_set(&state->unfit, err, "its state at step %" PRId64 " is %s: %s", state->step,
                       err == RB_ENOTFOUND ? "not there any more" : "damaged", why->text);
        fetch_kept(state);
        return;
    }
    if (err) {
        fail(state, err, why);
        return;
    }
    reply =
        json_pack("{s:I,s:I}", "step", (json_int_t)state->step, "bytes", (json_int_t)state->bytes);
    if (state->unfit.text[0])
        json_object_set_new(reply, "notes", json_pack("[s]", state->unfit.text));
    state_free(&state->op);
    rb_request_reply(request, reply);
}

static void call(struct state_op *state, const char *node, struct rb_client_options *options)
{
    free(state->node);
    state->node = rb_string(node);
    state->lost = false;
    options->node = node;
    options->hops = 2;
    options->timeout_ms = ANSWER_MS;
    options->context = state;
    state->call = rb_server_call(state->op.methods->daemon->server, options);
}

/* What a worker has just saved is as it was written; what was kept has to be. */
static void fetch(struct state_op *state, const char *node, const char *path)
{
    const char *tail = strrchr(path, '.');
    bool whole = tail && !strcmp(tail, ".safetensors");
    RB_CLEANUP(rb_freep)
    char *file = whole ? rb_string(path) : rb_format("%s/" RB_CHECKPOINT_MODEL, path);
    json_t *body = json_pack("{s:s,s:s,s:b}", "job", state->job, "path", file, "listed",
                             state->tried && !whole);

    call(state, node,
         &(struct rb_client_options){
             .method = "node-file",
             .body = body,
             .piece = fetch_piece,
             .done = fetched,
         });
}

/* ---- Saving -----------------------------------------------------------------------------------*/

static void ask_next(struct state_op *state, int err, const struct rb_why *why);

static json_t *place_of(int64_t step, const char *path, const char *node)
{
    return json_pack("{s:I,s:s,s:s}", "step", (json_int_t)step, "path", path, "node", node);
}

static void saved(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct state_op *state = context;
    struct rb_request *request = state->op.request;
    const char *path = json_string_value(json_object_get(body, "path"));
    struct rb_why own = {{0}};

    state->call = NULL;
    if (err) {
        ask_next(state, err, why);
        return;
    }
    state->step = json_integer_value(json_object_get(body, "step"));
    if (!path) {
        rb_why_set(&own, RB_EINTERNAL, "its node did not say where the state lies");
        fail(state, RB_EINTERNAL, &own);
    } else if (state->step < 1) {
        rb_why_set(&own, RB_EREFUSED, "it has not done its first step yet");
        fail(state, RB_EREFUSED, &own);
    } else if (state->exports) {
        fetch(state, state->nodes[state->asked - 1], path);
    } else {
        json_t *reply = place_of(state->step, path, state->nodes[state->asked - 1]);

        state_free(&state->op);
        rb_request_reply(request, reply);
    }
}

/* Is its state on the way to where it is kept?  Then why it is not there yet, as far as is known.
 */
static bool is_being_parked(const struct state_op *state, const char **ret_reason)
{
    const struct rb_job_facts *job = rb_facts_job(rb_methods_facts(state->op.methods), state->job);
    const Rb__Wish *wish = job && job->wish.message ? job->wish.wish : NULL;

    if (!wish || !job->state.message)
        return false;
    *ret_reason = job->state.state->reason;
    return wish->paused || wish->cancelled || job->state.state->saver;
}

/* The next member's node, or the error of the one asked last. */
static void ask_next(struct state_op *state, int err, const struct rb_why *why)
{
    bool elsewhere = !err || err == RB_ENOTFOUND || err == RB_EUNREACHABLE || err == RB_EPEER ||
                     (err == RB_ETIMEOUT && state->lost);
    struct rb_why parked = {{0}};
    const char *reason = NULL;

    if (err && elsewhere && state->asked == state->n_nodes && state->exports &&
        is_being_parked(state, &reason)) {
        rb_why_set(&parked, RB_EAGAIN, "the job's state is being saved: try again%s%s%s",
                   reason ? " (" : "", reason ? reason : "", reason ? ")" : "");
        fail(state, RB_EAGAIN, &parked);
        return;
    }
    if (!elsewhere || state->asked == state->n_nodes) {
        fail(state, err, why);
        return;
    }
    call(state, state->nodes[state->asked++],
         &(struct rb_client_options){
             .method = "node-save",
             .body = json_pack("{s:s,s:b}", "job", state->job, "export", state->exports),
             .done = saved,
         });
}

static struct state_op *state_new(struct rb_methods *methods, struct rb_request *request,
                                  const struct rb_job_facts *job, bool exports)
{
    struct state_op *state = rb_alloc(sizeof(*state));

    state->op.let_go = state_free;
    state->exports = exports;
    state->job = rb_string(job->id);
    state->name = rb_string(job->job.job->name);
    rb_op_add(&state->op, methods, request);
    return state;
}

static void list_node(struct state_op *state, const char *node)
{
    for (size_t i = 0; i < state->n_nodes; i++)
        if (!strcmp(state->nodes[i], node))
            return;
    state->nodes[state->n_nodes++] = rb_string(node);
}

/* By rank; before all the node of who saves before it leaves, for which the others wait. */
static void list_nodes(struct state_op *state, const struct rb_job_facts *job,
                       const Rb__Configuration *active)
{
    const char *saver = job->state.state->saver;

    state->nodes = rb_alloc(sizeof(*state->nodes) * (active->n_members + 1));
    for (size_t m = 0; saver && m < active->n_members; m++)
        if (active->members[m]->worker && !strcmp(active->members[m]->worker, saver))
            list_node(state, active->members[m]->node);
    for (size_t m = 0; m < active->n_members; m++)
        list_node(state, active->members[m]->node);
}

/* Of a job without processes: the node that has what it goes on from. */
static void list_parked(struct state_op *state, const Rb__Checkpoint *parked)
{
    state->nodes = rb_alloc(sizeof(*state->nodes));
    list_node(state, parked->node);
}

/* It has done steps, and what they made went with its processes; or it has done none. */
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

static void try_next(struct state_op *state, const Rb__Checkpoint *kept)
{
    state->tried = rb_realloc(state->tried, (state->n_tried + 2) * sizeof *state->tried);
    state->tried[state->n_tried++] = rb_string(kept->path);
    state->tried[state->n_tried] = NULL;
    state->step = kept->step;
    fetch(state, kept->node, kept->path);
}

/* Not training: the state that it would go on from, or ended with; where that is gone or damaged,
 * the next best. */
static void fetch_kept(struct state_op *state)
{
    const struct rb_job_facts *job = rb_facts_job(rb_methods_facts(state->op.methods), state->job);
    struct rb_request *request = state->op.request;
    struct rb_arena arena = {0};
    bool local;
    const Rb__Checkpoint *kept =
        job && job->state.message
            ? rb_restore_without(job, (const char *const *)state->tried, &arena, &local)
            : NULL;

    if (!job && !state->unfit.text[0])
        rb_why_set(&state->unfit, RB_ENOTFOUND, "it was deleted meanwhile");
    if (kept && kept->step >= 1) {
        try_next(state, kept);
    } else if (state->unfit.text[0]) {
        fail(state, RB_ENOTFOUND, &state->unfit);
    } else {
        state_free(&state->op);
        refuse_export(request, job);
    }
    rb_arena_done(&arena);
}

/* ---- Whose turn it is ------------------------------------------------------------------------ */

/* Of the exports of this job the one that is at work, or the first that waits; NULL: none. */
static struct state_op *find_turn(struct rb_methods *methods, const char *job, enum turn turn)
{
    struct state_op *found = NULL;

    for (struct rb_op *op = methods->ops; op; op = op->next) { /* the newest first */
        struct state_op *each = (struct state_op *)op;

        if (op->let_go == state_free && each->turn == turn && !strcmp(each->job, job))
            found = each;
    }
    return found;
}

/* A worker writes each export over the one before it, so that until its file is open the next one
 * has to wait: it would be taken for this one, of another step. */
static void take_turn(struct state_op *state)
{
    const struct rb_job_facts *job = rb_facts_job(rb_methods_facts(state->op.methods), state->job);
    const Rb__Configuration *active = job ? rb_job_active(job) : NULL;

    if (rb_request_gone(state->op.request)) {
        fail_gone(state);
    } else if (active && find_turn(state->op.methods, state->job, ALONE)) {
        state->turn = WAITS;
    } else if (active) {
        state->turn = ALONE;
        list_nodes(state, job, active);
        ask_next(state, 0, NULL);
    } else {
        state->turn = FREE;
        fetch_kept(state);
    }
}

static void end_turn(struct state_op *state)
{
    struct state_op *next;

    if (state->turn != ALONE)
        return;
    state->turn = FREE;
    while (!find_turn(state->op.methods, state->job, ALONE) &&
           (next = find_turn(state->op.methods, state->job, WAITS)))
        take_turn(next);
}

/* ---- Nodes that are lost ----------------------------------------------------------------------*/

/* No call ends by that a node stands still.  But who has lost its lease may live, and be there
 * again in a moment, as behind an etcd that stood still: what it is asked for goes on. */
void rb_methods_look_for_lost(struct rb_methods *methods)
{
    const struct rb_fact_list *nodes = &rb_methods_facts(methods)->nodes;

    for (struct rb_op *op = methods->ops; op; op = op->next) {
        struct state_op *state = (struct state_op *)op;
        bool lost;

        if (op->let_go != state_free || !state->call)
            continue;
        lost = !rb_fact_find(nodes, state->node);
        if (lost != state->lost)
            rb_client_expect(state->call, lost ? LOST_MS : ANSWER_MS);
        state->lost = lost;
    }
}

/* ---- The methods ----------------------------------------------------------------------------- */

/* What it goes on from is a checkpoint already, or parked, of which its node makes a copy. */
static void checkpoint_kept(struct rb_methods *methods, struct rb_request *request,
                            const struct rb_job_facts *job)
{
    struct rb_arena arena = {0};
    bool local, over = rb_phase_final(job->state.state->phase);
    const Rb__Checkpoint *kept = over ? NULL : rb_restore_source(job, &arena, &local);
    const Rb__Checkpoint *parked = job->state.state->parked;
    const char *name = job->job.job->name;
    struct state_op *state;

    if (!kept || kept->step < 1) {
        rb_request_failf(request, RB_EREFUSED, "job %s is not training now (%s)", name,
                         rb_phase_text(job->state.state->phase));
    } else if (!parked || strcmp(parked->path, kept->path) != 0) {
        rb_request_reply(request, place_of(kept->step, kept->path, kept->node));
    } else if (!rb_spec_checkpoints(job->job.job->spec)) {
        rb_request_failf(request, RB_EREFUSED,
                         "job %s has no spec.checkpoint.path: its state at step %" PRId64
                         " is kept at %s on %s until the job is deleted; export has its weights",
                         name, kept->step, kept->path, kept->node);
    } else {
        state = state_new(methods, request, job, false);
        list_parked(state, kept);
        ask_next(state, 0, NULL);
    }
    rb_arena_done(&arena);
}

static void checkpoint(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_job_facts *job = rb_methods_job(methods, request);
    const Rb__Configuration *active = job ? rb_job_active(job) : NULL;
    struct state_op *state;

    if (job && !active) {
        checkpoint_kept(methods, request, job);
    } else if (job) {
        state = state_new(methods, request, job, false);
        list_nodes(state, job, active);
        ask_next(state, 0, NULL);
    }
}

static void export(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_job_facts *job = rb_methods_job(methods, request);

    if (job)
        take_turn(state_new(methods, request, job, true));
}

const struct rb_server_method rb_methods_state[] = {
    {"checkpoint", true, checkpoint},
    {"export", true, export, .reads = true}, /* what a worker writes for it is for it alone */
    {NULL, false, NULL},
};
