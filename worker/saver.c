/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/saver.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/checkpoint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- One save -------------------------------------------------------------------------------*/

void rb_save_run(const Rb__Model *model, const struct rb_state *state, const struct rb_save *save,
                 const char *job, const char *worker, struct rb_saved *ret_saved)
{
    struct rb_saved saved = {.request = save->request, .step = state->level};
    struct rb_why why = {0};
    int err;

    if (state->level < 0)
        err = rb_why_set(&why, RB_EAGAIN, "there is no state yet");
    else if (save->export_only)
        err = rb_checkpoint_export(model, state, save->folder, &saved.bytes, &why);
    else
        err = rb_checkpoint_write(model, state, save->folder, job, worker, &saved.folder,
                                  &saved.bytes, &why);
    if (!err && save->prune)
        rb_checkpoint_prune(save->folder, job, state->level, save->keep, NULL);
    if (err)
        saved.error = rb_string(why.text);
    if (!saved.folder)
        saved.folder = rb_string(save->folder);
    *ret_saved = saved;
}

void rb_saved_done(struct rb_saved *saved)
{
    free(saved->folder);
    free(saved->error);
    *saved = (struct rb_saved){0};
}

void rb_saved_message(const struct rb_saved *saved, Rb__Saved *message)
{
    *message = (Rb__Saved)RB__SAVED__INIT;
    message->request = saved->request;
    message->step = saved->step;
    message->folder = saved->folder;
    message->bytes = saved->bytes;
    message->error = saved->error;
}

void rb_saved_post(const struct rb_saved *saved, struct rb_reports *reports)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Saved body;

    rb_saved_message(saved, &body);
    message.saved = &body;
    rb_reports_post(reports, &message);
}

/* ---- The thread -----------------------------------------------------------------------------*/

/*   IDLE --start--> COPYING --copied--> WRITING --written--> IDLE     (any) --close, when IDLE-->
 *     |                                    ^                                              ENDING
 *     +--lend, write-----------------------+ */
enum phase { IDLE, COPYING, WRITING, ENDING };

struct rb_saver {
    const struct rb_model *model;
    const char *job, *worker;
    struct rb_reports *reports;
    void (*idle)(void *owner);
    void *owner;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum phase phase;
    struct rb_save save;
    char *folder;         /* save.folder, owned */
    struct rb_state copy; /* memory is got with the first save and kept */
};

static void enter(struct rb_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    saver->phase = phase;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

/* Wait until the phase is none of the two; returns it. */
static enum phase wait_beyond(struct rb_saver *saver, enum phase a, enum phase b)
{
    enum phase phase;

    pthread_mutex_lock(&saver->lock);
    while (saver->phase == a || saver->phase == b)
        pthread_cond_wait(&saver->changed, &saver->lock);
    phase = saver->phase;
    pthread_mutex_unlock(&saver->lock);
    return phase;
}

static void copy_arrays(struct rb_saver *saver)
{
    rb_state_copy(&saver->copy, &saver->model->state, saver->model->message);
}

static void *run(void *context)
{
    struct rb_saver *saver = context;

    enum phase phase;

    while ((phase = wait_beyond(saver, IDLE, IDLE)) != ENDING) {
        struct rb_saved saved;

        if (phase == COPYING)
            copy_arrays(saver);
        rb_fault("worker.save.copied");
        enter(saver, WRITING);
        rb_save_run(saver->model->message, &saver->copy, &saver->save, saver->job, saver->worker,
                    &saved);
        rb_saved_post(&saved, saver->reports);
        rb_saved_done(&saved);
        enter(saver, IDLE);
        saver->idle(saver->owner);
    }
    return NULL;
}

int rb_saver_open(const struct rb_model *model, const char *job, const char *worker,
                  struct rb_reports *reports, void (*idle)(void *owner), void *owner,
                  struct rb_saver **ret_saver, struct rb_why *why)
{
    struct rb_saver *saver = rb_alloc(sizeof *saver);
    int number;

    *saver = (struct rb_saver){
        .model = model,
        .job = job,
        .worker = worker,
        .reports = reports,
        .idle = idle,
        .owner = owner,
        .copy = {.level = -1},
    };
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    number = pthread_create(&saver->thread, NULL, run, saver);
    if (number) {
        free(saver);
        return rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(number));
    }
    *ret_saver = saver;
    return 0;
}

bool rb_saver_idle(struct rb_saver *saver)
{
    bool idle;

    pthread_mutex_lock(&saver->lock);
    idle = saver->phase == IDLE;
    pthread_mutex_unlock(&saver->lock);
    return idle;
}

/* Without memory for a copy the save is written from the state itself, before this returns. */
static void save_here(struct rb_saver *saver, const struct rb_save *save)
{
    struct rb_saved saved;

    rb_save_run(saver->model->message, &saver->model->state, save, saver->job, saver->worker,
                &saved);
    rb_saved_post(&saved, saver->reports);
    rb_saved_done(&saved);
}

static void note_save(struct rb_saver *saver, const struct rb_save *save)
{
    free(saver->folder);
    saver->folder = rb_string(save->folder);
    saver->save = *save;
    saver->save.folder = saver->folder;
}

void rb_saver_start(struct rb_saver *saver, const struct rb_save *save)
{
    if (!saver->copy.w && rb_state_open(saver->model->message, NULL, &saver->copy, NULL)) {
        save_here(saver, save);
        return;
    }
    rb_state_copy_counters(&saver->copy, &saver->model->state);
    note_save(saver, save);
    enter(saver, COPYING);
}

struct rb_state *rb_saver_lend(struct rb_saver *saver)
{
    rb_saver_wait(saver);
    if (!saver->copy.w && rb_state_open(saver->model->message, NULL, &saver->copy, NULL))
        return NULL;
    return &saver->copy;
}

void rb_saver_write(struct rb_saver *saver, const struct rb_save *save)
{
    note_save(saver, save);
    enter(saver, WRITING);
}

void rb_saver_wait_copied(struct rb_saver *saver)
{
    wait_beyond(saver, COPYING, COPYING);
}

void rb_saver_wait(struct rb_saver *saver)
{
    wait_beyond(saver, COPYING, WRITING);
}

void rb_saver_close(struct rb_saver *saver)
{
    if (!saver)
        return;
    rb_saver_wait(saver);
    enter(saver, ENDING);
    pthread_join(saver->thread, NULL);
    rb_state_done(&saver->copy);
    free(saver->folder);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    free(saver);
}
