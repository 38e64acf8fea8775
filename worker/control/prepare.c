/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/prepare.h"

#include "base/arena.h"
#include "base/log.h"
#include "worker/configuration.h"
#include "worker/control/tell.h"
#include "worker/join/feed.h"
#include "worker/join/rehearse.h"
#include "worker/model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* All members exist when they are told to meet, but some may have a model to load yet.  The
 * coordinator gives them less time than this (RB_PREPARE_MS) and blames the late ones: a member
 * that waits must not give up before that.
 *
 * NICE leaves nine tenths of a shared core to the process that trains.  SCHED_IDLE would leave all
 * of it, and on a core that trains without a pause nothing would ever be prepared. */
enum { MEET_MS = 150000, NICE = 10 };

struct rb_preparer {
    const struct rb_worker_options *options;
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    struct rb_listener *listener;
    pthread_t thread;
    struct rb_model *model; /* NULL before the first configuration */
    bool ready;             /* and it has programs */
};

static int load_model(struct rb_preparer *preparer, const Rb__Configure *order, struct rb_why *why)
{
    int err;

    if (preparer->model)
        return 0;
    err = rb_model_load(order->model_path, preparer->options->kind, preparer->options->device,
                        &preparer->model, why);
    if (!err)
        rb_mailbox_loaded(preparer->mailbox, preparer->model);
    return err;
}

/* Returns the configuration that this worker trains in, and which blocks it holds there: both stay
 * the same while it trains in it. */
static uint32_t look(const struct rb_state *state, uint8_t *ret_held, uint32_t *ret_laps)
{
    uint32_t term;

    pthread_mutex_lock(&state->window->lock);
    term = state->window->term;
    *ret_laps = state->window->laps;
    for (size_t b = 0; term && b < state->blocks; b++)
        ret_held[b] = state->held[b] == RB_HELD;
    pthread_mutex_unlock(&state->window->lock);
    return term;
}

static int find_circle(struct rb_preparer *preparer, struct rb_configuration *configuration,
                       struct rb_why *why)
{
    struct rb_why none = {0};
    int err = rb_configuration_circle(configuration, preparer->model->device, &none, why);

    if (configuration->circle)
        rb_log(RB_LOG_INFO, "configuration %u: sums go from GPU to GPU", configuration->number);
    else if (none.text[0])
        rb_log(RB_LOG_INFO, "configuration %u: sums go through the hosts: %s",
               configuration->number, none.text);
    return err;
}

/* Which members have state, and which must be fed?  `ret_role`: what this rank said.  After a
 * death nobody is fed: all align when they open the configuration. */
static int introduce(struct rb_preparer *preparer, struct rb_configuration *configuration,
                     bool recovers, struct rb_role *ret_role, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint8_t *held = rb_alloc(preparer->model->state.blocks + 1);
    struct rb_role role = {0};
    int err;

    if (recovers)
        return 0;
    role.term = look(&preparer->model->state, held, &role.laps);
    role.fresh = !role.term && rb_mailbox_fresh(preparer->mailbox);
    role.core = preparer->options->cpu < 0 ? 0 : (uint32_t)preparer->options->cpu + 1;
    rb_mailbox_meet(preparer->mailbox, configuration->coll);
    err = rb_configuration_introduce(configuration, &role, held, why);
    if (!err)
        err = find_circle(preparer, configuration, why);
    rb_mailbox_meet(preparer->mailbox, NULL);
    *ret_role = role;
    return err ? rb_why_add(why, err, "configuration %u", configuration->number) : 0;
}

static int start_feed(struct rb_preparer *preparer, struct rb_configuration *configuration,
                      const struct rb_role *role, struct rb_why *why)
{
    if (!configuration->roster || !configuration->roster->n_newcomers || !role->term)
        return 0;
    return rb_feed_open(preparer->model, configuration->coll, configuration->number,
                        configuration->rank, configuration->roster, &configuration->placement,
                        role->term, preparer->reports, &configuration->feed, why);
}

/* When a job starts nobody trains yet, and after a death everybody waits for this. */
static bool is_urgent(const Rb__Configure *order)
{
    return order->number == 1 || order->restore || order->recovers;
}

