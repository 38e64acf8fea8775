/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in one node beside the separate operators that exporters write:
 *
 *     bench-attention [KEYS [DEPTH]]      only so many keys, and numbers a key
 *
 * A line a shape: us on the core, forward + backward in separate operators and in one node: medians
 * of runs that take turns.  Behind them the memory kept from forward to backward, in MB.  Pin it to
 * a core. */
#include "kernels/device.h"
#include "tests/kernels/case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 16, RUNS = 9, TENSORS = 3 };

struct shape {
    int64_t matrices, keys, depth;
    bool causal, drops;
};

/* Kernels that run one after the other. */
struct chain {
    struct rb_device *device;
    int n;
    struct rb_kernel *kernels[MOST];
    const void *in[MOST][6];
    void *out[MOST][TENSORS];
};

static void *room(struct rb_device *device, int64_t elements)
{
    void *memory = rb_device_alloc(device, (size_t)elements * sizeof(float));

    if (!memory)
        abort();
    return memory;
}

static float *numbers(struct rb_device *device, int64_t n)
{
    float *x = room(device, n);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)drand48() * 2 - 1;
    return x;
}

/* Add a kernel; its inputs, then its outputs. */
static void add(struct chain *chain, const char *text, ...)
{
    struct rb_case c;
    struct rb_why why;
    va_list list;

    rb_case_read(text, &c);
    if (rb_kernel_prepare(chain->device, &c.call, &chain->kernels[chain->n], &why) != 0) {
        fprintf(stderr, "%s: %s\n", text, why.text);
        exit(1);
    }
    va_start(list, text);
    for (int i = 0; i < c.call.n_in; i++)
        chain->in[chain->n][i] = va_arg(list, void *);
    for (int i = 0; i < c.call.n_out; i++)
        chain->out[chain->n][i] = va_arg(list, void *);
    va_end(list);
    chain->n++;
}

/* The time for which this thread has had a core: other load on the machine does not count. */
static double core_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double run(const struct chain *chain)
{
    static const struct rb_key key = {1, 2, 3};
    const double start = core_us();

    for (int i = 0; i < chain->n; i++)
        rb_kernel_run(chain->kernels[i], chain->in[i], chain->out[i], &key);
    return core_us() - start;
}

static void drop(struct chain *chain)
{
    for (int i = 0; i < chain->n; i++)
        rb_kernel_free(chain->kernels[i]);
}

/* What both ways read and make; l, and what each keeps of the scores. */
struct memory {
    float *q, *k, *k_turned, *v, *dy, *y, *l, *dq, *dk, *dv;
    float *a, *b, *p, *kept, *scale, *hidden, *zero;
    uint8_t *mask;
};

static struct memory memory_of(struct rb_device *device, const struct shape *s)
{
    const int64_t small = s->matrices * s->keys * s->depth, large = s->matrices * s->keys * s->keys;
    struct memory m;
    float **of[] = {&m.q, &m.k, &m.k_turned, &m.v, &m.dy, &m.y, &m.dq, &m.dk, &m.dv};
    float **scores[] = {&m.a, &m.b, &m.p, &m.kept};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        *of[i] = numbers(device, small);
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        *scores[i] = room(device, large);
    m.l = room(device, s->matrices * s->keys);
    m.scale = room(device, 1);
    m.hidden = room(device, 1);
    m.zero = room(device, 1);
    *m.scale = 1 / sqrtf((float)s->depth);
    *m.hidden = -INFINITY;
    *m.zero = 0;
    m.mask = room(device, s->keys * s->keys);
    for (int64_t i = 0; i < s->keys * s->keys; i++)
        m.mask[i] = i % s->keys <= i / s->keys;
    return m;
}

static void free_memory(struct rb_device *device, const struct memory *m)
{
    void *const all[] = {m->q, m->k,    m->k_turned, m->v,      m->dy,   m->y,
                         m->l, m->dq,   m->dk,       m->dv,     m->a,    m->b,
                         m->p, m->kept, m->scale,    m->hidden, m->zero, m->mask};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rb_device_free(device, all[i]);
}

static const char *text_of(const char *form, ...)
{
    static char text[512];
    va_list list;

    va_start(list, form);
    vsnprintf(text, sizeof text, form, list);
    va_end(list);
    return text;
}

/* A stack of matrices, and its types as a case has them. */
#define STACK "f32[%ld,%ld,%ld]"

static void add_forward(struct chain *f, const struct shape *s, const struct memory *m)
{
    const long n = s->matrices, t = s->keys, d = s->depth;
    float *x = m->b;

    add(f, text_of("MatMul " STACK " " STACK " > " STACK, n, t, d, n, d, t, n, t, t), m->q,
        m->k_turned, m->a);
    add(f, text_of("Mul " STACK " f32[] > " STACK, n, t, t, n, t, t), m->a, m->scale, m->b);
    if (s->causal) {
        add(f, text_of("Where bool[1,%ld,%ld] " STACK " f32[1] > " STACK, t, t, n, t, t, n, t, t),
            m->mask, m->b, m->hidden, m->a);
        x = m->a;
    }
    add(f, text_of("Softmax " STACK " > " STACK " axis=2", n, t, t, n, t, t), x, m->p);
    if (s->drops)
        add(f, text_of("Dropout " STACK " > " STACK " ratio=0.1", n, t, t, n, t, t), m->p, m->kept);
    add(f, text_of("MatMul " STACK " " STACK " > " STACK, n, t, t, n, t, d, n, t, d),
        s->drops ? m->kept : m->p, m->v, m->y);
}

