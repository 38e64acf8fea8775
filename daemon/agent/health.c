/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/health.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/nvml.h"
#include "daemon/presence.h"

#include <inttypes.h>
#include <stdlib.h>

enum { EVERY_MS = 2000 };

/* A GPU, of which there may be several devices (RUBATO_GPU_SHARES). */
struct watched {
    size_t device; /* of devices->at */
    struct rb_nvml_gpu *gpu;
    struct rb_nvml_look look;
};

/* While `looking`, the other thread owns all fields but the first half. */
struct rb_health {
    struct rb_devices *devices;
    struct rb_presence *presence;
    uv_loop_t *loop;
    uv_timer_t timer;
    uv_work_t work;
    bool looking, ending;

    struct rb_nvml *nvml;
    struct rb_why why; /* why nothing is looked at, or not everything; empty: all is */
    struct watched *watched;
    size_t n;
};

static void look(uv_timer_t *timer);

/* ---- The other thread ------------------------------------------------------------------------ */

static void find_gpus(struct rb_health *health)
{
    const char *path = getenv("RUBATO_NVML");
    int err = rb_nvml_open(path ? path : "libnvidia-ml.so.1", &health->nvml, &health->why);

    for (size_t i = 0; !err && i < health->devices->n; i++) {
        const char *bus = health->devices->at[i]->bus;
        struct watched *one = &health->watched[health->n];

        one->device = i;
        if (bus && !rb_nvml_find(health->nvml, bus, &one->gpu, &health->why))
            health->n++;
    }
}

static void on_work(uv_work_t *work)
{
    struct rb_health *health = work->data;

    if (!health->watched) {
        health->watched = rb_alloc((health->devices->n + 1) * sizeof *health->watched);
        find_gpus(health);
    }
    if (!health->nvml)
        return;
    rb_nvml_listen(health->nvml);
    for (size_t i = 0; i < health->n; i++)
        rb_nvml_look_at(health->watched[i].gpu, &health->watched[i].look);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void log_change(const Rb__Device *device, const struct rb_nvml_look *look)
{
    if (look->sick[0] && !device->sick)
        rb_log(RB_LOG_ERROR, "device %" PRIu32 " is sick and will be left: %s", device->index,
               look->sick);
    if (look->slow[0] && !device->slow)
        rb_log(RB_LOG_WARN, "device %" PRIu32 " is slow: %s", device->index, look->slow);
    if (look->xids)
        rb_log(RB_LOG_WARN, "device %" PRIu32 ": the driver told of %" PRIu64 " errors",
               device->index, look->xids);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_health *health = handle->data;

    rb_nvml_close(health->nvml);
    free(health->watched);
    free(health);
}

static void on_looked(uv_work_t *work, int status)
{
    struct rb_health *health = work->data;
    bool changed = false;

    (void)status;
    health->looking = false;
    if (health->ending) {
        uv_close((uv_handle_t *)&health->timer, on_closed);
        return;
    }
    if (health->why.text[0])
        rb_log(RB_LOG_WARN, "GPUs are not all watched: %s", health->why.text);
    health->why.text[0] = 0;
    for (size_t i = 0; i < health->n; i++) {
        const struct watched *one = &health->watched[i];

        log_change(health->devices->at[one->device], &one->look);
        changed |= rb_devices_note(health->devices, one->device, one->look.sick, one->look.slow,
                                   one->look.used);
    }
    if (changed)
        rb_presence_look(health->presence);
    if (health->n)
        uv_timer_start(&health->timer, look, EVERY_MS, 0);
}

static void look(uv_timer_t *timer)
{
    struct rb_health *health = timer->data;

    health->looking = !uv_queue_work(health->loop, &health->work, on_work, on_looked);
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_health *rb_health_new(uv_loop_t *loop, struct rb_devices *devices,
                                struct rb_presence *presence)
{
    struct rb_health *health;

    if (!devices->gpus)
        return NULL;
    health = rb_alloc(sizeof *health);
    health->loop = loop;
    health->devices = devices;
    health->presence = presence;
    health->work.data = health;
    uv_timer_init(loop, &health->timer);
    health->timer.data = health;
    uv_timer_start(&health->timer, look, 0, 0);
    return health;
}

void rb_health_free(struct rb_health *health)
{
    if (!health)
        return;
    health->ending = true;
    uv_timer_stop(&health->timer);
    if (!health->looking)
        uv_close((uv_handle_t *)&health->timer, on_closed);
}
