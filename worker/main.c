/* SPDX-License-Identifier: Apache-2.0 */
/* rubato-worker: one process on one device. */
#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "coll/reach.h"
#include "facts.pb-c.h"
#include "kernels/device.h"
#include "proto/reflect.h"
#include "worker/control/control.h"
#include "worker/control/mailbox.h"
#include "worker/control/options.h"
#include "worker/control/prepare.h"
#include "worker/control/reports.h"
#include "worker/timing/timing.h"
#include "worker/train.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads that start later stay on the same core, unless they leave it. */
static void pin(struct rb_worker_options *options)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof options->cores, &options->cores) < 0)
        memset(&options->cores, 0xff, sizeof options->cores);
    if (options->cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)options->cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        rb_log(RB_LOG_WARN, "cannot stay on core %d: %s", options->cpu, strerror(errno));
}

static int open_log(const char *path)
{
    int fd;

    if (!path)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
        fprintf(stderr, "rubato-worker: cannot write %s: %s\n", path, strerror(errno));
        return -1;
    }
    close(fd);
    return 0;
}

static int print_class(const char *kind)
{
    const char *class = rb_device_numeric_class(kind);

    if (!class || strcmp(class, "unknown") == 0) {
        fprintf(stderr, "rubato-worker: there are no devices of kind '%s'\n", kind);
        return RB_EXIT_USAGE;
    }
    puts(class);
    return RB_EXIT_OK;
}

/* Measures one core; all cores of a node are taken to be alike.  Plans are not priced without
 * it. */
static void add_speed(Rb__Device *message)
{
    struct rb_profile_speed speed;
    struct rb_device *device;

    if (rb_device_open(message->kind, 0, &device, NULL))
        return;
    if (!rb_profile_quickly(device, &speed, NULL)) {
        message->has_flops = message->has_bandwidth = 1;
        message->flops = 1e9 * speed.flops;
        message->bandwidth = 1e9 * speed.bytes;
    }
    rb_device_close(device);
}

/* Prints one line, a Devices message: the devices, and a sentence on why there are no more. */
static int print_devices(const char *kind)
{
    struct rb_arena arena = {0};
    struct rb_why why = {0};
    Rb__Devices list = RB__DEVICES__INIT;
    RB_CLEANUP(rb_freep) char *text = NULL;
    int count = 0, err = rb_device_count(kind, &count, &why);

    list.devices = RB_ARENA_NEW(&arena, Rb__Device *, count + 1);
    for (int i = 0; !err && i < count; i++) {
        struct rb_device_about about;
        Rb__Device *device = RB_ARENA_NEW(&arena, Rb__Device, 1);

        err = rb_device_describe(kind, i, &about, &why);
        if (err)
            break;
        rb__device__init(device);
        device->index = (uint32_t)i;
        device->kind = rb_arena_string(&arena, kind);
        device->name = rb_arena_string(&arena, about.name);
        device->numeric_class = rb_arena_string(&arena, about.numeric_class);
        device->has_bytes = about.bytes != 0;
        device->bytes = about.bytes;
        if (strcmp(kind, "cpu") == 0)
            add_speed(device);
        if (about.bus[0])
            device->bus = rb_arena_string(&arena, about.bus);
        list.devices[list.n_devices++] = device;
    }
    if (err)
        list.missing = why.text;
    text = rb_reflect_to_text(&list.base);
    puts(text);
    rb_arena_done(&arena);
    return RB_EXIT_OK;
}

/* Prints a Profile message in binary: it has one number an instruction. */
static int print_profile(const struct rb_worker_options *options)
{
    struct rb_why why = {0};
    Rb__Profile *profile = NULL;
    RB_CLEANUP(rb_freep) uint8_t *bytes = NULL;
    size_t size;

    if (rb_timing_of_file(options->kind, options->device, options->profile, &profile, &why)) {
        fprintf(stderr, "rubato-worker: %s\n", why.text);
        return RB_EXIT_INTERNAL;
    }
    size = rb__profile__get_packed_size(profile);
    bytes = rb_alloc(size + 1);
    rb__profile__pack(profile, bytes);
    rb__profile__free_unpacked(profile, NULL);
    return fwrite(bytes, 1, size, stdout) == size && !fflush(stdout) ? RB_EXIT_OK
                                                                     : RB_EXIT_INTERNAL;
}

static int print_faults(void)
{
    const char *name, *meaning;

    for (int i = 0; rb_fault_describe(i, &name, &meaning); i++)
        printf("%s\t%s\n", name, meaning);
    return RB_EXIT_OK;
}

static int serve(const struct rb_worker_options *options, struct rb_listener *listener,
                 struct rb_why *why)
{
    struct rb_reports *reports = rb_reports_new();
    struct rb_mailbox *mailbox = rb_mailbox_new(reports);
    struct rb_preparer *preparer = NULL;
    struct rb_control *control = NULL;
    int code = RB_EXIT_INTERNAL, err;

    err = rb_control_open(options, mailbox, reports, listener, &control, why);
    if (!err)
        err = rb_preparer_open(options, mailbox, reports, listener, &preparer, why);
    if (!err)
        code = rb_train_run(options, mailbox, reports, control);
    rb_mailbox_leave(mailbox, NULL, code);
    rb_control_close(control);
    rb_preparer_close(preparer);
    rb_mailbox_free(mailbox);
    rb_reports_free(reports);
    return code;
}

int main(int argc, char **argv)
{
    struct rb_worker_options options;
    struct rb_listener *listener = NULL;
    RB_CLEANUP(rb_freep) char *path = NULL;
    struct rb_why why = {0};
    int code = RB_EXIT_INTERNAL;

    rb_file_hold_standard();
    if (rb_worker_options_read(argc, argv, &options, &why)) {
        fprintf(stderr, "rubato-worker: %s\n%s", why.text, rb_worker_usage);
        return RB_EXIT_USAGE;
    }
    if (options.numeric_class)
        return print_class(options.numeric_class);
    if (options.devices)
        return print_devices(options.devices);
    if (options.profile)
        return print_profile(&options);
    if (options.faults)
        return print_faults();
    if (rb_fault_arm(getenv("RUBATO_FAULT"), getenv("RUBATO_FAULT_ONCE"), &why)) {
        fprintf(stderr, "rubato-worker: %s\n", why.text);
        return RB_EXIT_USAGE;
    }
    if (open_log(options.log) < 0)
        return RB_EXIT_USAGE;
    rb_reach_allow();
    pin(&options);
    rb_control_block_signals();
    path = rb_format("%s/%s.peer", options.run_dir, options.worker);
    if (rb_listener_open(path, options.host, &listener, &why) == 0)
        code = serve(&options, listener, &why);
    if (why.text[0])
        rb_log(RB_LOG_ERROR, "%s", why.text);
    if (listener)
        rb_listener_close(listener);
    return code;
}
