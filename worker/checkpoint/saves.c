/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/saves.h"

#include "base/arena.h"
#include "worker/checkpoint/prune.h"

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
    return rb_saver_open(model, saves->options, saves->reports, kick, saves, &saves->saver, why);
}

void rb_saves_close(struct rb_saves *saves)
{
    free(saves->waiting.folder);
    rb_saver_close(RB_TAKE(saves->saver));
}

bool rb_saves_ready(void *owner)
{
    struct rb_saves *saves = owner;

    return !saves->saver || rb_saver_ready(saves->saver);
}

static const char *const no_state = "this worker has no state yet";
static const char *const torn =
    "a part of its weights is older: it can be exported while it trains";
static const char *const in_shards =
    "its state is in shards: a checkpoint can be made while it trains";

/* Why this rank alone cannot save; NULL: it can. */
static const char *hindrance(const struct rb_saves *saves, bool export_only)
{
    if (!saves->saver || saves->model->state.level < 0)
        return no_state;
    if (saves->model->state.torn)
        return torn;
    return export_only || rb_state_whole(&saves->model->state) ? NULL : in_shards;
}

static void refuse(uint64_t request, const char *folder, const char *reason,
                   struct rb_saved *ret_saved)
{
    *ret_saved = (struct rb_saved){
        .request = request,
        .step = -1,
        .folder = rb_string(folder),
        .error = rb_string(reason),
    };
}

static void refuse_order(struct rb_saves *saves, const struct rb_save_order *order,
                         const char *reason)
{
    struct rb_saved saved;

    refuse(order->request, order->folder, reason, &saved);
    rb_saved_post(&saved, saves->reports);
    rb_saved_done(&saved);
}

static struct rb_save save_of(const struct rb_save_order *order)
{
    return (struct rb_save){
        .request = order->request,
        .folder = order->folder,
        .export_only = order->export_only,
    };
}

static void serve(struct rb_saves *saves, struct rb_save_order *order, bool trains)
{
    const char *reason = hindrance(saves, order->export_only);
    struct rb_save save = save_of(order);

    if (!reason)
        rb_saver_start(saves->saver, &save);
    else if (reason == in_shards && saves->gathered)
        rb_saver_write(saves->saver, &save);
    else if ((reason == in_shards || reason == torn) && trains)
        saves->waiting =
            (struct rb_save_order){order->request, RB_TAKE(order->folder), order->export_only};
    else
        refuse_order(saves, order, reason);
    free(order->folder);
}

void rb_saves_serve(struct rb_saves *saves, bool trains)
{
    bool alone = saves->waiting.folder && !hindrance(saves, saves->waiting.export_only);
    struct rb_save_order order;

    if (saves->waiting.folder && !alone && !trains) {
        refuse_order(saves, &saves->waiting, in_shards);
        free(RB_TAKE(saves->waiting.folder));
    }
    if (alone && rb_saves_ready(saves)) { /* the state is whole here again: no need to collect */
        order = saves->waiting;
        saves->waiting = (struct rb_save_order){0};
        serve(saves, &order, trains);
    }
    while (!saves->waiting.folder && rb_mailbox_has_save(saves->mailbox) && rb_saves_ready(saves) &&
           rb_mailbox_take_save(saves->mailbox, &order))
        serve(saves, &order, trains);
}

/* ---- Every so many steps --------------------------------------------------------------------*/

static bool is_ever_due(const struct rb_settings *settings, uint32_t rank)
{
    return rank == 0 && settings->checkpoint_path && settings->checkpoint_every > 0;
}

/* Is a checkpoint due at `level`? */
static bool is_due(const struct rb_settings *settings, uint32_t rank, int64_t level)
{
    return is_ever_due(settings, rank) && level % settings->checkpoint_every == 0;
}

static struct rb_save periodic(const struct rb_settings *settings)
{
    return (struct rb_save){
        .folder = settings->checkpoint_path,
        .prune = true,
        .keep = settings->checkpoint_keep,
    };
}

void rb_saves_periodically(struct rb_saves *saves, uint32_t rank)
{
    struct rb_settings settings;

    if (saves->model->state.level < saves->begun)
        saves->begun = 0; /* the level has gone back */
    rb_mailbox_copy_settings(saves->mailbox, &settings);
    if (is_due(&settings, rank, saves->model->state.level) && !hindrance(saves, false) &&
        saves->begun != saves->model->state.level) {
        struct rb_save save = periodic(&settings);

        saves->begun = saves->model->state.level;

        rb_saver_wait(saves->saver);
        rb_saver_start(saves->saver, &save);
    } else if (is_ever_due(&settings, rank)) {
        rb_saver_ready(saves->saver); /* gets its memory long before it is due */
    }
    rb_settings_done(&settings);
}

