/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/devices.h"

#include "base/arena.h"
#include "daemon/agent/spawn.h"
#include "proto/reflect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { USED_PARTS = 16 }; /* memory in use is told again when it has changed by over one part */

static Rb__Device *add(struct rb_devices *devices, uint32_t index, const char *kind)
{
    Rb__Device *device = rb_alloc(sizeof *device);

    devices->at = rb_realloc(devices->at, (devices->n + 1) * sizeof *devices->at);
    rb__device__init(device);
    device->index = index;
    device->kind = rb_string(kind);
    devices->at[devices->n++] = device;
    return device;
}

static void add_cores(struct rb_devices *devices, unsigned n)
{
    int *cores;
    unsigned n_cores = rb_cores(&cores);

    for (uint32_t i = 0; i < n; i++) {
        Rb__Device *device = add(devices, i, "cpu");

        device->has_cpu = true;
        device->cpu = (uint32_t)cores[i % n_cores];
    }
    free(cores);
}

int rb_devices_take(struct rb_devices *devices, const char *line, struct rb_why *why)
{
    ProtobufCMessage *message;
    const Rb__Devices *list;
    int err = rb_reflect_from_text(line, strlen(line), &rb__devices__descriptor, &message, why);

    if (err)
        return err;
    list = (const Rb__Devices *)message;
    for (size_t i = 0; i < list->n_devices; i++) {
        const Rb__Device *from = list->devices[i];
        Rb__Device *device = add(devices, RB_DEVICES_GPU + from->index, from->kind);

        device->name = rb_string(from->name ? from->name : "");
        device->numeric_class = rb_string(from->numeric_class ? from->numeric_class : "");
        device->has_ordinal = true;
        device->ordinal = from->index;
        device->has_bytes = from->has_bytes;
        device->bytes = from->bytes;
        device->bus = from->bus ? rb_string(from->bus) : NULL;
        devices->gpus++;
    }
    if (list->missing)
        devices->missing = rb_string(list->missing);
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}

/* Measure one core, for all of them.  Where that fails plans are not priced, and no more is lost.
 */
static void measure_cores(struct rb_devices *devices, const char *worker)
{
    const char *arguments[] = {worker, "--devices", "cpu", NULL};
    RB_CLEANUP(rb_freep) char *line = NULL;
    ProtobufCMessage *message = NULL;
    const Rb__Devices *list;

    if (rb_program_line(worker, arguments, &line, NULL) ||
        rb_reflect_from_text(line, strlen(line), &rb__devices__descriptor, &message, NULL))
        return;
    list = (const Rb__Devices *)message;
    for (size_t i = 0; list->n_devices && i < devices->n; i++) {
        devices->at[i]->has_flops = list->devices[0]->has_flops;
        devices->at[i]->flops = list->devices[0]->flops;
        devices->at[i]->has_bandwidth = list->devices[0]->has_bandwidth;
        devices->at[i]->bandwidth = list->devices[0]->bandwidth;
    }
    protobuf_c_message_free_unpacked(message, NULL);
}

static uint64_t memory_here(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

static void look_for_gpus(struct rb_devices *devices, const char *worker)
{
    const char *arguments[] = {worker, "--devices", "cuda", NULL};
    RB_CLEANUP(rb_freep) char *line = NULL;
    struct rb_why why = {0};
    int err = rb_program_line(worker, arguments, &line, &why);

    if (!err)
        err = rb_devices_take(devices, line, &why);
    if (err)
        devices->missing = rb_format("no GPU: %s", why.text);
}

struct rb_devices *rb_devices_new(const char *worker, unsigned cpu_devices)
{
    struct rb_devices *devices = rb_alloc(sizeof *devices);

    devices->memory = memory_here();
    add_cores(devices, cpu_devices);
    if (devices->n)
        measure_cores(devices, worker);
    look_for_gpus(devices, worker);
    return devices;
}

void rb_devices_free(struct rb_devices *devices)
{
    if (!devices)
        return;
    for (size_t i = 0; i < devices->n; i++) {
        free(devices->at[i]->kind);
        free(devices->at[i]->name);
        free(devices->at[i]->numeric_class);
        free(devices->at[i]->bus);
        free(devices->at[i]->sick);
        free(devices->at[i]->slow);
        free(devices->at[i]);
    }
    free(devices->at);
    free(devices->missing);
    free(devices);
}

/* Put `text` into *at, NULL for an empty text; true: it has changed. */
static bool say(char **at, const char *text)
{
    const char *before = *at ? *at : "";

    if (strcmp(before, text) == 0)
        return false;
    free(*at);
    *at = *text ? rb_string(text) : NULL;
    return true;
}

bool rb_devices_note(struct rb_devices *devices, size_t i, const char *sick, const char *slow,
                     uint64_t used)
{
    Rb__Device *device = devices->at[i];
    uint64_t coarse = device->bytes / USED_PARTS, far;
    bool changed = say(&device->sick, sick);

    changed |= say(&device->slow, slow);
    far = used > device->used ? used - device->used : device->used - used;
    if (far > coarse) {
        device->has_used = true;
        device->used = used;
        changed = true;
    }
    return changed;
}

const Rb__Device *rb_devices_find(const struct rb_devices *devices, uint32_t index)
{
    for (size_t i = 0; i < devices->n; i++)
        if (devices->at[i]->index == index)
            return devices->at[i];
    return NULL;
}
