/* SPDX-License-Identifier: Apache-2.0 */
/* The few functions that are used, as NVML's reference declares them; the library is found when the
 * program runs, since most machines have none. */
#include "daemon/agent/nvml.h"

#include "base/arena.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    IS_LOST = 15, /* NVML_ERROR_GPU_IS_LOST */
    UNCORRECTED = 1,
    SINCE_BOOT = 0,     /* NVML_VOLATILE_ECC */
    XID = 8,            /* nvmlEventTypeXidCriticalError */
    SW_POWER_CAP = 0x4, /* nvmlClocksEventReason... */
    HW_SLOWDOWN = 0x8,
    SW_THERMAL = 0x20,
    HW_THERMAL = 0x40,
    HW_POWER_BRAKE = 0x80,
    EVENTS_MOST = 1000, /* in one look */
};

typedef struct nvmlDevice_st *device_t;
typedef struct nvmlEventSet_st *event_set_t;

struct memory {
    unsigned long long total, free, used;
};

struct event {
    device_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct calls {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int);
    int (*by_bus)(const char *, device_t *);
    int (*memory)(device_t, struct memory *);
    int (*ecc)(device_t, int, int, unsigned long long *);
    int (*clocks)(device_t, unsigned long long *);
    int (*new_events)(event_set_t *);
    int (*listen)(device_t, unsigned long long, event_set_t);
    int (*next_event)(event_set_t, struct event *, unsigned);
    int (*free_events)(event_set_t);
};

struct rb_nvml_gpu {
    struct rb_nvml_gpu *next;
    const struct calls *calls;
    device_t device;
    char sick[160];
    uint64_t xids;
};

struct rb_nvml {
    void *library;
    struct calls calls;
    event_set_t events; /* NULL: the driver tells of none */
    struct rb_nvml_gpu *gpus;
};

/* Find a function by its new name or its older one; false: there is neither. */
static bool find(void *library, void *ret, const char *name, const char *older)
{
    void *found = dlsym(library, name);

    if (!found && older)
        found = dlsym(library, older);
    memcpy(ret, &found, sizeof found);
    return found != NULL;
}

static bool find_all(void *library, struct calls *calls)
{
    return find(library, &calls->init, "nvmlInit_v2", NULL) &&
           find(library, &calls->shutdown, "nvmlShutdown", NULL) &&
           find(library, &calls->error, "nvmlErrorString", NULL) &&
           find(library, &calls->by_bus, "nvmlDeviceGetHandleByPciBusId_v2", NULL) &&
           find(library, &calls->memory, "nvmlDeviceGetMemoryInfo", NULL) &&
           find(library, &calls->ecc, "nvmlDeviceGetTotalEccErrors", NULL) &&
           find(library, &calls->clocks, "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons") &&
           find(library, &calls->new_events, "nvmlEventSetCreate", NULL) &&
           find(library, &calls->listen, "nvmlDeviceRegisterEvents", NULL) &&
           find(library, &calls->next_event, "nvmlEventSetWait_v2", "nvmlEventSetWait") &&
           find(library, &calls->free_events, "nvmlEventSetFree", NULL);
}

int rb_nvml_open(const char *path, struct rb_nvml **ret_nvml, struct rb_why *why)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct rb_nvml *nvml;
    int err;

    if (!library)
        return rb_why_set(why, RB_ENOTFOUND, "%s", dlerror());
    nvml = rb_alloc(sizeof *nvml);
    nvml->library = library;
    if (!find_all(library, &nvml->calls)) {
        err = rb_why_set(why, RB_ENOTFOUND, "%s lacks functions that are needed", path);
    } else {
        int status = nvml->calls.init();

        err = status == SUCCESS
                  ? 0
                  : rb_why_set(why, RB_ENOTFOUND, "%s: %s", path, nvml->calls.error(status));
    }
    if (err) {
        dlclose(library);
        free(nvml);
        return err;
    }
    if (nvml->calls.new_events(&nvml->events) != SUCCESS)
        nvml->events = NULL;
    *ret_nvml = nvml;
    return 0;
}