/* ---- A state in shards ----------------------------------------------------------------------*/

static const char *const no_room =
    "no memory for the whole state, which is in shards: a save takes as much as all of it";

/* There is no memory for the collected state: report that, and ask no rank for it. */
static void give_up(struct rb_saves *saves, const struct rb_settings *settings, bool due)
{
    const struct rb_save_order order = {0, settings->checkpoint_path, false};

    if (due)
        refuse_order(saves, &order, no_room);
    if (saves->waiting.folder)
        refuse_order(saves, &saves->waiting, no_room);
    free(RB_TAKE(saves->waiting.folder));
}

bool rb_saves_want(struct rb_saves *saves, uint32_t rank, int64_t next)
{
    struct rb_settings settings;
    bool due, wants;

    if (!saves->saver || rb_state_whole(&saves->model->state))
        return false;
    rb_mailbox_copy_settings(saves->mailbox, &settings);
    due = is_due(&settings, rank, next);
    wants = due || saves->waiting.folder;
    if (wants && !rb_saver_lend(saves->saver)) {
        give_up(saves, &settings, due);
        wants = false;
    }
    rb_settings_done(&settings);
    return wants;
}

/* Save what the state was collected for: a periodic checkpoint if one is due, else the waiting
 * save. */
static void save_collected(struct rb_saves *saves, uint32_t rank)
{
    struct rb_settings settings;
    struct rb_save save;

    rb_mailbox_copy_settings(saves->mailbox, &settings);
    if (is_due(&settings, rank, saves->model->state.level)) {
        save = periodic(&settings);
        rb_saver_write(saves->saver, &save);
    } else if (saves->waiting.folder) {
        save = save_of(&saves->waiting);
        rb_saver_write(saves->saver, &save);
        free(RB_TAKE(saves->waiting.folder));
    }
    rb_settings_done(&settings);
}

static int collect(struct rb_saves *saves, const struct rb_configuration *configuration,
                   uint32_t collector, struct rb_state **ret_whole, struct rb_why *why)
{
    struct rb_state *into = NULL;

    if (configuration->rank == collector) {
        into = rb_saver_lend(saves->saver);
        if (!into)
            return rb_why_set(why, RB_ENOMEM, "no memory for the whole state, to save it");
    }
    *ret_whole = into;
    return rb_collect_run(saves->model, configuration, collector, into, why);
}

int rb_saves_collect(struct rb_saves *saves, const struct rb_configuration *configuration,
                     uint32_t collector, struct rb_why *why)
{
    struct rb_state *whole = NULL;
    int err = collect(saves, configuration, collector, &whole, why);

    if (!err && whole)
        save_collected(saves, configuration->rank);
    return err;
}

/* ---- Before going on ------------------------------------------------------------------------*/

int rb_saves_now(struct rb_saves *saves, const char *folder, struct rb_saved *ret_saved)
{
    const char *reason = hindrance(saves, false);
    struct rb_save save = {.folder = folder};

    if (reason) {
        refuse(0, folder, reason, ret_saved);
        return RB_EREFUSED;
    }
    rb_saver_wait(saves->saver);
    rb_save_run(saves->model->message, &saves->model->state, &save, saves->options->job,
                saves->options->worker, ret_saved);
    return ret_saved->error ? RB_EIO : 0;
}

void rb_saves_prune(const struct rb_saves *saves, const char *folder)
{
    rb_prune(folder, saves->model->message, saves->options->job, saves->model->state.level, 1,
             NULL);
}

int rb_saves_last(struct rb_saves *saves, const struct rb_configuration *configuration,
                  const char *folder, struct rb_saved *ret_saved, struct rb_why *why)
{
    struct rb_save save = {.folder = folder};
    struct rb_state *whole = NULL;
    int err = collect(saves, configuration, 0, &whole, why);

    saves->gathered = !err && whole;
    if (!err && whole && folder)
        rb_save_run(saves->model->message, whole, &save, saves->options->job,
                    saves->options->worker, ret_saved);
    return err;
}

void rb_saves_wait_copied(struct rb_saves *saves)
{
    if (saves->saver)
        rb_saver_wait_copied(saves->saver);
}
