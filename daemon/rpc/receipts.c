/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts: once the new set of a change has done ten steps, or has ended, its rows are fetched
 * from the nodes and what the change cost is written into its configuration; or, where it has not
 * made a step, that there is no receipt.
 *
 * facts, node-metrics > [receipts] > receipt > Configuration.receipt
 *
 * One at a time, by the leader; what fails is tried again with the next change of facts. */
#include "daemon/rpc/methods_inside.h"

#include "daemon/decide/receipt.h"
#include "daemon/facts/members.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_BEFORE = 400,  /* before the change, at first; more where the request is further back */
    STEPS_MOST = 100000, /* that a node tells at once: */
    STEPS_BEFORE_MOST = STEPS_MOST - STEPS_BEFORE, /* room for those behind the change */
    RETRY_MS = 250,
    ABSENT_MS = 30000, /* nodes that may have rows and do not answer are waited for */
};

struct rb_receipts {
    struct rb_methods *methods;
    bool busy;
    uv_timer_t *timer; /* looks again a little later; its own memory, for it outlives a close */
    char *job;
    uint32_t number;
    int64_t back;   /* steps before the change that are asked for */
    uint64_t since; /* loop time of the first look at this one */
};

static void look_again(uv_timer_t *timer)
{
    rb_receipts_look(timer->data);
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle);
}

struct rb_receipts *rb_receipts_new(struct rb_methods *methods)
{
    struct rb_receipts *receipts = rb_alloc(sizeof(*receipts));

    receipts->methods = methods;
    receipts->timer = rb_alloc(sizeof(*receipts->timer));
    uv_timer_init(methods->daemon->loop, receipts->timer);
    receipts->timer->data = receipts;
    return receipts;
}

void rb_receipts_free(struct rb_receipts *receipts)
{
    if (!receipts)
        return;
    uv_close((uv_handle_t *)receipts->timer, timer_closed);
    free(receipts->job);
    free(receipts);
}

/* The configuration that trained when this one was asked for, or NULL. */
static const Rb__Configuration *before(const struct rb_job_facts *job,
                                       const Rb__Configuration *after)
{
    const Rb__Configuration *found = NULL;

    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (conf->number < after->number && rb_configuration_took_over(conf) &&
            (!found || conf->created < after->asked))
            found = conf;
    }
    return found;
}

static bool later_one(const struct rb_job_facts *job, uint32_t number)
{
    const Rb__Configuration *last = rb_job_last(job);

    return last && last->number > number;
}

/* No more rows of it will come. */
static bool ended(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    return conf->state == RB__CONFIGURATION__STATE__RETIRED ||
           rb_phase_final(job->state.state->phase);
}

/* Each member has told that it took over, and so what it received for that. */
static bool all_told(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        const struct rb_fact *fact = rb_facts_member(job, conf, m);

        if (!fact || fact->worker->active < conf->number)
            return false;
    }
    return true;
}

/* A start has a receipt, too: it answers a resize that was asked for while the job waited. */
static bool due(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    if (conf->receipt || conf->reason || !rb_configuration_took_over(conf))
        return false;
    if (ended(job, conf))
        return true;
    return all_told(job, conf) && job->progress.message &&
           job->progress.progress->configuration == conf->number &&
           job->progress.progress->step >= conf->level + RB_RECEIPT_STEPS;
}

static double number_at(const json_t *row, int column)
{
    return column < 0 ? 0 : json_number_value(json_array_get(row, (size_t)column));
}

static int64_t whole_at(const json_t *row, int column)
{
    return column < 0 ? 0 : (int64_t)json_integer_value(json_array_get(row, (size_t)column));
}

static struct rb_receipt_row *read_rows(const json_t *answers, size_t *ret_n)
{
    const json_t *answer, *row;
    struct rb_receipt_row *rows;
    size_t i, j, room = 0, n = 0;

    json_array_foreach((json_t *)answers, i, answer) room +=
        json_array_size(json_object_get(json_object_get(answer, "body"), "rows"));
    rows = rb_alloc((room + 1) * sizeof(*rows));
    json_array_foreach((json_t *)answers, i, answer)
    {
        const json_t *body = json_object_get(answer, "body");
        const json_t *columns = json_object_get(body, "columns");

        json_array_foreach(json_object_get(body, "rows"), j, row) rows[n++] =
            (struct rb_receipt_row){
                .step = whole_at(row, rb_column(columns, "step")),
                .time = (uint64_t)whole_at(row, rb_column(columns, "time")),
                .step_ms = number_at(row, rb_column(columns, "step_ms")),
                .configuration = (uint32_t)whole_at(row, rb_column(columns, "configuration")),
                .first_sample = (uint64_t)whole_at(row, rb_column(columns, "first_sample")),
                .samples = (uint32_t)whole_at(row, rb_column(columns, "samples")),
            };
    }
    *ret_n = n;
    return rows;
}

static void written(int err, const struct rb_why *why, void *context)
{
    struct rb_op *op = context;

    (void)err; /* refused: the next look tries again */
    (void)why;
    rb_op_remove(op);
    if (op->methods)
        op->methods->receipts->busy = false;
    free(op);
}

