/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the functions of NVML that are used, for GPUs that the file FAKE_NVML describes.
 *
 *     0000:01:00.0 xid 79         an error that the driver reports, once
 *     0000:01:00.0 ecc 3          errors of memory that were not corrected
 *     0000:01:00.0 clocks 64      why the clocks are held down
 *     0000:01:00.0 used 12345     bytes of memory, of 1 GiB
 *     0000:01:00.0 lost 1         the driver does not find it any more
 *
 * No file: there is no driver. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };
enum { GPUS = 8 };

struct memory {
    unsigned long long total, free, used;
};

struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static struct gpu {
    char bus[32];
    bool listens;
    int told; /* xids */
} gpus[GPUS];

static FILE *open_file(void)
{
    const char *path = getenv("FAKE_NVML");

    return path ? fopen(path, "r") : NULL;
}

/* The number of the `skip`-th line of a GPU and word; false: there is none. */
static bool read_number(const struct gpu *gpu, const char *word, int skip, unsigned long long *ret)
{
    char bus[32], name[32];
    unsigned long long number;
    bool found = false;
    FILE *file = open_file();

    while (file && !found && fscanf(file, "%31s %31s %llu", bus, name, &number) == 3)
        found = !strcmp(bus, gpu->bus) && !strcmp(name, word) && skip-- == 0;
    if (file)
        fclose(file);
    if (found)
        *ret = number;
    return found;
}

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlInit_v2(void)
{
    FILE *file = open_file();

    if (file)
        fclose(file);
    return file ? SUCCESS : DRIVER_NOT_LOADED;
}

SHOWN int nvmlShutdown(void);
SHOWN int nvmlShutdown(void)
{
    return SUCCESS;
}

SHOWN const char *nvmlErrorString(int status);
SHOWN const char *nvmlErrorString(int status)
{
    return status == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Not Found";
}

SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **ret);
SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **ret)
{
    for (int i = 0; i < GPUS; i++)
        if (!gpus[i].bus[0] || !strcmp(gpus[i].bus, bus)) {
            snprintf(gpus[i].bus, sizeof gpus[i].bus, "%s", bus);
            *ret = &gpus[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

SHOWN int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret);
SHOWN int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret)
{
    unsigned long long lost = 0, used = 0;

    read_number(device, "lost", 0, &lost);
    read_number(device, "used", 0, &used);
    if (lost)
        return LOST;
    *ret = (struct memory){1ull << 30, (1ull << 30) - used, used};
    return SUCCESS;
}

SHOWN int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *ret);
SHOWN int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *ret)
{
    *ret = 0;
    if (kind == 1 && since == 0)
        read_number(device, "ecc", 0, ret);
    return SUCCESS;
}

/* By the older of its names. */
SHOWN int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *ret);
SHOWN int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *ret)
{
    *ret = 0;
    read_number(device, "clocks", 0, ret);
    return SUCCESS;
}

SHOWN int nvmlEventSetCreate(void **ret);
SHOWN int nvmlEventSetCreate(void **ret)
{
    *ret = gpus;
    return SUCCESS;
}

SHOWN int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
SHOWN int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    if (set != gpus || types != 8)
        return INVALID;
    ((struct gpu *)device)->listens = true;
    return SUCCESS;
}

SHOWN int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout);
SHOWN int nvmlEventSetWait_v2(void *set, struct event *ret, unsigned timeout)
{
    unsigned long long number;

    (void)set;
    (void)timeout;
    for (int i = 0; i < GPUS; i++)
        if (gpus[i].listens && read_number(&gpus[i], "xid", gpus[i].told, &number)) {
            gpus[i].told++;
            *ret = (struct event){&gpus[i], 8, number, 0, 0};
            return SUCCESS;
        }
    return TIMEOUT;
}

SHOWN int nvmlEventSetFree(void *set);
SHOWN int nvmlEventSetFree(void *set)
{
    return set == gpus ? SUCCESS : INVALID;
}
