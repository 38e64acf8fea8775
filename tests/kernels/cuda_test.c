/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend against the reference: every case of every operator, sums and optimizers.
 *
 * It runs on what the module named by RUBATO_CUDA_MODULE sees: a GPU, or the host that stands in
 * for one (kernels/cuda/gpu_host.c).  Without any it is skipped. */
#include "kernels/device.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/case.h"
#include "tests/kernels/chain.h"
#include "tests/kernels/setup.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct rb_key key = {42, 7, 3};

static int open_device(void **state)
{
    struct rb_why why = {{0}};

    if (rb_device_open("cuda", 0, (struct rb_device **)state, &why) == 0)
        return 0;
    fprintf(stderr, "%s\n", why.text);
    return -1;
}

static int close_device(void **state)
{
    rb_device_close(*state);
    return 0;
}

/* ---- Operators --------------------------------------------------------------------------------*/

/* Each tensor lies between margins; on both sides outputs are poison before the run. */
enum { MARGIN = 256 };

struct memory {
    size_t bytes[2 * CASE_TENSORS];
    char *block[2 * CASE_TENSORS];
    void *in[CASE_TENSORS], *out[CASE_TENSORS];
};

static void *place(struct rb_device *device, struct memory *memory, int k, size_t bytes,
                   size_t shift)
{
    memory->bytes[k] = bytes + shift + 2 * MARGIN;
    memory->block[k] = rb_device_alloc(device, memory->bytes[k]);
    assert_non_null(memory->block[k]);
    memset(memory->block[k], 0xff, memory->bytes[k]); /* NaN, and -1 */
    return memory->block[k] + MARGIN + shift;
}

static void fill(struct rb_device *device, const struct rb_case *c, uint64_t seed, size_t shift,
                 struct memory *memory)
{
    memset(memory, 0, sizeof *memory);
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype != RB_NONE) {
            memory->in[i] = place(device, memory, i, rb_case_bytes(&c->in[i]), shift);
            rb_case_fill(c, i, seed, memory->in[i]);
        }
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype != RB_NONE)
            memory->out[i] =
                place(device, memory, CASE_TENSORS + i, rb_case_bytes(&c->out[i]), shift);
    for (int k = 0; k < 2 * CASE_TENSORS; k++)
        rb_device_push(device, memory->block[k], memory->bytes[k]);
}

/* The host's side is made unlike anything first, so that it shows where it comes from. */
static void fetch(struct rb_device *device, struct memory *memory)
{
    struct rb_why why = {{0}};

    for (int k = CASE_TENSORS; k < 2 * CASE_TENSORS; k++)
        if (memory->block[k]) {
            memset(memory->block[k], 0x5a, memory->bytes[k]);
            rb_device_pull(device, memory->block[k], memory->bytes[k]);
        }
    if (rb_device_check(device, &why))
        fail_msg("%s", why.text);
}

static void done(struct rb_device *device, struct memory *memory)
{
    for (int k = 0; k < 2 * CASE_TENSORS; k++)
        rb_device_free(device, memory->block[k]);
}

static void check_margin(const char *text, const struct memory *memory, const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_out; i++)
        if (memory->out[i] && !rb_case_margin(&c->out[i], memory->out[i], MARGIN))
            fail_msg("%s: output %d is written beyond its ends", text, i);
}

/* Functions of a GPU are within some units in the last place of the C library's. */
static double tolerance(const struct rb_call *call, const struct rb_tensor_type *type)
{
    enum rb_op_kind kind = rb_op_info(call->op)->kind;

    bool attends = call->op == RB_OP_ATTENTION || call->op == RB_OP_ATTENTION_GRAD;

    /* Rounded from such numbers; in attention also on the way. */
    if ((type->dtype == RB_BF16 && kind != RB_KIND_MOVE) ||
        (attends && call->in[0].dtype == RB_BF16))
        return 1.0 / 128;
    if (type->dtype != RB_F32 && type->dtype != RB_F64)
        return 0;
    if (kind == RB_KIND_MOVE && call->op != RB_OP_GATHER_GRAD)
        return 0;
    return type->dtype == RB_F64 && kind != RB_KIND_LOSS ? 2e-15 : 4e-6;
}

