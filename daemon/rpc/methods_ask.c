/* SPDX-License-Identifier: Apache-2.0 */
/* Asking all nodes the same, for a caller or for what the leader does by itself. */
#include "daemon/rpc/methods_inside.h"

#include <stdlib.h>

enum {
    ASKING_MOST = 64, /* nodes at a time, for all callers together: each takes a descriptor */
    ASK_MS = 5000,
};

struct ask {
    struct rb_op op;
    char *method;
    json_t *body;
    size_t begun, open; /* nodes that were asked, and that have not answered */
    json_t *answers;
    struct ask_one {
        struct ask *ask;
        struct rb_client_call *call;
        char *node;
    } * one;
    size_t n;
    void (*done)(struct rb_methods *methods, struct rb_request *request, json_t *answers,
                 void *context);
    void *context;
};

static void ask_free(struct rb_op *op)
{
    struct ask *ask = (struct ask *)op;

    for (size_t i = 0; i < ask->n; i++) {
        if (ask->one[i].call)
            rb_client_cancel(ask->one[i].call);
        if (ask->one[i].call && op->methods)
            op->methods->asking--;
        free(ask->one[i].node);
    }
    json_decref(ask->answers);
    json_decref(ask->body);
    free(ask->method);
    free(ask->one);
    free(ask);
}

static void ask_more(struct rb_methods *methods);

static void ask_end(struct ask *ask)
{
    struct rb_methods *methods = ask->op.methods;
    struct rb_request *request = ask->op.request;
    json_t *answers = RB_TAKE(ask->answers);
    void (*done)(struct rb_methods *, struct rb_request *, json_t *, void *) = ask->done;
    void *context = ask->context;

    if (request)
        rb_request_when_gone(request, NULL, NULL);
    rb_op_remove(&ask->op);
    ask_free(&ask->op);
    done(methods, request, answers, context);
    json_decref(answers);
    ask_more(methods);
}

/* The caller has hung up: nobody is told what the nodes have. */
static void ask_gone(void *context)
{
    ask_end(context);
}

static void answered(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct ask_one *one = context;
    struct ask *ask = one->ask;
    struct rb_methods *methods = ask->op.methods;
    json_t *answer = json_pack("{s:s}", "node", one->node);

    one->call = NULL;
    methods->asking--;
    if (err) {
        json_object_set_new(answer, "error", json_integer(err));
        json_object_set_new(answer, "why", json_string(why ? why->text : ""));
    } else {
        json_object_set_new(answer, "body", json_deep_copy(body));
    }
    json_array_append_new(ask->answers, answer);
    if (--ask->open == 0)
        ask_end(ask);
    else
        ask_more(methods);
}

/* The oldest one with nodes that are not asked yet; NULL: none. */
static struct ask *find_waiting(const struct rb_methods *methods)
{
    struct ask *found = NULL;

    for (struct rb_op *op = methods->ops; op; op = op->next) { /* the newest first */
        struct ask *each = (struct ask *)op;

        if (op->let_go == ask_free && each->begun < each->n)
            found = each;
    }
    return found;
}

static void ask_more(struct rb_methods *methods)
{
    struct ask *ask;

    while (methods->asking < ASKING_MOST && (ask = find_waiting(methods))) {
        struct ask_one *one = &ask->one[ask->begun++];

        methods->asking++;
        one->call = rb_server_call(methods->daemon->server, &(struct rb_client_options){
                                                                .method = ask->method,
                                                                .body = json_incref(ask->body),
                                                                .node = one->node,
                                                                .hops = 2,
                                                                .timeout_ms = ASK_MS,
                                                                .done = answered,
                                                                .context = one,
                                                            });
    }
}

void rb_methods_ask_nodes(struct rb_methods *methods, struct rb_request *request,
                          const char *method, json_t *body,
                          void (*done)(struct rb_methods *methods, struct rb_request *request,
                                       json_t *answers, void *context),
                          void *context)
{
    const struct rb_facts *facts = rb_methods_facts(methods);
    struct ask *ask = rb_alloc(sizeof(*ask));

    ask->op.let_go = ask_free;
    ask->method = rb_string(method);
    ask->body = body;
    ask->answers = json_array();
    ask->done = done;
    ask->context = context;
    ask->one = rb_alloc(sizeof(*ask->one) * (facts->nodes.n + 1));
    ask->n = ask->open = facts->nodes.n;
    rb_op_add(&ask->op, methods, request);
    if (request)
        rb_request_when_gone(request, ask_gone, ask);
    for (size_t i = 0; i < ask->n; i++) {
        ask->one[i].ask = ask;
        ask->one[i].node = rb_string(facts->nodes.at[i].node->name);
    }
    if (ask->n)
        ask_more(methods);
    else
        ask_end(ask);
}