void rb_nvml_close(struct rb_nvml *nvml)
{
    if (!nvml)
        return;
    for (struct rb_nvml_gpu *gpu; (gpu = nvml->gpus);) {
        nvml->gpus = gpu->next;
        free(gpu);
    }
    if (nvml->events)
        nvml->calls.free_events(nvml->events);
    nvml->calls.shutdown();
    dlclose(nvml->library);
    free(nvml);
}

int rb_nvml_find(struct rb_nvml *nvml, const char *bus, struct rb_nvml_gpu **ret_gpu,
                 struct rb_why *why)
{
    struct rb_nvml_gpu *gpu;
    device_t device;
    int status = nvml->calls.by_bus(bus, &device);

    if (status != SUCCESS)
        return rb_why_set(why, RB_ENOTFOUND, "the GPU at %.40s: %s", bus,
                          nvml->calls.error(status));
    for (gpu = nvml->gpus; gpu && gpu->device != device;)
        gpu = gpu->next;
    if (!gpu) {
        gpu = rb_alloc(sizeof *gpu);
        gpu->calls = &nvml->calls;
        gpu->device = device;
        gpu->next = nvml->gpus;
        nvml->gpus = gpu;
        if (nvml->events)
            nvml->calls.listen(device, XID, nvml->events); /* not every GPU tells */
    }
    *ret_gpu = gpu;
    return 0;
}

/* What an error of the GPU or of its links is.  Other errors are of the program that ran on it,
 * which has ended. */
static const char *what_is(unsigned long long xid)
{
    static const struct {
        unsigned xid;
        const char *what;
    } known[] = {
        {48, "memory that cannot be corrected"},
        {62, "its controller stopped"},
        {64, "memory that could not be replaced"},
        {74, "a broken NVLink"},
        {79, "it has fallen off the bus"},
        {95, "an error of its memory that was not contained"},
        {119, "its system processor does not answer"},
        {120, "its system processor failed"},
        {140, "memory that cannot be corrected"},
    };

    for (size_t i = 0; i < RB_COUNT(known); i++)
        if (known[i].xid == xid)
            return known[i].what;
    return NULL;
}

static void note(struct rb_nvml *nvml, const struct event *event)
{
    const char *what = what_is(event->data);

    for (struct rb_nvml_gpu *gpu = nvml->gpus; gpu; gpu = gpu->next) {
        if (gpu->device != event->device || !(event->type & XID))
            continue;
        gpu->xids++;
        if (what && !gpu->sick[0])
            snprintf(gpu->sick, sizeof gpu->sick, "Xid %llu: %s", event->data, what);
    }
}

void rb_nvml_listen(struct rb_nvml *nvml)
{
    struct event event;

    for (int i = 0; i < EVENTS_MOST && nvml->events &&
                    nvml->calls.next_event(nvml->events, &event, 0) == SUCCESS;
         i++)
        note(nvml, &event);
}

static const char *slow_of(unsigned long long reasons)
{
    if (reasons & (SW_THERMAL | HW_THERMAL))
        return "it is too hot";
    if (reasons & HW_POWER_BRAKE)
        return "its power is held back from outside";
    if (reasons & HW_SLOWDOWN)
        return "its hardware slows it down";
    return reasons & SW_POWER_CAP ? "it is at its limit of power" : "";
}

void rb_nvml_look_at(struct rb_nvml_gpu *gpu, struct rb_nvml_look *ret_look)
{
    unsigned long long errors = 0, reasons = 0;
    struct memory memory = {0};
    int status = gpu->calls->memory(gpu->device, &memory);

    *ret_look = (struct rb_nvml_look){.xids = gpu->xids, .used = memory.used, .all = memory.total};
    gpu->xids = 0;
    if (status == IS_LOST && !gpu->sick[0])
        snprintf(gpu->sick, sizeof gpu->sick, "the driver has lost it");
    if (gpu->calls->ecc(gpu->device, UNCORRECTED, SINCE_BOOT, &errors) == SUCCESS && errors &&
        !gpu->sick[0])
        snprintf(gpu->sick, sizeof gpu->sick, "%llu errors of its memory were not corrected",
                 errors);
    if (gpu->calls->clocks(gpu->device, &reasons) == SUCCESS)
        snprintf(ret_look->slow, sizeof ret_look->slow, "%s", slow_of(reasons));
    memcpy(ret_look->sick, gpu->sick, sizeof ret_look->sick);
}
