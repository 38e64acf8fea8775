/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts: once the new set of a change has done ten steps, its rows are fetched from the nodes
 * and what the change cost is written into its configuration.
 *
 * facts, node-metrics > [receipts] > receipt > Configuration.receipt
 *
 * One at a time, by the leader; what fails is tried again with the next change of facts. */
#include "daemon/methods_inside.h"

#include "daemon/members.h"
#include "daemon/receipt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_BEFORE = 200, /* steps before the change that are looked at: medians come from them */
    ROWS_MOST = 5000,
    RETRY_MS = 250,
    HOPELESS = 64, /* configurations remembered that ended without a step */
};

struct rb_receipts {
    struct rb_methods *methods;
    bool busy;
    uv_timer_t *timer; /* looks again a little later; its own memory, for it outlives a close */
    char *job;
    uint32_t number;
    struct {
        char job[40];
        uint32_t number;
    } hopeless[HOPELESS];
    size_t n_hopeless;
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

bool rb_receipts_hopeless(const struct rb_receipts *receipts, const char *job, uint32_t number)
{
    for (size_t i = 0; i < HOPELESS && i < receipts->n_hopeless; i++)
        if (receipts->hopeless[i].number == number && !strcmp(receipts->hopeless[i].job, job))
            return true;
    return false;
}

static void give_up(struct rb_receipts *receipts)
{
    size_t i = receipts->n_hopeless++ % HOPELESS;

    snprintf(receipts->hopeless[i].job, sizeof(receipts->hopeless[i].job), "%s", receipts->job);
    receipts->hopeless[i].number = receipts->number;
}

static bool took_over(const Rb__Configuration *conf)
{
    return conf->state == RB__CONFIGURATION__STATE__ACTIVE ||
           conf->state == RB__CONFIGURATION__STATE__RETIRED;
}

/* The configuration that trained when this one was asked for, or NULL. */
static const Rb__Configuration *before(const struct rb_job_facts *job,
                                       const Rb__Configuration *after)
{
    const Rb__Configuration *found = NULL;

    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (conf->number < after->number && took_over(conf) &&
            (!found || conf->created < after->asked))
            found = conf;
    }
    return found;
}

static bool later_one(const struct rb_job_facts *job, uint32_t number)
{
    for (size_t i = 0; i < job->configurations.n; i++)
        if (job->configurations.at[i].configuration->number > number &&
            took_over(job->configurations.at[i].configuration))
            return true;
    return false;
}

static uint64_t moved_bytes(const struct rb_job_facts *job, uint32_t number)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < job->workers.n; i++)
        if (job->workers.at[i].worker->active == number)
            bytes += job->workers.at[i].worker->bytes_moved;
    return bytes;
}

/* No more rows of it will come. */
static bool ended(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    return conf->state == RB__CONFIGURATION__STATE__RETIRED ||
           rb_phase_final(job->state.state->phase);
}

/* A start has one too: it answers a resize that was asked for while the job waited. */
static bool due(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    if (conf->receipt || !took_over(conf))
        return false;
    if (ended(job, conf))
        return true;
    return job->progress.message && job->progress.progress->configuration == conf->number &&
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

static void write_receipt(struct rb_methods *methods, const struct rb_job_facts *job,
                          const struct rb_fact *fact, Rb__Receipt *receipt)
{
    Rb__Configuration conf = *fact->configuration;
    struct rb_op *op = rb_alloc(sizeof(*op));
    struct rb_writes writes = {0};

    conf.receipt = receipt;
    rb_writes_put(&writes, fact->revision, &conf.base, "jobs/%s/configurations/%08" PRIu32, job->id,
                  conf.number);
    rb_op_add(op, methods, NULL);
    rb_store_commit(methods->daemon->store, &writes, "leader",
                    rb_coordinator_fence(methods->daemon->coordinator), written, op);
    rb_writes_done(&writes);
}

static void rows_came(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                      void *context)
{
    struct rb_receipts *receipts = context;
    const struct rb_job_facts *job = rb_facts_job(rb_methods_facts(methods), receipts->job);
    const struct rb_fact *fact = job ? rb_facts_configuration(job, receipts->number) : NULL;
    const Rb__Configuration *old = fact ? before(job, fact->configuration) : NULL;
    Rb__Receipt receipt;
    struct rb_receipt_row *rows;
    struct rb_receipt_input input;
    size_t n;
    int err = RB_EAGAIN;

    (void)request;
    receipts->busy = false;
    uv_timer_start(receipts->timer, look_again, RETRY_MS, 0);
    if (!fact || fact->configuration->receipt || !job->state.message)
        return;
    rows = read_rows(answers, &n);
    input = (struct rb_receipt_input){
        .rows = rows,
        .n = n,
        .asked = fact->configuration->asked,
        .configuration = receipts->number,
        .from = old ? (uint32_t)old->n_members : 0,
        .to = (uint32_t)fact->configuration->n_members,
        .bytes_moved = moved_bytes(job, receipts->number),
        .ended = ended(job, fact->configuration) || later_one(job, receipts->number),
    };
    err = rb_receipt_compute(&input, &receipt);
    free(rows);
    if (err && input.ended)
        give_up(receipts);
    if (err)
        return;
    receipts->busy = true;
    write_receipt(methods, job, fact, &receipt);
}

static void ask(struct rb_receipts *receipts, const struct rb_job_facts *job,
                const Rb__Configuration *conf)
{
    int64_t after = conf->level > ROWS_BEFORE ? conf->level - ROWS_BEFORE : 0;

    free(receipts->job);
    receipts->job = rb_string(job->id);
    receipts->number = conf->number;
    receipts->busy = true;
    rb_methods_ask_nodes(receipts->methods, NULL, "node-metrics",
                         json_pack("{s:s,s:I,s:I}", "job", job->id, "after", (json_int_t)after,
                                   "limit", (json_int_t)ROWS_MOST),
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
            if (due(job, job->configurations.at[i].configuration) &&
                !rb_receipts_hopeless(receipts, job->id,
                                      job->configurations.at[i].configuration->number)) {
                ask(receipts, job, job->configurations.at[i].configuration);
                return;
            }
    }
}