/* Activations in blocks of channels, and most numbers of 16 bits, are the CPU's alone. */
static bool is_refused(struct rb_device *device, const struct rb_case *c)
{
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};
    int err = rb_kernel_prepare(device, &c->call, &kernel, &why);

    if (!err)
        rb_kernel_free(kernel);
    return err == RB_EUNSUPPORTED && strstr(why.text, "a GPU has no kernel") != NULL;
}

static bool is_short(const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].dtype == RB_BF16)
            return true;
    for (int i = 0; i < c->call.n_out; i++)
        if (c->out[i].dtype == RB_BF16)
            return true;
    return false;
}

static bool is_blocked(const struct rb_case *c)
{
    for (int i = 0; i < c->call.n_in; i++)
        if (c->in[i].rank >= 4 && c->in[i].dim[c->in[i].rank - 1] == 16)
            return true;
    return c->out[0].rank >= 4 && c->out[0].dim[c->out[0].rank - 1] == 16;
}

static void run_case(struct rb_device *device, const char *text, uint64_t seed)
{
    struct rb_case c;
    struct rb_kernel *kernel = NULL;
    struct memory got, again, want;
    struct rb_why why = {{0}};

    rb_case_read(text, &c);
    if ((is_blocked(&c) || is_short(&c)) && is_refused(device, &c))
        return;
    if (rb_kernel_prepare(device, &c.call, &kernel, &why) != 0)
        fail_msg("%s: %s", text, why.text);
    fill(device, &c, seed, 0, &got);
    fill(device, &c, seed, 64 * (1 + seed % 5), &again);
    fill(device, &c, seed, 0, &want);
    rb_kernel_run(kernel, (const void *const *)got.in, got.out, &key);
    rb_kernel_run(kernel, (const void *const *)again.in, again.out, &key);
    fetch(device, &got);
    fetch(device, &again);
    rb_reference_table[c.call.op](&c.call, (const void *const *)want.in, want.out, &key);
    for (int i = 0; i < c.call.n_out; i++) {
        double error;

        if (c.out[i].dtype == RB_NONE)
            continue;
        error = rb_case_error(&c.out[i], got.out[i], want.out[i]);
        if (error > tolerance(&c.call, &c.out[i]))
            fail_msg("%s: output %d is off by %g of the largest", text, i, error);
        if (memcmp(got.out[i], again.out[i], rb_case_bytes(&c.out[i])) != 0)
            fail_msg("%s: output %d has other bits at another address", text, i);
    }
    check_margin(text, &got, &c);
    check_margin(text, &again, &c);
    rb_kernel_free(kernel);
    done(device, &got);
    done(device, &again);
    done(device, &want);
}

static void every_case_agrees(void **state)
{
    for (size_t i = 0; i < rb_cases_count; i++)
        run_case(*state, rb_cases[i], i + 1);
}

static void fused_is_one_by_one(void **state)
{
    rb_chain_check_each(*state);
    rb_chain_check_many(*state, 400);
    rb_chain_check_refusals(*state);
}

static void what_the_cpu_refuses_is_refused(void **state)
{
    struct rb_case c;
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};

    rb_case_read("MatMul f32[2,3] f32[4,5] > f32[2,5]", &c);
    assert_int_equal(rb_kernel_prepare(*state, &c.call, &kernel, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "inner sizes 3 and 4 differ"));
}

/* ---- Sums and optimizers ----------------------------------------------------------------------*/

enum { N = 70001 };

struct sums {
    float *g;
    int32_t *sum, *want;
    uint32_t *largest;
    bool *overflow;
};

static void *get(struct rb_device *device, size_t bytes)
{
    void *memory = rb_device_alloc(device, bytes);

    assert_non_null(memory);
    return memory;
}