/* Its receipt, or why there is none. */
static void write_down(struct rb_receipts *receipts, const struct rb_job_facts *job,
                       const struct rb_fact *fact, Rb__Receipt *receipt, const char *reason)
{
    struct rb_methods *methods = receipts->methods;
    Rb__Configuration conf = *fact->configuration;
    struct rb_op *op = rb_alloc(sizeof(*op));
    struct rb_writes writes = {0};

    conf.receipt = receipt;
    conf.reason = (char *)reason;
    rb_writes_put(&writes, fact->revision, &conf.base, "jobs/%s/configurations/%08" PRIu32, job->id,
                  conf.number);
    receipts->busy = true;
    rb_op_add(op, methods, NULL);
    rb_store_commit(methods->daemon->store, &writes,
                    rb_coordinator_fence(methods->daemon->coordinator), written, op);
    rb_writes_done(&writes);
}

static bool answered(const json_t *answers, const char *node)
{
    const json_t *answer;
    size_t i;

    json_array_foreach((json_t *)answers, i, answer)
    {
        if (json_object_get(answer, "body") &&
            !strcmp(json_string_value(json_object_get(answer, "node")), node))
            return true;
    }
    return false;
}

/* Has every node answered on which it trained, or been waited for long enough? */
static bool complete(const struct rb_receipts *receipts, const Rb__Configuration *conf,
                     const json_t *answers)
{
    bool all = true;

    for (size_t m = 0; m < conf->n_members; m++)
        all = all && answered(answers, conf->members[m]->node);
    return all || uv_now(receipts->methods->daemon->loop) > receipts->since + ABSENT_MS;
}

/* Do the rows go back far enough for the medians, or to the start? */
static bool deep_enough(const struct rb_receipts *receipts, const Rb__Configuration *conf,
                        const struct rb_receipt_row *rows, size_t n)
{
    size_t before = 0;

    for (size_t i = 0; i < n; i++)
        before += rows[i].time < conf->asked;
    return before >= RB_RECEIPT_BEFORE || receipts->back >= conf->level ||
           receipts->back >= STEPS_BEFORE_MOST;
}

static void settle(struct rb_receipts *receipts, const struct rb_job_facts *job,
                   const struct rb_fact *fact, const json_t *answers)
{
    const Rb__Configuration *conf = fact->configuration, *old = before(job, conf);
    Rb__Receipt receipt;
    struct rb_receipt_input input = {
        .asked = conf->asked,
        .configuration = conf->number,
        .from = old ? (uint32_t)old->n_members : 0,
        .to = (uint32_t)conf->n_members,
        .bytes_moved = conf->bytes_moved,
        .ended = ended(job, conf) || later_one(job, conf->number),
    };
    struct rb_receipt_row *rows = read_rows(answers, &input.n);
    bool deep = deep_enough(receipts, conf, rows, input.n);
    int err;

    input.rows = rows;
    err = rb_receipt_compute(&input, &receipt);
    free(rows);
    if (!err && !deep)
        receipts->back =
            receipts->back < STEPS_BEFORE_MOST / 8 ? receipts->back * 8 : STEPS_BEFORE_MOST;
    else if (!err)
        write_down(receipts, job, fact, &receipt, NULL);
    else if (input.ended)
        write_down(receipts, job, fact, NULL, "it ended before its first step");
}

static void rows_came(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                      void *context)
{
    struct rb_receipts *receipts = context;
    const struct rb_job_facts *job = rb_facts_job(rb_methods_facts(methods), receipts->job);
    const struct rb_fact *fact = job ? rb_facts_configuration(job, receipts->number) : NULL;

    (void)request;
    receipts->busy = false;
    uv_timer_start(receipts->timer, look_again, RETRY_MS, 0);
    if (fact && !fact->configuration->receipt && job->state.message &&
        complete(receipts, fact->configuration, answers))
        settle(receipts, job, fact, answers);
}

static void ask(struct rb_receipts *receipts, const struct rb_job_facts *job,
                const Rb__Configuration *conf)
{
    int64_t after;

    if (!receipts->job || strcmp(receipts->job, job->id) != 0 || receipts->number != conf->number) {
        free(receipts->job);
        receipts->job = rb_string(job->id);
        receipts->number = conf->number;
        receipts->back = STEPS_BEFORE;
        receipts->since = uv_now(receipts->methods->daemon->loop);
    }
    after = conf->level > receipts->back ? conf->level - receipts->back : 0;
    receipts->busy = true;
    rb_methods_ask_nodes(receipts->methods, NULL, "node-metrics",
                         json_pack("{s:s,s:I,s:I,s:b}", "job", job->id, "after", (json_int_t)after,
                                   "limit", (json_int_t)STEPS_MOST, "lost", 1),
                         rows_came, receipts);
}

void rb_receipts_look(struct rb_receipts *receipts)
{
    const struct rb_facts *facts = rb_methods_facts(receipts->methods);

    if (receipts->busy || uv_is_active((uv_handle_t *)receipts->timer) ||
        !rb_coordinator_leads(receipts->methods->daemon->coordinator))
        return;
    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_job_facts *job = &facts->jobs[j];

        if (!job->job.message || !job->state.message)
            continue;
        for (size_t i = job->configurations.n; i-- > 0;)
            if (due(job, job->configurations.at[i].configuration)) {
                ask(receipts, job, job->configurations.at[i].configuration);
                return;
            }
    }
}
