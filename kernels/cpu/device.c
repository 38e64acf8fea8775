/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device: one thread, memory from the heap, arithmetic from the operator table. */
#include "base/clock.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#include <gnu/libc-version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

int rb_cpu_need(struct rb_cpu_room *room, size_t bytes)
{
    void *larger;

    if (bytes <= room->bytes)
        return 0;
    larger = rb_cpu_scratch(bytes);
    if (!larger)
        return RB_ENOMEM; /* who was there before still has what it needs */
    free(room->memory);
    *room = (struct rb_cpu_room){larger, bytes};
    return 0;
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
    snprintf(class_text, sizeof(class_text), "cpu %s%s onednn-%d.%d.%d libc-%s threads=1 rubato-%s",
             rb_dnnl_isa(), rb_dnnl_bfloat() == RB_DNNL_BFLOAT_FAST ? "" : " bf16-as-fp32",
             version[0], version[1], version[2], gnu_get_libc_version(), RUBATO_VERSION);
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
    free(cpu->panels.memory);
    free(cpu);
}

/* What lies in front of the memory: how it was got. */
struct origin {
    void *base;
    size_t bytes; /* mapped; 0: it comes from posix_memalign */
};

_Static_assert(sizeof(struct origin) <= LINE, "an origin takes at most a line");

static void *with_origin(void *memory, struct origin origin)
{
    memcpy((char *)memory - LINE, &origin, sizeof(origin));
    return memory;
}

/* Mapped and not written: zero, and no memory is taken before it is used. */
static void *map(size_t bytes)
{
    size_t whole = bytes + 2 * (size_t)HUGE_PAGE;
    char *base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t at;

    if (base == MAP_FAILED)
        return NULL;
    at = ((uintptr_t)base + LINE + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1);
    madvise((void *)at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return with_origin((void *)at, (struct origin){base, whole});
}

static void *cpu_alloc(struct rb_device *device, size_t bytes)
{
    char *base;

    (void)device;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    if (bytes >= HUGE_PAGE)
        return map(bytes);
    base = rb_cpu_scratch(bytes + LINE);
    if (!base)
        return NULL;
    memset(base, 0, bytes + LINE);
    return with_origin(base + LINE, (struct origin){base, 0});
}

static void cpu_release(struct rb_device *device, void *memory)
{
    struct origin origin;

    (void)device;
    if (!memory)
        return;
    memcpy(&origin, (char *)memory - LINE, sizeof(origin));
    if (origin.bytes)
        munmap(origin.base, origin.bytes);
    else
        free(origin.base);
}

/* Whole pages go back; what is left of the others is written. */
static void cpu_discard(struct rb_device *device, void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory, end = first + bytes;
    uintptr_t from = (first + page - 1) & ~(page - 1), to = end & ~(page - 1);

    (void)device;
    if (from >= to || madvise((void *)from, to - from, MADV_DONTNEED)) {
        memset(memory, 0, bytes);
        return;
    }
    memset(memory, 0, from - first);
    memset((void *)to, 0, end - to);
}

/* A large page is worth its room where three quarters of it are written. */
static void cpu_expect(struct rb_device *device, void *memory, size_t bytes,
                       const struct rb_extent *extents, size_t n)
{
    size_t k = 0;

    (void)device;
    for (size_t page = 0; page + HUGE_PAGE <= bytes; page += HUGE_PAGE) {
        const size_t end = page + HUGE_PAGE;
        size_t written = 0;

        while (k < n && extents[k].first + extents[k].bytes <= page)
            k++;
        for (size_t i = k; i < n && extents[i].first < end; i++) {
            size_t from = extents[i].first > page ? extents[i].first : page;
            size_t to = extents[i].first + extents[i].bytes;

            written += (to < end ? to : end) - from;
        }
        madvise((char *)memory + page, HUGE_PAGE,
                written >= HUGE_PAGE / 4 * 3 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
}

static int cpu_prepare(struct rb_device *device, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    rb_cpu_prepare *prepare = rb_cpu_table[call->op];

    if (!prepare)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the CPU has no kernel for it");
    return prepare((struct rb_cpu *)device, call, ret_kernel, why);
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
    .alloc = cpu_alloc,
    .release = cpu_release,
    .discard = cpu_discard,
    .expect = cpu_expect,
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