static void add_case(struct rb_device *device, const struct sums *s, int exponent, bool fresh)
{
    uint32_t want_largest = 0;
    bool want_overflow = false;

    rb_device_discard(device, s->largest, sizeof *s->largest);
    rb_device_discard(device, s->overflow, sizeof *s->overflow);
    for (int i = 0; i < N; i++) {
        s->sum[i] = i * 7 - 1000;
        s->want[i] = fresh ? 0 : s->sum[i];
    }
    rb_device_push(device, s->sum, N * sizeof *s->sum);
    rb_device_push(device, s->g, N * sizeof *s->g);
    (fresh ? rb_fixed_set : rb_fixed_add)(device, s->sum, s->g, N, 0.75f, exponent, 1 << 29,
                                          s->largest, s->overflow);
    rb_device_pull(device, s->sum, N * sizeof *s->sum);
    rb_device_pull(device, s->largest, sizeof *s->largest);
    rb_device_pull(device, s->overflow, sizeof *s->overflow);
    rb_reference_fixed_add(s->want, s->g, N, 0.75f, exponent, 1 << 29, &want_largest,
                           &want_overflow);
    assert_memory_equal(s->sum, s->want, N * sizeof *s->sum);
    assert_int_equal(*s->largest, want_largest);
    assert_int_equal(*s->overflow, want_overflow);
}

/* To the bit: this is what makes sums equal everywhere. */
static void fixed_sums_are_the_references(void **state)
{
    static const int exponents[] = {-240, -20, 0, 3, 24, 31, 127, 252};
    struct rb_device *device = *state;
    struct sums s = {
        .g = get(device, N * sizeof *s.g),
        .sum = get(device, N * sizeof *s.sum),
        .want = malloc(N * sizeof *s.want),
        .largest = get(device, sizeof *s.largest),
        .overflow = get(device, sizeof *s.overflow),
    };
    uint32_t seed = 3;

    for (size_t e = 0; e < RB_COUNT(exponents); e++)
        for (int fresh = 0; fresh < 2; fresh++) {
            for (int i = 0; i < N; i++)
                s.g[i] = ldexpf(setup_draw(&seed), 28 - exponents[e] + (fresh ? i % 4 : 0));
            if (e == 4)
                s.g[N / 2] = NAN;
            if (e == 5)
                s.g[N - 1] = INFINITY;
            add_case(device, &s, exponents[e], fresh);
        }
    rb_device_free(device, s.g);
    rb_device_free(device, s.sum);
    rb_device_free(device, s.largest);
    rb_device_free(device, s.overflow);
    free(s.want);
}

static void squares_depend_on_n_alone(void **state)
{
    struct rb_device *device = *state;
    int32_t *sum = get(device, (N + 16) * sizeof *sum);
    double *squares = get(device, 2 * sizeof *squares), want = 0;
    uint32_t seed = 5;

    for (int i = 0; i < N; i++) {
        sum[i] = (int32_t)(setup_draw(&seed) * 1e9f);
        want += ldexp((double)sum[i], -20) * 0.25 * ldexp((double)sum[i], -20) * 0.25;
    }
    rb_device_push(device, sum, N * sizeof *sum);
    rb_fixed_squares(device, sum, N, 20, 0.25, &squares[0]);
    memmove(sum + 13, sum, N * sizeof *sum);
    rb_device_push(device, sum, (N + 16) * sizeof *sum);
    rb_fixed_squares(device, sum + 13, N, 20, 0.25, &squares[1]);
    rb_device_pull(device, squares, 2 * sizeof *squares);
    assert_true(fabs(squares[0] - want) < 1e-12 * want);
    assert_true(squares[0] == squares[1]);
    rb_device_free(device, sum);
    rb_device_free(device, squares);
}

enum { STEPS = 20, EXPONENT = 22, WEIGHTS = 1003 };

struct trained {
    float *w, *m, *v;
    int32_t *sum;
    double w2[WEIGHTS], m2[WEIGHTS], v2[WEIGHTS], g2[WEIGHTS];
};

static struct trained *start(struct rb_device *device)
{
    struct trained *t = calloc(1, sizeof *t);

    t->w = get(device, WEIGHTS * sizeof(float));
    t->m = get(device, WEIGHTS * sizeof(float));
    t->v = get(device, WEIGHTS * sizeof(float));
    t->sum = get(device, WEIGHTS * sizeof(int32_t));
    for (int i = 0; i < WEIGHTS; i++) {
        t->w[i] = (float)(i - 300) * 0.01f;
        t->w2[i] = (double)t->w[i];
    }
    rb_device_push(device, t->w, WEIGHTS * sizeof(float));
    return t;
}

