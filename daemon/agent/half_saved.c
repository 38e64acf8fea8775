/* SPDX-License-Identifier: Apache-2.0 */
/* Half of a checkpoint, left by a worker that was killed as it wrote or removed it: nobody else
 * removes it when its job is over.  On a thread, as its folder may be on a network. */
#include "daemon/agent/checkpoints.h"

#include "base/arena.h"
#include "base/file.h"
#include "daemon/agent/worker.h"

#include <stdlib.h>

struct half_saved {
    uv_work_t work;
    char *folder, *written, *removed; /* written, removed: what names begin with */
};

static void remove_all(uv_work_t *work)
{
    const struct half_saved *half = work->data;

    rb_file_remove_beginning(half->folder, half->written, NULL);
    rb_file_remove_beginning(half->folder, half->removed, NULL);
}

static void on_removed(uv_work_t *work, int status)
{
    struct half_saved *half = work->data;

    (void)status;
    free(half->folder);
    free(half->written);
    free(half->removed);
    free(half);
}

void rb_agent_remove_half_saved(const struct rb_worker *worker)
{
    struct half_saved *half;

    if (!worker->checkpoints)
        return;
    half = rb_alloc(sizeof(*half));
    half->work.data = half;
    half->folder = rb_string(worker->checkpoints);
    half->written = rb_format(".tmp-%s-%s-", worker->told.job, worker->told.worker);
    half->removed = rb_format(".tmp-%s-removed-", worker->told.job);
    if (uv_queue_work(worker->agent->daemon->loop, &half->work, remove_all, on_removed))
        on_removed(&half->work, 0);
}
