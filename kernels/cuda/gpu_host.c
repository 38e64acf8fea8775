/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that is this processor: the same operators as plain loops, at once, in memory of its own.
 * For tests on machines without a GPU: of arithmetic; that every copy between host and device that
 * a program needs is there; that what is sent may arrive late; and that what each play of a tape is
 * told anew is not kept on the tape. */
#include "kernels/cuda/gpu_host.h"

#include "kernels/cuda/gpu_host_send.h"

#include "base/arena.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory that it says it has, and the most that one piece may have. */
enum { BYTES = 1 << 30 };

enum { SEND_MOST = 1 << 20 }; /* that is sent, and not copied at once */

struct rb_gpu {
    struct rb_host_sends *sends;
    struct rb_why why; /* empty: nothing has gone wrong */
    /* The tape that is kept (NULL: none), and the thread that keeps it. */
    struct rb_gpu_tape *_Atomic tape;
    pthread_t keeper;
};

struct kept {
    void (*run)(void *what);
    void *what;
};

struct rb_gpu_tape {
    struct rb_gpu *gpu;
    size_t bytes;
    void *values;
    struct rb_why lost; /* why it cannot be played */
    struct kept *kept;
    size_t n, room;
};

/* The tape that the calling thread's work goes to; NULL: it is done. */
static struct rb_gpu_tape *tape_of(struct rb_gpu *gpu)
{
    struct rb_gpu_tape *tape = gpu->tape;

    return tape && pthread_equal(gpu->keeper, pthread_self()) ? tape : NULL;
}

/* RUBATO_HOST_GPUS: how many there are. */
int rb_gpu_count(int *ret_count, struct rb_why *why)
{
    const char *text = getenv("RUBATO_HOST_GPUS");
    int count = text ? atoi(text) : 1;

    if (count < 1)
        return rb_why_set(why, RB_ENOTFOUND, "no GPU: the driver sees none");
    *ret_count = count;
    return 0;
}

int rb_gpu_describe(int index, struct rb_gpu_about *ret_about, struct rb_why *why)
{
    struct rb_gpu_about about = {.name = "host", .bytes = BYTES};

    (void)why;
    snprintf(about.bus, sizeof about.bus, "0000:%02x:00.0", (unsigned)index);
    snprintf(about.numeric_class, sizeof about.numeric_class, "cuda host numerics-%d.%d",
             RB_NUMERICS, RB_GPU_KERNELS);
    *ret_about = about;
    return 0;
}

int rb_gpu_open(int index, struct rb_gpu **ret_gpu, struct rb_why *why)
{
    int count = 0, err = rb_gpu_count(&count, why);

    if (err)
        return err;
    if (index < 0 || index >= count)
        return rb_why_set(why, RB_ENOTFOUND, "there is no GPU %d: %d are here", index, count);
    *ret_gpu = rb_alloc(sizeof **ret_gpu);
    (*ret_gpu)->sends = rb_host_sends_new();
    return 0;
}

void rb_gpu_close(struct rb_gpu *gpu)
{
    rb_host_sends_free(gpu->sends);
    free(gpu);
}

void *rb_gpu_alloc(struct rb_gpu *gpu, size_t bytes)
{
    void *memory;

    (void)gpu;
    if (bytes > BYTES || posix_memalign(&memory, 256, bytes ? bytes : 1))
        return NULL;
    return memset(memory, 0, bytes);
}

void rb_gpu_free(struct rb_gpu *gpu, void *memory)
{
    rb_gpu_host_arrive(gpu);
    free(memory);
}

void rb_gpu_host_arrive(struct rb_gpu *gpu)
{
    rb_host_sends_arrive(gpu->sends);
}

void rb_gpu_send(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    if (bytes <= SEND_MOST && !tape_of(gpu))
        rb_host_sends_add(gpu->sends, to, from, bytes);
    else
        rb_gpu_in(gpu, to, from, bytes);
}

void rb_gpu_in(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    if (tape_of(gpu)) {
        rb_gpu_fail(gpu, "a copy cannot be kept on a tape");
        return;
    }
    rb_gpu_host_arrive(gpu);
    memcpy(to, from, bytes);
}

void rb_gpu_out(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    rb_gpu_in(gpu, to, from, bytes);
}

void rb_gpu_copy(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    rb_gpu_in(gpu, to, from, bytes);
}

void rb_gpu_copied(struct rb_gpu *gpu)
{
    (void)gpu;
}

struct copying {
    void *to;
    const void *from;
    size_t bytes;
};

static void copy(void *what)
{
    const struct copying *copying = what;

    memcpy(copying->to, copying->from, copying->bytes);
}

void rb_gpu_within(struct rb_gpu *gpu, void *to, const void *from, size_t bytes)
{
    struct copying copying = {to, from, bytes};

    rb_gpu_host_run(gpu, copy, &copying, sizeof copying);
}

struct clearing {
    void *at;
    size_t bytes;
};

static void clear(void *what)
{
    const struct clearing *clearing = what;

    memset(clearing->at, 0, clearing->bytes);
}