static void gradients(struct rb_device *device, struct trained *t, int step, double scale)
{
    for (int i = 0; i < WEIGHTS; i++) {
        t->sum[i] = (int32_t)(1e7 * sin(i * 0.7 + step * 1.3));
        t->g2[i] = ldexp((double)t->sum[i], -EXPONENT) * scale;
    }
    rb_device_push(device, t->sum, WEIGHTS * sizeof(int32_t));
}

static void finish(struct rb_device *device, struct trained *t)
{
    rb_device_pull(device, t->w, WEIGHTS * sizeof(float));
    for (int i = 0; i < WEIGHTS; i++)
        if (!(fabs((double)t->w[i] - t->w2[i]) < 3e-6 * (1 + fabs(t->w2[i]))))
            fail_msg("weight %d is %.9g, the formula gives %.9g", i, (double)t->w[i], t->w2[i]);
    rb_device_free(device, t->w);
    rb_device_free(device, t->m);
    rb_device_free(device, t->v);
    rb_device_free(device, t->sum);
    free(t);
}

static void adamw_is_pytorchs(void **state)
{
    struct trained *t = start(*state);
    struct rb_adamw how = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};

    for (int step = 1; step <= STEPS; step++) {
        gradients(*state, t, step, 0.125);
        how.correction1 = (float)(1 - pow((double)how.beta1, step));
        how.correction2 = (float)(1 - pow((double)how.beta2, step));
        rb_apply_adamw(*state, t->w, t->m, t->v, t->sum, WEIGHTS, EXPONENT, 0.125f, &how);
        rb_reference_adamw(t->w2, t->m2, t->v2, t->g2, WEIGHTS, (double)how.lr, (double)how.beta1,
                           (double)how.beta2, (double)how.eps, (double)how.weight_decay, step);
    }
    finish(*state, t);
}

static void sgd_is_pytorchs(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct trained *t = start(*state);
        struct rb_sgd how = {
            .lr = 0.02f, .momentum = kind ? 0.9f : 0, .weight_decay = 0.01f, .nesterov = kind == 2};

        for (int step = 1; step <= STEPS; step++) {
            gradients(*state, t, step, 0.5);
            how.first = step == 1;
            rb_apply_sgd(*state, t->w, kind ? t->m : NULL, t->sum, WEIGHTS, EXPONENT, 0.5f, &how);
            rb_reference_sgd(t->w2, t->m2, t->g2, WEIGHTS, (double)how.lr, (double)how.momentum,
                             (double)how.weight_decay, how.nesterov, how.first);
        }
        finish(*state, t);
    }
}

static void statistics_decay(void **state)
{
    struct rb_device *device = *state;
    float *w = get(device, 3 * sizeof *w);
    int32_t *sum = get(device, 3 * sizeof *sum);

    memcpy(w, (const float[]){1.0f, -2.0f, 0.0f}, 3 * sizeof *w);
    memcpy(sum, (const int32_t[]){1 << 19, 1 << 20, -(1 << 20)}, 3 * sizeof *sum);
    rb_device_push(device, w, 3 * sizeof *w);
    rb_device_push(device, sum, 3 * sizeof *sum);
    rb_apply_statistic(device, w, sum, 3, 20, 0.75f);
    rb_device_pull(device, w, 3 * sizeof *w);
    assert_true(w[0] == 1.25f && w[1] == -0.5f && w[2] == -1.0f);
    rb_device_free(device, w);
    rb_device_free(device, sum);
}

/* ---- Tapes ------------------------------------------------------------------------------------*/

enum { TAPED = 3000 };

/* What is done with each: dropout of x into y, y doubled into z, z into sums twice. */
struct taped {
    struct rb_device *device;
    struct rb_kernel *dropout, *twice;
    float *x, *y, *z;
    int32_t *sum;
    uint32_t *largest;
    bool *overflow;
};

