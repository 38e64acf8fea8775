/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/saves.h"

#include "base/arena.h"

#include <stdlib.h>

static void kick(void *owner)
{
    struct rb_saves *saves = owner;

    rb_mailbox_kick(saves->mailbox);
}

int rb_saves_open(struct rb_saves *saves, const struct rb_model *model, struct rb_why *why)
{
    if (saves->saver)
        return 0;
    saves->model = model;
    return rb_saver_open(model, saves->options->job, saves->options->worker, saves->reports, kick,
                         saves, &saves->saver, why);
}

void rb_saves_close(struct rb_saves *saves)
{
    rb_saver_close(RB_TAKE(saves->saver));
}

bool rb_saves_idle(void *owner)
{
    struct rb_saves *saves = owner;

    return !saves->saver || rb_saver_idle(saves->saver);
}

static bool has_state(const struct rb_saves *saves)
{
    return saves->saver && saves->model->state.level >= 0;
}

static void refuse(uint64_t request, const char *folder, struct rb_saved *ret_saved)
{
    *ret_saved = (struct rb_saved){
        .request = request,
        .step = -1,
        .folder = rb_string(folder),
        .error = rb_string("this worker has no state yet"),
    };
}

void rb_saves_serve(struct rb_saves *saves)
{
    struct rb_save_order order;

    while (rb_saves_idle(saves) && rb_mailbox_take_save(saves->mailbox, &order)) {
        struct rb_save save = {
            .request = order.request,
            .folder = order.folder,
            .export_only = order.export_only,
        };
        struct rb_saved saved;

        if (has_state(saves)) {
            rb_saver_start(saves->saver, &save);
        } else {
            refuse(order.request, order.folder, &saved);
            rb_saved_post(&saved, saves->reports);
            rb_saved_done(&saved);
        }
        free(order.folder);
    }
}

void rb_saves_periodically(struct rb_saves *saves, uint32_t rank)
{
    struct rb_settings settings;

    rb_mailbox_copy_settings(saves->mailbox, &settings);
    if (rank == 0 && settings.checkpoint_path && settings.checkpoint_every > 0 &&
        saves->model->state.level % settings.checkpoint_every == 0) {
        struct rb_save save = {
            .folder = settings.checkpoint_path,
            .prune = true,
            .keep = settings.checkpoint_keep,
        };

        rb_saver_wait(saves->saver);
        rb_saver_start(saves->saver, &save);
    }
    rb_settings_done(&settings);
}

void rb_saves_now(struct rb_saves *saves, const char *folder, struct rb_saved *ret_saved)
{
    struct rb_save save = {.folder = folder};

    if (!has_state(saves)) {
        refuse(0, folder, ret_saved);
        return;
    }
    rb_saver_wait(saves->saver);
    rb_save_run(saves->model->message, &saves->model->state, &save, saves->options->job,
                saves->options->worker, ret_saved);
}

void rb_saves_wait_copied(struct rb_saves *saves)
{
    if (saves->saver)
        rb_saver_wait_copied(saves->saver);
}
