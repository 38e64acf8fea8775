/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/saver.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/prune.h"
#include "worker/checkpoint/snapshot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The lowest priority that a thread can ask for. */
enum { NICE = 19 };

/* ---- One save -------------------------------------------------------------------------------*/

void rb_save_run(const Rb__Model *model, const struct rb_state *state, const struct rb_save *save,
                 const char *job, const char *worker, struct rb_saved *ret_saved)
{
    struct rb_saved saved = {.request = save->request, .step = state->level};
    struct rb_why why = {0};
    int err;

    rb_state_pull(state, 0, state->elements);
    if (state->level < 0)
        err = rb_why_set(&why, RB_EAGAIN, "there is no state yet");
    else if (rb_device_check(state->device, &why))
        err = RB_EINTERNAL;
    else if (save->export_only)
        err = rb_checkpoint_export(model, state, save->folder, &saved.bytes, &why);
    else
        err = rb_checkpoint_write(model, state, save->folder, job, worker, &saved.folder,
                                  &saved.bytes, &why);
    if (!err && save->prune)
        rb_prune(save->folder, model, job, state->level, save->keep, NULL);
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

/*   IDLE --ready--------> RESERVING -----------------------> IDLE
 *        --start--------> COPYING --copied--> WRITING -----> IDLE
 *        --lend, write----------------------> WRITING -----> IDLE
 *        --close--------> ENDING */
enum phase { IDLE, RESERVING, COPYING, WRITING, ENDING };

struct rb_saver {
    const struct rb_model *model;
    const struct rb_worker_options *options;
    struct rb_reports *reports;
    void (*idle)(void *owner);
    void *owner;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum phase phase;
    struct rb_save save;
    char *folder;                 /* save.folder, owned */
    struct rb_snapshot *snapshot; /* its memory is got with the first save and kept */
    bool short_of_memory;         /* there is no memory for it */
};

static void enter(struct rb_saver *saver, enum phase phase)
{
    pthread_mutex_lock(&saver->lock);
    saver->phase = phase;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

static enum phase phase_of(struct rb_saver *saver)
{
    enum phase phase;

    pthread_mutex_lock(&saver->lock);
    phase = saver->phase;
    pthread_mutex_unlock(&saver->lock);
    return phase;
}

/* Wait until the phase is none from `first` to `last`; returns it. */
static enum phase wait_beyond(struct rb_saver *saver, enum phase first, enum phase last)
{
    enum phase phase;

    pthread_mutex_lock(&saver->lock);
    while (saver->phase >= first && saver->phase <= last)
        pthread_cond_wait(&saver->changed, &saver->lock);
    phase = saver->phase;
    pthread_mutex_unlock(&saver->lock);
    return phase;
}

/* The step always goes before this thread: it runs on a core that is free, and where there is none,
 * in the little that is left of the step's core. */
static void stand_back(const struct rb_saver *saver)
{
    sched_setaffinity(0, sizeof saver->options->cores, &saver->options->cores);
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
}

/* Write into what the folder's name stands for now, so that later reports of the save hold by that
 * name.  Not earlier: the step thread starts the save, and the file system may take its time. */
static void write_state(struct rb_saver *saver, const struct rb_state *state)
{
    RB_CLEANUP(rb_freep) char *real = rb_file_real(saver->folder);
    struct rb_save save = saver->save;
    struct rb_saved saved;

    save.folder = real;
    rb_save_run(saver->model->message, state, &save, saver->options->job, saver->options->worker,
                &saved);
    rb_saved_post(&saved, saver->reports);
    rb_saved_done(&saved);
}

static void save(struct rb_saver *saver, bool copies)
{
    if (copies)
        rb_snapshot_complete(saver->snapshot);
    if (rb_device_check(saver->model->device, NULL)) /* the copy is worth nothing */
        rb_snapshot_copy(saver->snapshot)->level = -1;
    rb_fault("worker.save.copied");
    enter(saver, WRITING);
    write_state(saver, rb_snapshot_copy(saver->snapshot));
}

static void *run(void *context)
{
    struct rb_saver *saver = context;
    enum phase phase;

    stand_back(saver);
    while ((phase = wait_beyond(saver, IDLE, IDLE)) != ENDING) {
        if (phase == RESERVING)
            saver->short_of_memory = rb_snapshot_reserve(saver->snapshot, NULL) != 0;
        else
            save(saver, phase == COPYING);
        enter(saver, IDLE);
        saver->idle(saver->owner);
    }
    return NULL;
}

int rb_saver_open(const struct rb_model *model, const struct rb_worker_options *options,
                  struct rb_reports *reports, void (*idle)(void *owner), void *owner,
                  struct rb_saver **ret_saver, struct rb_why *why)
{
    struct rb_saver *saver = rb_alloc(sizeof *saver);
    int number;

    *saver = (struct rb_saver){
        .model = model,
        .options = options,
        .reports = reports,
        .idle = idle,
        .owner = owner,
        .snapshot = rb_snapshot_new(&model->state, model->message),
    };
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->changed, NULL);
    number = pthread_create(&saver->thread, NULL, run, saver);
    if (number) {
        rb_snapshot_free(saver->snapshot);
        free(saver);
        return rb_why_set(why, RB_EINTERNAL, "cannot start a thread: %s", strerror(number));
    }
    model->state.window->snapshot = saver->snapshot;
    *ret_saver = saver;
    return 0;
}

bool rb_saver_ready(struct rb_saver *saver)
{
    if (phase_of(saver) != IDLE)
        return false;
    if (rb_snapshot_copy(saver->snapshot) || saver->short_of_memory)
        return true;
    enter(saver, RESERVING);
    return false;
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
    note_save(saver, save);
    /* Without memory for a copy the save is written from the state itself, before this returns. */
    if (rb_snapshot_reserve(saver->snapshot, NULL)) {
        write_state(saver, &saver->model->state);
        return;
    }
    rb_snapshot_begin(saver->snapshot);
    enter(saver, COPYING);
}

struct rb_state *rb_saver_lend(struct rb_saver *saver)
{
    rb_saver_wait(saver);
    return rb_snapshot_reserve(saver->snapshot, NULL) ? NULL : rb_snapshot_copy(saver->snapshot);
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
    wait_beyond(saver, RESERVING, WRITING);
}

void rb_saver_close(struct rb_saver *saver)
{
    if (!saver)
        return;
    rb_saver_wait(saver);
    enter(saver, ENDING);
    pthread_join(saver->thread, NULL);
    saver->model->state.window->snapshot = NULL;
    rb_snapshot_free(saver->snapshot);
    free(saver->folder);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->lock);
    free(saver);
}