static void taped_open(struct rb_device *device, struct taped *t)
{
    struct rb_why why = {{0}};
    struct rb_case c;

    *t = (struct taped){
        .device = device,
        .x = get(device, TAPED * sizeof *t->x),
        .y = get(device, TAPED * sizeof *t->y),
        .z = get(device, TAPED * sizeof *t->z),
        .sum = get(device, 4 * TAPED * sizeof *t->sum),
        .largest = get(device, sizeof *t->largest),
        .overflow = get(device, sizeof *t->overflow),
    };
    rb_case_read("Dropout f32[3000] > f32[3000] ratio=0.25", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &t->dropout, &why), 0);
    rb_case_read("Add f32[3000] f32[3000] > f32[3000]", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &t->twice, &why), 0);
    for (int i = 0; i < TAPED; i++)
        t->x[i] = sinf((float)i);
    rb_device_push(device, t->x, TAPED * sizeof *t->x);
}

static void taped_done(struct taped *t)
{
    rb_kernel_free(t->dropout);
    rb_kernel_free(t->twice);
    rb_device_free(t->device, t->x);
    rb_device_free(t->device, t->y);
    rb_device_free(t->device, t->z);
    rb_device_free(t->device, t->sum);
    rb_device_free(t->device, t->largest);
    rb_device_free(t->device, t->overflow);
}

/* The k-th time: another step, other exponents, other places and other weights. */
static struct rb_key taped_into(const struct taped *t, int k, struct rb_fixed into[2])
{
    for (int i = 0; i < 2; i++)
        into[i] = (struct rb_fixed){
            .sum = t->sum + (size_t)((k + i) % 4) * TAPED,
            .fresh = k < 2,
            .weight = 1 + 0.5f * (float)i + (float)k,
            .exponent = 10 + 3 * k + i,
            .limit = k == 4 ? 1000 : 1 << 29,
            .largest = t->largest,
            .overflow = t->overflow,
        };
    return (struct rb_key){42, (uint64_t)k, 7u + (uint32_t)k};
}

static void taped_ask(const struct taped *t, const struct rb_key *one, const struct rb_fixed *into)
{
    rb_kernel_run(t->dropout, (const void *const[]){t->x}, (void *const[]){t->y}, one);
    rb_kernel_run(t->twice, (const void *const[]){t->y, t->y}, (void *const[]){t->z}, one);
    for (int i = 0; i < 2; i++)
        (into[i].fresh ? rb_fixed_set : rb_fixed_add)(
            t->device, into[i].sum, t->z, TAPED, into[i].weight, into[i].exponent, into[i].limit,
            into[i].largest, into[i].overflow);
}

struct seen {
    int32_t sum[4 * TAPED];
    uint32_t largest;
    bool overflow;
};

static void taped_look(const struct taped *t, struct seen *seen)
{
    rb_device_pull(t->device, t->sum, sizeof seen->sum);
    rb_device_pull(t->device, t->largest, sizeof seen->largest);
    rb_device_pull(t->device, t->overflow, sizeof seen->overflow);
    memcpy(seen->sum, t->sum, sizeof seen->sum);
    seen->largest = *t->largest;
    seen->overflow = *t->overflow;
}

/* Nothing that changes from one time to the next is kept on it. */
static void a_tape_does_what_asking_does(void **state)
{
    static struct seen asked, played;
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};
    struct rb_fixed into[2];
    struct taped a, b;
    struct rb_key one;

    taped_open(*state, &a);
    taped_open(*state, &b);
    one = taped_into(&b, 9, into);
    assert_true(rb_device_tapes(*state));
    assert_int_equal(rb_tape_start(*state, 2, &tape, &why), 0);
    taped_ask(&b, &one, into);
    if (rb_tape_end(tape, &why))
        fail_msg("%s", why.text);
    for (int k = 0; k < 6; k++) {
        one = taped_into(&a, k, into);
        taped_ask(&a, &one, into);
        one = taped_into(&b, k, into);
        assert_true(rb_tape_play(tape, &one, into, 2));
        taped_look(&a, &asked);
        taped_look(&b, &played);
        assert_memory_equal(asked.sum, played.sum, sizeof asked.sum);
        assert_int_equal(asked.largest, played.largest);
        assert_int_equal(asked.overflow, played.overflow);
    }
    assert_true(asked.overflow);
    assert_int_equal(rb_device_check(*state, &why), 0);
    assert_false(rb_tape_play(tape, &one, into, 1));
    rb_tape_free(tape);
    taped_done(&a);
    taped_done(&b);
}

