/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device: one thread, memory of its own (cpu/memory.h), arithmetic from the operator
 * table. */
#include "base/clock.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/onednn.h"

#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void kernel_free(struct rb_kernel *kernel)
{
    free(kernel);
}

void *rb_cpu_kernel(size_t size, rb_cpu_run *run)
{
    struct rb_kernel *kernel = rb_alloc(size);

    kernel->run = run;
    kernel->free = kernel_free;
    return kernel;
}

static int cpu_count(int *ret_count, struct rb_why *why)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    (void)why;
    *ret_count = cores > 0 ? (int)cores : 1;
    return 0;
}

/* Written once and never changed: the C library's functions are part of it because exponentials of
 * double and powers come from there; so is how products of bfloat16 are computed. */
static char class_text[128];

static void class_write(void)
{
    int version[3];

    rb_dnnl_version(version);
    snprintf(class_text, sizeof(class_text),
             "cpu %s%s onednn-%d.%d.%d libc-%s threads=1 numerics-%d", rb_dnnl_isa(),
             rb_dnnl_bfloat() == RB_DNNL_BFLOAT_FAST ? "" : " bf16-as-fp32", version[0], version[1],
             version[2], gnu_get_libc_version(), RB_NUMERICS);
}

const char *rb_cpu_numeric_class(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, class_write);
    return class_text;
}

static int cpu_describe(int index, struct rb_device_about *ret_about, struct rb_why *why)
{
    struct rb_device_about about = {.bytes = 0};

    (void)index;
    (void)why;
    snprintf(about.numeric_class, sizeof about.numeric_class, "%s", rb_cpu_numeric_class());
    *ret_about = about;
    return 0;
}

static int cpu_open(int index, struct rb_device **ret_device, struct rb_why *why)
{
    struct rb_cpu *cpu = rb_alloc(sizeof(*cpu));
    int err = rb_dnnl_open(&cpu->dnnl, why);

    if (err) {
        free(cpu);
        return rb_why_add(why, err, "cpu device %d", index);
    }
    cpu->base.ops = &rb_cpu_ops;
    cpu->bfloat = rb_dnnl_bfloat();
    *ret_device = &cpu->base;
    return 0;
}

static void cpu_close(struct rb_device *device)
{
    struct rb_cpu *cpu = (struct rb_cpu *)device;

    rb_dnnl_close(cpu->dnnl);
    free(cpu->copies.memory);
    free(cpu->windows.memory);
    free(cpu->panels.memory);
    free(cpu);
}

static int cpu_prepare(struct rb_device *device, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    rb_cpu_prepare *prepare = rb_cpu_table[call->op];

    if (!prepare)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the CPU has no kernel for it");
    return prepare((struct rb_cpu *)device, call, ret_kernel, why);
}

static int cpu_check(struct rb_device *device, struct rb_why *why)
{
    return rb_dnnl_check(((struct rb_cpu *)device)->dnnl, why);
}

/* ---- Marks ------------------------------------------------------------------------------------*/

struct marks {
    struct rb_marks base;
    uint64_t at[]; /* ns of the thread */
};

static int cpu_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                         struct rb_why *why)
{
    struct marks *marks = rb_alloc(sizeof(*marks) + n * sizeof(*marks->at));

    (void)why;
    marks->base.ops = device->ops;
    *ret_marks = &marks->base;
    return 0;
}

static void cpu_marks_set(struct rb_marks *marks, size_t i)
{
    ((struct marks *)marks)->at[i] = rb_clock_thread_ns();
}

static double cpu_marks_between(struct rb_marks *marks, size_t from, size_t to)
{
    const uint64_t *at = ((struct marks *)marks)->at;

    return (double)at[to] - (double)at[from];
}

static void cpu_marks_free(struct rb_marks *marks)
{
    free(marks);
}

const struct rb_device_ops rb_cpu_ops = {
    .kind = "cpu",
    .count = cpu_count,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = rb_cpu_alloc,
    .alloc_shown = rb_cpu_alloc_shown,
    .shown = rb_cpu_shown,
    .release = rb_cpu_release,
    .discard = rb_cpu_discard,
    .expect = rb_cpu_expect,
    .check = cpu_check,
    .prepare = cpu_prepare,
    .marks_new = cpu_marks_new,
    .marks_set = cpu_marks_set,
    .marks_between = cpu_marks_between,
    .marks_free = cpu_marks_free,
    .fixed_add = rb_cpu_fixed_add,
    .fixed_squares = rb_cpu_fixed_squares,
    .apply_adamw = rb_cpu_apply_adamw,
    .apply_sgd = rb_cpu_apply_sgd,
    .predict = rb_cpu_predict,
    .apply_statistic = rb_cpu_apply_statistic,
};