static void add_backward(struct chain *f, const struct shape *s, const struct memory *m)
{
    const long n = s->matrices, t = s->keys, d = s->depth;
    float *x = m->a, *y = m->b;

    add(f, text_of("MatMul " STACK " " STACK " > " STACK " transA=1", n, t, t, n, t, d, n, t, d),
        s->drops ? m->kept : m->p, m->dy, m->dv);
    add(f, text_of("MatMul " STACK " " STACK " > " STACK " transB=1", n, t, d, n, t, d, n, t, t),
        m->dy, m->v, m->a);
    if (s->drops) {
        add(f, text_of("DropoutGrad " STACK " > " STACK " ratio=0.1 key=0", n, t, t, n, t, t), m->a,
            m->b);
        x = m->b;
        y = m->a;
    }
    add(f, text_of("SoftmaxGrad " STACK " " STACK " > " STACK " axis=2", n, t, t, n, t, t, n, t, t),
        x, m->p, y);
    if (s->causal) {
        add(f, text_of("Where bool[1,%ld,%ld] " STACK " f32[1] > " STACK, t, t, n, t, t, n, t, t),
            m->mask, y, m->zero, x);
        float *other = x;

        x = y;
        y = other;
    }
    add(f, text_of("Mul " STACK " f32[] > " STACK, n, t, t, n, t, t), y, m->scale, x);
    add(f, text_of("MatMul " STACK " " STACK " > " STACK " transB=1", n, t, t, n, d, t, n, t, d), x,
        m->k_turned, m->dq);
    add(f, text_of("MatMul " STACK " " STACK " > " STACK " transA=1", n, t, d, n, t, t, n, d, t),
        m->q, x, m->dk);
}

static void add_fused(struct chain *f, struct chain *b, const struct shape *s,
                      const struct memory *m)
{
    const long n = s->matrices, t = s->keys, d = s->depth;
    char how[64], one[48];

    snprintf(one, sizeof one, STACK, n, t, d);
    snprintf(how, sizeof how, "scale=%.8f causal=%d ratio=%s", (double)*m->scale, s->causal,
             s->drops ? "0.1" : "0.0");
    add(f, text_of("FusedAttention %s %s %s > %s f32[%ld,%ld,1] %s", one, one, one, one, n, t, how),
        m->q, m->k, m->v, m->y, m->l);
    add(b,
        text_of("FusedAttentionGrad %s %s %s %s %s f32[%ld,%ld,1] > %s %s %s %s key=0", one, one,
                one, one, one, n, t, one, one, one, how),
        m->dy, m->q, m->k, m->v, m->y, m->l, m->dq, m->dk, m->dv);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void bench(struct rb_device *device, const struct shape *s)
{
    struct memory m = memory_of(device, s);
    struct chain chains[4] = {{device}, {device}, {device}, {device}};
    const double large = (double)(s->matrices * s->keys) * (double)s->keys * 4e-6;
    double times[4][RUNS], t[4];

    add_forward(&chains[0], s, &m);
    add_backward(&chains[1], s, &m);
    add_fused(&chains[2], &chains[3], s, &m);
    for (int r = -2; r < RUNS; r++)
        for (int i = 0; i < 4; i++)
            times[i][r < 0 ? 0 : r] = run(&chains[i]);
    for (int i = 0; i < 4; i++) {
        qsort(times[i], RUNS, sizeof(double), compare);
        t[i] = times[i][RUNS / 2];
        drop(&chains[i]);
    }
    printf("%2ld x %4ld x %3ld %s %s  parts %8.0f + %8.0f  one %8.0f + %8.0f  %5.2f %5.2f %5.2f  "
           "%6.1f > %.2f MB\n",
           (long)s->matrices, (long)s->keys, (long)s->depth, s->causal ? "causal" : "all   ",
           s->drops ? "drops" : "     ", t[0], t[1], t[2], t[3], t[0] / t[2], t[1] / t[3],
           (t[0] + t[1]) / (t[2] + t[3]), s->drops ? 2 * large : large,
           (double)(s->matrices * s->keys) * 4e-6);
    fflush(stdout);
    free_memory(device, &m);
}

int main(int argc, char **argv)
{
    const long only_keys = argc > 1 ? atol(argv[1]) : 0, only_depth = argc > 2 ? atol(argv[2]) : 0;
    struct rb_device *device;
    struct rb_why why;

    if (rb_device_open("cpu", 0, &device, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    printf("%s\n", rb_device_numeric_class("cpu"));
    for (int64_t keys = 32; keys <= 2048; keys *= 2)
        for (int64_t depth = 32; depth <= 128; depth *= 2)
            for (int how = 0; how < 4; how++) {
                const int64_t matrices = keys < 128 ? 64 : 64 * 128 / keys;
                const struct shape s = {matrices, keys, depth, how & 1, how & 2};

                if ((!only_keys || keys == only_keys) && (!only_depth || depth == only_depth))
                    bench(device, &s);
            }
    rb_device_close(device);
    return 0;
}