/* It is refused, and the device is none the worse. */
static void a_copy_is_not_kept(void **state)
{
    struct rb_device *device = *state;
    float *x = get(device, sizeof *x);
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};

    assert_int_equal(rb_tape_start(device, 0, &tape, &why), 0);
    rb_device_pull(device, x, sizeof *x);
    assert_int_equal(rb_tape_end(tape, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "copy"));
    rb_tape_free(tape);
    assert_int_equal(rb_device_check(device, &why), 0);
    *x = 3;
    rb_device_push(device, x, sizeof *x);
    *x = 4;
    rb_device_pull(device, x, sizeof *x);
    assert_true(*x == 3);
    rb_device_free(device, x);
}

/* A mark says when what was asked for before it was done; on a tape there is none. */
static void marks_have_times(void **state)
{
    struct rb_device *device = *state;
    int32_t *sum = get(device, (1 << 20) * sizeof *sum);
    float *x = get(device, (1 << 20) * sizeof *x);
    uint32_t *largest = get(device, sizeof *largest);
    bool *overflow = get(device, sizeof *overflow);
    struct rb_marks *marks;
    struct rb_tape *tape = NULL;
    struct rb_why why = {{0}};

    assert_int_equal(rb_marks_new(device, 3, &marks, &why), 0);
    rb_marks_set(marks, 0);
    rb_fixed_add(device, sum, x, 1 << 20, 1, 0, 1, largest, overflow);
    rb_marks_set(marks, 1);
    rb_fixed_add(device, sum, x, 1 << 20, 1, 0, 1, largest, overflow);
    rb_marks_set(marks, 2);
    assert_true(rb_marks_between(marks, 0, 1) > 0);
    assert_true(rb_marks_between(marks, 1, 2) > 0);
    assert_true(rb_marks_between(marks, 0, 2) > rb_marks_between(marks, 1, 2));
    assert_int_equal(rb_device_check(device, &why), 0);
    assert_int_equal(rb_tape_start(device, 0, &tape, &why), 0);
    rb_marks_set(marks, 0);
    assert_int_equal(rb_tape_end(tape, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "mark"));
    rb_tape_free(tape);
    assert_int_equal(rb_device_check(device, &why), 0);
    rb_marks_free(marks);
    rb_device_free(device, sum);
    rb_device_free(device, x);
    rb_device_free(device, largest);
    rb_device_free(device, overflow);
}

