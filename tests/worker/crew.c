/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/crew.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "worker/join/opening.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void path_of(const struct crew_rank *one, uint32_t rank, char path[160])
{
    snprintf(path, 160, "%s/peer%u", one->crew->folder, rank);
}

static int meet(struct crew_rank *one, Rb__Configure *order)
{
    Rb__Peer peers[CREW_MOST], *members[CREW_MOST];
    char names[CREW_MOST][8], addresses[CREW_MOST][176], path[160], *texts[CREW_MOST];
    int err;

    for (uint32_t r = 0; r < one->crew->size; r++) {
        rb__peer__init(&peers[r]);
        snprintf(names[r], sizeof names[r], "%u", r);
        path_of(one, r, path);
        snprintf(addresses[r], sizeof addresses[r], "unix:%s", path);
        texts[r] = addresses[r];
        peers[r].worker = names[r];
        peers[r].addresses = &texts[r];
        peers[r].n_addresses = 1;
        members[r] = &peers[r];
    }
    order->n_members = one->crew->size;
    order->members = members;
    err = rb_configuration_read(order, one->model->message, &one->configuration, &one->why);
    return err ? err
               : rb_configuration_meet(one->configuration, order, "crew", one->listener,
                                       CREW_MEET_MS, NULL, &one->why);
}

static int join(struct crew_rank *one)
{
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/model", one->crew->folder);
    RB_CLEANUP(rb_freep) char *plan = rb_format("%s/plan", one->crew->folder);
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights.safetensors", one->crew->folder);
    const char *kind = getenv("RUBATO_TEST_KIND");
    Rb__Configure order = RB__CONFIGURE__INIT;
    uint64_t bytes;
    int err;

    order.number = 1;
    order.rank = one->rank;
    order.digest = (char *)"";
    order.model_path = model;
    order.plan_path = plan;
    order.restore = weights;
    pthread_mutex_lock(&one->crew->loading); /* oneDNN's own locks are not seen by sanitizers */
    err = rb_model_load(model, kind ? kind : "cpu", 0, &one->model, &one->why);
    err = err ? err : rb_model_use(one->model, false, &one->why);
    pthread_mutex_unlock(&one->crew->loading);
    err = err ? err : meet(one, &order);
    return err ? err : rb_opening_run(one->model, one->configuration, &bytes, &one->why);
}

static void not_ready(struct rb_vote_ready *ret_ready, void *owner)
{
    (void)owner;
    *ret_ready = (struct rb_vote_ready){0};
}

static void no_matter(void *owner)
{
    (void)owner;
}

static bool reads_all(void *owner)
{
    (void)owner;
    return true;
}

static void watch(const struct rb_lap_pass *pass, void *owner)
{
    struct crew_rank *one = owner;

    if (one->crew->watch)
        one->crew->watch(one, pass);
}

static void *run(void *context)
{
    static const atomic_bool never;
    struct crew_rank *one = context;
    struct rb_step_result result;
    struct rb_step step = {
        .stop = &never,
        .ready = not_ready,
        .voted = no_matter,
        .changing = no_matter,
        .reads_all = reads_all,
        .watch = watch,
        .owner = one,
    };

    one->err = join(one);
    if (!one->err && one->crew->joined)
        one->crew->joined(one);
    step.model = one->model;
    step.configuration = one->configuration;
    while (!one->err && one->model->state.level < one->model->message->steps) {
        one->err = rb_step_run(&step, &result, &one->why);
        if (!one->err && one->crew->stepped)
            one->crew->stepped(one, &result);
    }
    if (one->err && one->configuration) { /* closing lets the others hear of it */
        rb_configuration_free(one->configuration);
        one->configuration = NULL;
    }
    return NULL;
}

int crew_run(struct crew *crew, struct rb_why *why)
{
    pthread_t threads[CREW_MOST];
    char path[160];
    int err = 0;

    pthread_mutex_init(&crew->loading, NULL);
    for (uint32_t r = 0; !err && r < crew->size; r++) {
        crew->ranks[r] = (struct crew_rank){.crew = crew, .rank = r, .own = crew->ranks[r].own};
        path_of(&crew->ranks[r], r, path);
        err = rb_listener_open(path, NULL, &crew->ranks[r].listener, why);
    }
    for (uint32_t r = 0; !err && r < crew->size; r++)
        if (pthread_create(&threads[r], NULL, run, &crew->ranks[r]))
            return rb_why_set(why, RB_EINTERNAL, "no thread for rank %u", r);
    for (uint32_t r = 0; !err && r < crew->size; r++)
        pthread_join(threads[r], NULL);
    pthread_mutex_destroy(&crew->loading);
    for (uint32_t r = 0; !err && r < crew->size; r++)
        if (crew->ranks[r].err && crew->ranks[r].err != RB_EPEER)
            err = rb_why_set(why, crew->ranks[r].err, "rank %u: %s", r, crew->ranks[r].why.text);
    for (uint32_t r = 0; !err && r < crew->size; r++)
        if (crew->ranks[r].err)
            err = rb_why_set(why, crew->ranks[r].err, "rank %u: %s", r, crew->ranks[r].why.text);
    return err;
}

void crew_done(struct crew *crew)
{
    for (uint32_t r = 0; r < crew->size; r++) {
        rb_configuration_free(RB_TAKE(crew->ranks[r].configuration));
        rb_model_free(RB_TAKE(crew->ranks[r].model));
        if (crew->ranks[r].listener)
            rb_listener_close(RB_TAKE(crew->ranks[r].listener));
    }
}