void rb_gpu_zero(struct rb_gpu *gpu, void *at, size_t bytes)
{
    struct clearing clearing = {at, bytes};

    rb_gpu_host_run(gpu, clear, &clearing, sizeof clearing);
}

void rb_gpu_wait(struct rb_gpu *gpu)
{
    if (tape_of(gpu))
        rb_gpu_fail(gpu, "a tape cannot wait");
}

int rb_gpu_check(struct rb_gpu *gpu, struct rb_why *why)
{
    return gpu->why.text[0] ? rb_why_set(why, RB_EINTERNAL, "%s", gpu->why.text) : 0;
}

void rb_gpu_fail(struct rb_gpu *gpu, const char *what)
{
    struct rb_gpu_tape *tape = tape_of(gpu);

    rb_why_set(tape ? &tape->lost : &gpu->why, RB_EINTERNAL, "%s", what);
}

bool rb_gpu_enter(struct rb_gpu *gpu)
{
    return !gpu->why.text[0];
}

void *rb_gpu_stream(struct rb_gpu *gpu)
{
    (void)gpu;
    return NULL;
}

void rb_gpu_launched(struct rb_gpu *gpu)
{
    (void)gpu;
}

/* ---- Tapes ------------------------------------------------------------------------------------*/

void rb_gpu_host_run(struct rb_gpu *gpu, void (*run)(void *what), const void *what, size_t bytes)
{
    struct rb_gpu_tape *tape = tape_of(gpu);
    struct kept *kept;

    if (!tape) {
        rb_gpu_host_arrive(gpu);
        run((void *)(uintptr_t)what);
        return;
    }
    if (tape->n == tape->room) {
        tape->room = tape->room ? 2 * tape->room : 64;
        tape->kept = rb_realloc(tape->kept, tape->room * sizeof *tape->kept);
    }
    kept = &tape->kept[tape->n++];
    kept->run = run;
    kept->what = memcpy(rb_alloc(bytes), what, bytes);
}

int rb_gpu_tape_start(struct rb_gpu *gpu, size_t bytes, struct rb_gpu_tape **ret_tape,
                      struct rb_why *why)
{
    struct rb_gpu_tape *tape;

    if (gpu->why.text[0])
        return rb_gpu_check(gpu, why);
    tape = rb_alloc(sizeof *tape);
    tape->gpu = gpu;
    tape->bytes = bytes;
    tape->values = rb_alloc(bytes + 1);
    memset(tape->values, 0xff, bytes);
    gpu->keeper = pthread_self();
    gpu->tape = tape;
    *ret_tape = tape;
    return 0;
}

void *rb_gpu_tape_values(struct rb_gpu_tape *tape)
{
    return tape->values;
}

int rb_gpu_tape_end(struct rb_gpu_tape *tape, struct rb_why *why)
{
    tape->gpu->tape = NULL;
    if (!tape->lost.text[0])
        return 0;
    return rb_why_set(why, RB_EUNSUPPORTED, "no graph is made of it: %s", tape->lost.text);
}

void rb_gpu_tape_play(struct rb_gpu_tape *tape, const void *values)
{
    rb_gpu_host_arrive(tape->gpu);
    memcpy(tape->values, values, tape->bytes);
    for (size_t i = 0; i < tape->n; i++)
        tape->kept[i].run(tape->kept[i].what);
    memset(tape->values, 0xff, tape->bytes);
}

void rb_gpu_tape_free(struct rb_gpu_tape *tape)
{
    if (!tape)
        return;
    for (size_t i = 0; i < tape->n; i++)
        free(tape->kept[i].what);
    free(tape->kept);
    free(tape->values);
    free(tape);
}

/* ---- Marks ------------------------------------------------------------------------------------*/

struct rb_gpu_marks {
    struct rb_gpu *gpu;
    unsigned asked; /* whether one was reached, since one was set */
    uint64_t at[];  /* all is done at once, by the calling thread: its ns */
};

int rb_gpu_marks_new(struct rb_gpu *gpu, size_t n, struct rb_gpu_marks **ret_marks,
                     struct rb_why *why)
{
    (void)why;
    *ret_marks = rb_alloc(sizeof **ret_marks + n * sizeof *(*ret_marks)->at);
    (*ret_marks)->gpu = gpu;
    return 0;
}

void rb_gpu_marks_set(struct rb_gpu_marks *marks, size_t i)
{
    if (tape_of(marks->gpu))
        rb_gpu_fail(marks->gpu, "a mark cannot be kept on a tape");
    else
        marks->at[i] = rb_clock_thread_ns();
    marks->asked = 0;
}

double rb_gpu_marks_between(struct rb_gpu_marks *marks, size_t from, size_t to)
{
    return rb_gpu_enter(marks->gpu) ? (double)marks->at[to] - (double)marks->at[from] : 0;
}

/* Not at once: a caller that asks is to go on with something else. */
bool rb_gpu_marks_reached(struct rb_gpu_marks *marks, size_t i)
{
    (void)i;
    return !rb_gpu_enter(marks->gpu) || marks->asked++ >= 2;
}

void rb_gpu_marks_free(struct rb_gpu_marks *marks)
{
    free(marks);
}