/* Copies that take more than a room, at odd places. */
static void large_copies_are_whole(void **state)
{
    struct rb_device *device = *state;
    size_t n = (size_t)5 << 21;
    uint16_t *x = get(device, n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)(i * 7919);
    rb_device_push(device, x + 3, (n - 5) * sizeof *x);
    memset(x, 0xff, n * sizeof *x);
    rb_device_pull(device, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        if (x[i] != (i < 3 || i >= n - 2 ? 0 : (uint16_t)(i * 7919)))
            fail_msg("element %zu is %d", i, x[i]);
    rb_device_free(device, x);
}

/* ---- Circles ----------------------------------------------------------------------------------*/

enum { SUMMED = 150000 };

struct member {
    struct rb_device *device;
    const uint8_t *ticket;
    int rank;
    atomic_bool *over;
    int32_t *in, *out;
    int err;
};

static bool is_over(void *context)
{
    return atomic_load((atomic_bool *)context);
}

static bool is_never(void *context)
{
    (void)context;
    return false;
}

/* Enters, and sums twice; rank 1 says before a third that it is over. */
static void *sum_up(void *context)
{
    struct member *m = context;
    struct rb_circle *circle = NULL;
    struct rb_why why = {{0}};
    bool ready = false;

    m->err = rb_circle_enter(m->device, m->ticket, m->rank, 2, &circle, &why);
    while (!m->err && !ready)
        m->err = rb_circle_ready(circle, &ready, &why);
    for (int k = 0; k < 2 && !m->err; k++)
        m->err = rb_circle_sum(circle, k ? m->out : m->in, k ? m->in : m->out, SUMMED, is_over,
                               m->over, &why);
    if (!m->err && m->rank == 0)
        m->err = rb_circle_sum(circle, m->in, m->out, SUMMED, is_over, m->over, &why) == RB_EPEER
                     ? 0
                     : RB_EINTERNAL;
    else
        atomic_store(m->over, true);
    rb_circle_leave(circle);
    return NULL;
}

/* Two ranks of this process; where they would share a GPU, only on the stand-in. */
static void circles_sum_and_end(void **state)
{
    uint8_t ticket[RB_CIRCLE_TICKET];
    struct member members[2] = {{.rank = 0}, {.rank = 1}};
    atomic_bool over = false;
    struct rb_why why = {{0}};
    pthread_t threads[2];

    if (!strstr(getenv("RUBATO_CUDA_MODULE") ? getenv("RUBATO_CUDA_MODULE") : "", "cuda-host"))
        skip();
    assert_true(rb_device_circles(*state));
    if (rb_circle_ticket(*state, ticket, &why))
        fail_msg("%s", why.text);
    for (int r = 0; r < 2; r++) {
        struct member *m = &members[r];

        assert_int_equal(rb_device_open("cuda", 0, &m->device, &why), 0);
        m->ticket = ticket;
        m->over = &over;
        m->in = get(m->device, SUMMED * sizeof *m->in);
        m->out = get(m->device, SUMMED * sizeof *m->out);
        for (int i = 0; i < SUMMED; i++)
            m->in[i] = (int32_t)(0x7fffff00u + (uint32_t)(i * (r + 1)));
        rb_device_push(m->device, m->in, SUMMED * sizeof *m->in);
    }
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, sum_up, &members[r]), 0);
    for (int r = 0; r < 2; r++) {
        struct member *m = &members[r];

        pthread_join(threads[r], NULL);
        assert_int_equal(m->err, 0);
        memset(m->in, 0, SUMMED * sizeof *m->in);
        rb_device_pull(m->device, m->in, SUMMED * sizeof *m->in);
        for (int i = 0; i < SUMMED; i++)
            if ((uint32_t)m->in[i] != 2 * (2 * 0x7fffff00u + (uint32_t)(3 * i)))
                fail_msg("rank %d: element %d is %d", r, i, m->in[i]);
    }
    for (int r = 0; r < 2; r++) {
        rb_device_free(members[r].device, members[r].in);
        rb_device_free(members[r].device, members[r].out);
        rb_device_close(members[r].device);
    }
}

enum { CREW = 3 };

/* Of three, rank 1 dies instead of summing; the others go on without it, from what they had. */
static void *shrink_and_sum(void *context)
{
    struct member *m = context;
    struct rb_circle *circle = NULL;
    struct rb_why why = {{0}};
    bool ready = false;

    m->err = rb_circle_enter(m->device, m->ticket, m->rank, CREW, &circle, &why);
    while (!m->err && !ready)
        m->err = rb_circle_ready(circle, &ready, &why);
    if (m->rank == 1 || m->err) {
        atomic_store(m->over, true);
        rb_circle_leave(circle);
        return NULL;
    }
    if (rb_circle_sum(circle, m->in, m->out, SUMMED, is_over, m->over, &why) != RB_EPEER)
        m->err = RB_EINTERNAL;
    rb_circle_stop(circle);
    rb_circle_stop(circle);
    if (m->err || rb_circle_shrink(circle, (const int[]){1}, 1, &circle, &why)) {
        m->err = RB_EINTERNAL;
        return NULL;
    }
    for (ready = false; !m->err && !ready;)
        m->err = rb_circle_ready(circle, &ready, &why);
    if (!m->err)
        m->err = rb_circle_sum(circle, m->in, m->out, SUMMED, is_never, NULL, &why);
    rb_circle_leave(circle);
    return NULL;
}

