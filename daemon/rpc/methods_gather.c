/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that put together what the nodes have: metrics, logs. */
#include "daemon/rpc/methods_inside.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_USUAL = 10000, ROWS_MOST = 100000 };

struct gather {
    struct rb_merge merge; /* of metrics */
    char *phase;
};

static struct gather *gather_new(const struct rb_job_facts *job)
{
    struct gather *gather = rb_alloc(sizeof(*gather));

    gather->phase = rb_string(rb_phase_text(job->state.state->phase));
    return gather;
}

static void gather_free(struct gather *gather)
{
    free(gather->phase);
    free(gather);
}

/* Nothing is to be put together: the caller has hung up, or every node failed, as the last says. */
static bool is_over(struct rb_request *request, const json_t *answers)
{
    const json_t *answer, *last = NULL;
    size_t i;

    if (rb_request_gone(request)) {
        rb_request_reply(request, json_object());
        return true;
    }

    json_array_foreach((json_t *)answers, i, answer)
    {
        if (json_object_get(answer, "body"))
            return false;
        last = answer;
    }
    if (!last)
        return false;
    rb_request_failf(request, (int)json_integer_value(json_object_get(last, "error")),
                     "node %s: %s", json_string_value(json_object_get(last, "node")),
                     json_string_value(json_object_get(last, "why")));
    return true;
}

static void metrics_came(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                         void *context)
{
    struct gather *gather = context;
    json_t *columns, *rows;

    (void)methods;
    if (!is_over(request, answers)) {
        rows = rb_merge_rows(answers, &gather->merge, &columns);
        rb_request_reply(request, json_pack("{s:o,s:o,s:s}", "columns", columns, "rows", rows,
                                            "phase", gather->phase));
    }
    gather_free(gather);
}

static void metrics(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    struct gather *gather;
    int64_t after, limit;

    if (!job || !rb_methods_number(request, "after", 0, &after) ||
        !rb_methods_number(request, "limit", ROWS_USUAL, &limit))
        return;
    if (limit < 1 || limit > ROWS_MOST)
        limit = ROWS_MOST;
    gather = gather_new(job);
    gather->merge = (struct rb_merge){
        .limit = (size_t)limit,
        .lost = json_is_true(json_object_get(rb_request_body(request), "lost")),
        .configuration = job->progress.message ? job->progress.progress->configuration : 0,
        .step = job->progress.message ? job->progress.progress->step : 0,
    };
    rb_methods_ask_nodes(context, request, "node-metrics",
                         json_pack("{s:s,s:I,s:I,s:b}", "job", job->id, "after", (json_int_t)after,
                                   "limit", (json_int_t)limit, "lost", (int)gather->merge.lost),
                         metrics_came, gather);
}

static void logs_came(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                      void *context)
{
    struct gather *gather = context;
    json_t *pieces = json_array();
    const json_t *answer;
    size_t i;

    (void)methods;
    if (!is_over(request, answers)) {
        json_array_foreach(answers, i, answer)
            json_array_extend(pieces, json_object_get(json_object_get(answer, "body"), "pieces"));
        rb_request_reply(request, json_pack("{s:O,s:s}", "pieces", pieces, "phase", gather->phase));
    }
    json_decref(pieces);
    gather_free(gather);
}

static void logs(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    const json_t *after;
    json_t *body;

    if (!job)
        return;
    after = json_object_get(rb_request_body(request), "after");
    body = json_pack("{s:s,s:o}", "job", job->id, "after",
                     json_is_object(after) ? json_deep_copy(after) : json_object());
    rb_methods_ask_nodes(context, request, "node-logs", body, logs_came, gather_new(job));
}

const struct rb_server_method rb_methods_gather[] = {
    {"metrics", true, metrics, .reads = true},
    {"logs", true, logs, .reads = true},
    {NULL, false, NULL},
};
