/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device: one thread, memory from the heap, arithmetic from the operator table. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

void *rb_cpu_scratch(size_t bytes)
{
    size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
    void *memory = NULL;

    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    if (posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0)
        return NULL;
    if (alignment == HUGE_PAGE) /* advice only: fewer TLB misses where the kernel can */
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

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

/* Written once and never changed: the C library's functions are part of it because exponentials of
 * double and powers come from there. */
static char class_text[128];

static void class_write(void)
{
    int version[3];

    rb_dnnl_version(version);
    snprintf(class_text, sizeof(class_text), "cpu %s onednn-%d.%d.%d libc-%s threads=1 rubato-%s",
             rb_dnnl_isa(), version[0], version[1], version[2], gnu_get_libc_version(),
             RUBATO_VERSION);
}

static const char *cpu_numeric_class(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, class_write);
    return class_text;
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
    *ret_device = &cpu->base;
    return 0;
}

static void cpu_close(struct rb_device *device)
{
    struct rb_cpu *cpu = (struct rb_cpu *)device;

    rb_dnnl_close(cpu->dnnl);
    free(cpu);
}

static void *cpu_alloc(struct rb_device *device, size_t bytes)
{
    void *memory = rb_cpu_scratch(bytes);

    (void)device;
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void cpu_release(struct rb_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static int cpu_prepare(struct rb_device *device, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    rb_cpu_prepare *prepare = rb_cpu_table[call->op];

    if (!prepare)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the CPU has no kernel for it");
    return prepare((struct rb_cpu *)device, call, ret_kernel, why);
}

const struct rb_device_ops rb_cpu_ops = {
    .kind = "cpu",
    .numeric_class = cpu_numeric_class,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .prepare = cpu_prepare,
    .fixed_add = rb_cpu_fixed_add,
    .fixed_squares = rb_cpu_fixed_squares,
    .apply_adamw = rb_cpu_apply_adamw,
    .apply_sgd = rb_cpu_apply_sgd,
    .apply_statistic = rb_cpu_apply_statistic,
};