static void circles_shrink(void **state)
{
    uint8_t ticket[RB_CIRCLE_TICKET];
    struct member members[CREW] = {{0}};
    atomic_bool over = false;
    struct rb_why why = {{0}};
    pthread_t threads[CREW];

    if (!strstr(getenv("RUBATO_CUDA_MODULE") ? getenv("RUBATO_CUDA_MODULE") : "", "cuda-host"))
        skip();
    assert_int_equal(rb_circle_ticket(*state, ticket, &why), 0);
    for (int r = 0; r < CREW; r++) {
        struct member *m = &members[r];

        *m = (struct member){.ticket = ticket, .rank = r, .over = &over};
        assert_int_equal(rb_device_open("cuda", 0, &m->device, &why), 0);
        m->in = get(m->device, SUMMED * sizeof *m->in);
        m->out = get(m->device, SUMMED * sizeof *m->out);
        for (int i = 0; i < SUMMED; i++)
            m->in[i] = i * (r + 1);
        rb_device_push(m->device, m->in, SUMMED * sizeof *m->in);
    }
    for (int r = 0; r < CREW; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, shrink_and_sum, &members[r]), 0);
    for (int r = 0; r < CREW; r++) {
        struct member *m = &members[r];

        pthread_join(threads[r], NULL);
        assert_int_equal(m->err, 0);
        rb_device_pull(m->device, m->out, SUMMED * sizeof *m->out);
        for (int i = 0; r != 1 && i < SUMMED; i++)
            if (m->out[i] != 4 * i)
                fail_msg("rank %d: element %d is %d", r, i, m->out[i]);
    }
    for (int r = 0; r < CREW; r++) {
        rb_device_free(members[r].device, members[r].in);
        rb_device_free(members[r].device, members[r].out);
        rb_device_close(members[r].device);
    }
}

/* ---- Memory -----------------------------------------------------------------------------------*/

static void memory_has_two_sides(void **state)
{
    struct rb_device *device = *state;
    int32_t *memory = get(device, 100000 * sizeof *memory);

    assert_int_equal(memory[99999], 0);
    memory[5] = 1;
    rb_device_pull(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[5], 0);
    memory[5] = 2;
    memory[6] = 3;
    rb_device_push(device, &memory[6], sizeof *memory);
    rb_device_pull(device, &memory[5], 2 * sizeof *memory);
    assert_int_equal(memory[5], 0);
    assert_int_equal(memory[6], 3);
    rb_device_discard(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[6], 0);
    memory[6] = 4;
    rb_device_pull(device, memory, 100000 * sizeof *memory);
    assert_int_equal(memory[6], 0);
    rb_device_free(device, memory);
}

/* A kernel that is given memory of something else says so, and everything after it. */
static void what_goes_wrong_is_kept(void **state)
{
    struct rb_device *device;
    struct rb_kernel *kernel;
    struct rb_why why = {{0}};
    struct rb_case c;
    float x[4] = {1, 2, 3, 4}, y[4] = {0};

    (void)state;
    assert_int_equal(rb_device_open("cuda", 0, &device, &why), 0);
    rb_case_read("Neg f32[4] > f32[4]", &c);
    assert_int_equal(rb_kernel_prepare(device, &c.call, &kernel, &why), 0);
    assert_int_equal(rb_device_check(device, &why), 0);
    rb_kernel_run(kernel, (const void *const[]){x}, (void *const[]){y}, &key);
    assert_int_equal(rb_device_check(device, &why), RB_EINTERNAL);
    assert_non_null(strstr(why.text, "not its own"));
    rb_kernel_free(kernel);
    rb_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_has_two_sides),
        cmocka_unit_test(what_the_cpu_refuses_is_refused),
        cmocka_unit_test(fixed_sums_are_the_references),
        cmocka_unit_test(squares_depend_on_n_alone),
        cmocka_unit_test(adamw_is_pytorchs),
        cmocka_unit_test(sgd_is_pytorchs),
        cmocka_unit_test(statistics_decay),
        cmocka_unit_test(a_tape_does_what_asking_does),
        cmocka_unit_test(a_copy_is_not_kept),
        cmocka_unit_test(marks_have_times),
        cmocka_unit_test(large_copies_are_whole),
        cmocka_unit_test(circles_sum_and_end),
        cmocka_unit_test(circles_shrink),
        cmocka_unit_test(every_case_agrees),
        cmocka_unit_test(fused_is_one_by_one),
        cmocka_unit_test(what_goes_wrong_is_kept),
    };
    struct rb_why why = {{0}};
    int count;

    if (rb_device_count("cuda", &count, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, open_device, close_device);
}