static int prepare(struct rb_preparer *preparer, const Rb__Configure *order,
                   struct rb_configuration **ret_configuration, struct rb_role *ret_role,
                   struct rb_why *why)
{
    struct rb_configuration *configuration = NULL;
    bool first = !preparer->ready;
    int err = load_model(preparer, order, why);

    if (!err)
        err = rb_configuration_read(order, preparer->model->message, &configuration, why);
    if (!err && first)
        err = rb_model_use(preparer->model, configuration->plan->recomputes, why);
    preparer->ready |= !err;
    if (!err && first && !is_urgent(order))
        rb_rehearse(preparer->model, !configuration->placement.sharded,
                    rb_mailbox_stop(preparer->mailbox));
    if (!err)
        err =
            rb_configuration_meet(configuration, order, preparer->options->job, preparer->listener,
                                  MEET_MS, rb_mailbox_unwanted(preparer->mailbox), why);
    if (!err)
        err = introduce(preparer, configuration, order->recovers, ret_role, why);
    if (err) {
        rb_configuration_free(configuration);
        return err;
    }
    *ret_configuration = configuration;
    return 0;
}

/* One order, on a thread of its own where others may be training: a thread cannot lower its
 * niceness again. */
struct work {
    struct rb_preparer *preparer;
    const Rb__Configure *order;
    struct rb_configuration *configuration;
    struct rb_role role;
    struct rb_why why;
    int err;
};

static void *work_nicely(void *context)
{
    struct work *work = context;

    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    work->err = prepare(work->preparer, work->order, &work->configuration, &work->role, &work->why);
    return NULL;
}

static void prepare_beside(struct work *work)
{
    pthread_t thread;

    if (!is_urgent(work->order) && pthread_create(&thread, NULL, work_nicely, work) == 0)
        pthread_join(thread, NULL);
    else
        work->err =
            prepare(work->preparer, work->order, &work->configuration, &work->role, &work->why);
}

/* Ready is reported before the step thread and the feed know of the configuration: their reports
 * come later. */
static void serve(struct rb_preparer *preparer, const Rb__Configure *order)
{
    struct work work = {.preparer = preparer, .order = order};
    int err;

    prepare_beside(&work);
    err = work.err;
    if (!err) {
        rb_tell_ready(preparer->reports, order->number);
        err = start_feed(preparer, work.configuration, &work.role, &work.why);
    }
    if (err == RB_ECANCELED) {
        rb_log(RB_LOG_INFO, "configuration %u is not wanted any more", order->number);
    } else if (err) {
        rb_log(RB_LOG_WARN, "configuration %u: %s", order->number, work.why.text);
        rb_tell_unready(preparer->reports, order->number, work.why.text);
    } else if (rb_mailbox_prepared(preparer->mailbox, work.configuration)) {
        rb_log(RB_LOG_INFO, "configuration %u is ready: rank %u of %zu", order->number, order->rank,
               order->n_members);
        return;
    }
    rb_configuration_free(work.configuration);
}

static void *run(void *context)
{
    struct rb_preparer *preparer = context;
    Rb__Configure *order;

    while ((order = rb_mailbox_next_order(preparer->mailbox)) != NULL) {
        serve(preparer, order);
        rb__configure__free_unpacked(order, NULL);
    }
    return NULL;
}

int rb_preparer_open(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                     struct rb_reports *reports, struct rb_listener *listener,
                     struct rb_preparer **ret_preparer, struct rb_why *why)
{
    struct rb_preparer *preparer = rb_alloc(sizeof *preparer);
    int number;

    *preparer = (struct rb_preparer){
        .options = options,
        .mailbox = mailbox,
        .reports = reports,
        .listener = listener,
    };
    number = pthread_create(&preparer->thread, NULL, run, preparer);
    if (number) {
        free(preparer);
        return rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(number));
    }
    *ret_preparer = preparer;
    return 0;
}

void rb_preparer_close(struct rb_preparer *preparer)
{
    if (!preparer)
        return;
    pthread_join(preparer->thread, NULL);
    rb_mailbox_clear(preparer->mailbox); /* ends a feed that still reads the state */
    rb_model_free(preparer->model);
    free(preparer);
}
