/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/timing/profile.h"

#include "base/arena.h"
#include "base/clock.h"
#include "proto/operators.h"
#include "proto/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROUNDS = 15,
    MOST_WIDTH = 4096,
    COPIED = 4 << 20,
    MOST_COPIED = 256 << 20,
    PIECE = 1 << 20
};

/* Work that keeps a GPU busy for so long is as large as it needs to be. */
static const double busy_ns = 1e5;

/* How a device is raced. */
struct race {
    enum rb_dtype dtype; /* of the factors */
    int64_t width;       /* of the product, on a core */
    int rounds;
    double (*of)(double *ns, size_t n); /* which number of the rounds counts */
};

struct rb_profile {
    const Rb__Program *program;
    uint64_t at;    /* the last call */
    double *now;    /* by instruction, of this run */
    double *before; /* of the runs that have ended, one after the other */
    size_t runs;
};

static double least(double *values, size_t n)
{
    double found = values[0];

    for (size_t i = 1; i < n; i++)
        found = values[i] < found ? values[i] : found;
    return found;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

double rb_profile_median(double *values, size_t n)
{
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, by_value);
    return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

/* ---- The device -------------------------------------------------------------------------------*/

/* ns of one run; 0 if it could not be measured. */
static double time_rounds(const struct race *race, struct rb_kernel *kernel, void *const memory[3],
                          struct rb_marks *marks)
{
    double ns[MOST_ROUNDS];

    rb_kernel_run(kernel, (const void *const *)memory, &memory[2], &(struct rb_key){0});
    for (int i = 0; i < race->rounds; i++) {
        rb_marks_set(marks, 0);
        rb_kernel_run(kernel, (const void *const *)memory, &memory[2], &(struct rb_key){0});
        rb_marks_set(marks, 1);
        ns[i] = rb_marks_between(marks, 0, 1);
    }
    return race->of(ns, (size_t)race->rounds);
}

/* Numbers like those of training: a product of zeros takes a GPU less power, and so less time.  The
 * numbers are always the same, between -1 and 1, and repeat after each piece: a GPU's memory has a
 * host's side too. */
static void fill(struct rb_device *device, enum rb_dtype dtype, void *memory, size_t bytes)
{
    size_t size = rb_dtype_size(dtype), piece = bytes < PIECE ? bytes : PIECE;
    uint64_t state = 0x9e3779b97f4a7c15;

    for (size_t i = 0; i < piece / size; i++) {
        float x;
        uint32_t bits;

        state = state * 6364136223846793005u + 1442695040888963407u;
        x = (float)(int32_t)(state >> 32) * 0x1p-31f;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == RB_F32)
            ((float *)memory)[i] = x;
        else if (dtype == RB_BF16)
            ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
    }
    rb_device_push(device, memory, piece);
    for (size_t at = piece; at < bytes; at += piece)
        rb_device_copy(device, (char *)memory + at, memory,
                       bytes - at < piece ? bytes - at : piece);
}

/* Times one product of `size` rows and columns, or a copy of `size` numbers. */
static int time_call(struct rb_device *device, const struct race *race, enum rb_op op, int64_t size,
                     struct rb_marks *marks, double *ret_ns, struct rb_why *why)
{
    bool product = op == RB_OP_MATMUL;
    const struct rb_tensor_type factor = {race->dtype, 2, {size, size}}, row = {RB_F32, 1, {size}};
    const struct rb_tensor_type in[2] = {product ? factor : row, factor};
    const struct rb_tensor_type out = {RB_F32, in->rank, {size, size}};
    const struct rb_call call = {op, 0, product ? 2 : 1, 1, in, &out, NULL, 0};
    size_t bytes = (size_t)rb_tensor_elements(&out) * sizeof(float);
    struct rb_kernel *kernel = NULL;
    void *memory[3];
    int err = rb_kernel_prepare(device, &call, &kernel, why);

    if (err)
        return err;
    for (int i = 0; i < 3; i++)
        memory[i] = rb_device_alloc(device, bytes);
    for (int i = 0; i < call.n_in; i++)
        if (memory[i])
            fill(device, in[i].dtype, memory[i],
                 (size_t)rb_tensor_elements(&in[i]) * rb_dtype_size(in[i].dtype));
    if (memory[0] && memory[1] && memory[2])
        *ret_ns = time_rounds(race, kernel, memory, marks);
    else
        err = rb_why_set(why, RB_ENOMEM, "no memory to measure the speed of this device with");
    rb_kernel_free(kernel);
    for (int i = 0; i < 3; i++)
        rb_device_free(device, memory[i]);
    if (!err)
        err = rb_device_check(device, why);
    return err || *ret_ns > 0 ? err : rb_why_set(why, RB_EINTERNAL, "its clock stands still");
}

/* *size: the size to begin with, and then the one that was timed: on a GPU it doubles up to `most`
 * to keep the device busy. */
static int time_busy(struct rb_device *device, const struct race *race, enum rb_op op,
                     int64_t *size, int64_t most, struct rb_marks *marks, double *ret_ns,
                     struct rb_why *why)
{
    int err = time_call(device, race, op, *size, marks, ret_ns, why);

    while (!err && rb_device_tapes(device) && *ret_ns < busy_ns && *size < most) {
        *size *= 2;
        err = time_call(device, race, op, *size, marks, ret_ns, why);
    }
    return err;
}

/* The type of the first product's factors: the whole program has one precision. */
static enum rb_dtype factors_of(const Rb__Program *program)
{
    for (size_t i = 0; i < program->n_instructions; i++)
        if (rb_work_flops(program, i) > 0)
            return (enum rb_dtype)program->tensors[program->instructions[i]->inputs[0]]->dtype;
    return RB_F32;
}

static int hold_race(struct rb_device *device, const struct race *race,
                     struct rb_profile_speed *ret_speed, struct rb_why *why)
{
    int64_t width = rb_device_tapes(device) ? 256 : race->width, copied = COPIED / sizeof(float);
    double product = 0, copy = 0, each;
    struct rb_marks *marks = NULL;
    int err = rb_marks_new(device, 2, &marks, why);

    if (!err)
        err = time_busy(device, race, RB_OP_MATMUL, &width, MOST_WIDTH, marks, &product, why);
    if (!err)
        err = time_busy(device, race, RB_OP_RESHAPE, &copied, MOST_COPIED / (int64_t)sizeof(float),
                        marks, &copy, why);
    rb_marks_free(marks);
    if (err)
        return err;
    each = (double)width;
    ret_speed->flops = 2 * each * each * each / product;
    ret_speed->bytes = 2 * (double)copied * sizeof(float) / copy;
    return 0;
}

int rb_profile_measure(struct rb_device *device, const Rb__Program *program,
                       struct rb_profile_speed *ret_speed, struct rb_why *why)
{
    const struct race race = {factors_of(program), 1024, MOST_ROUNDS, rb_profile_median};

    return hold_race(device, &race, ret_speed, why);
}

int rb_profile_quickly(struct rb_device *device, struct rb_profile_speed *ret_speed,
                       struct rb_why *why)
{
    static const struct race race = {RB_F32, 512, 7, least};

    return hold_race(device, &race, ret_speed, why);
}

/* ns: the time of its products or of its bytes at `speed`, whichever is longer. */
static double floor_of(const Rb__Program *program, size_t instruction,
                       const struct rb_profile_speed *speed)
{
    double products = rb_work_flops(program, instruction) / speed->flops;
    double bytes = rb_work_bytes(program, instruction) / speed->bytes;

    return products > bytes ? products : bytes;
}

/* ---- Runs -------------------------------------------------------------------------------------*/

struct rb_profile *rb_profile_new(const Rb__Program *program)
{
    struct rb_profile *profile = rb_alloc(sizeof *profile);

    profile->program = program;
    profile->now = rb_alloc((program->n_instructions + 1) * sizeof *profile->now);
    profile->at = rb_clock_thread_ns();
    return profile;
}

void rb_profile_free(struct rb_profile *profile)
{
    if (!profile)
        return;
    free(profile->now);
    free(profile->before);
    free(profile);
}

double rb_profile_pass(struct rb_profile *profile)
{
    uint64_t before = profile->at;

    profile->at = rb_clock_thread_ns();
    return (double)(profile->at - before);
}

void rb_profile_instruction(struct rb_profile *profile, int instruction)
{
    profile->now[instruction] += rb_profile_pass(profile);
}

void rb_profile_add(struct rb_profile *profile, size_t instruction, double ns)
{
    profile->now[instruction] += ns;
}

void rb_profile_end(struct rb_profile *profile)
{
    size_t n = profile->program->n_instructions, size = n * sizeof *profile->now;

    profile->before = rb_realloc(profile->before, (profile->runs + 1) * size + 1);
    memcpy(profile->before + profile->runs++ * n, profile->now, size);
    memset(profile->now, 0, size);
}

double rb_profile_ns(const struct rb_profile *profile, size_t instruction)
{
    size_t n = profile->program->n_instructions;
    RB_CLEANUP(rb_freep) double *times = rb_alloc((profile->runs + 1) * sizeof *times);

    for (size_t r = 0; r < profile->runs; r++)
        times[r] = profile->before[r * n + instruction];
    return rb_profile_median(times, profile->runs);
}

double rb_profile_whole(const struct rb_profile *profile)
{
    double ns = 0;

    for (size_t i = 0; i < profile->program->n_instructions; i++)
        ns += rb_profile_ns(profile, i);
    return ns;
}

/* ---- Rows -------------------------------------------------------------------------------------*/

static int by_time(const void *a, const void *b)
{
    const struct rb_profile_row *x = a, *y = b;

    return (x->ns < y->ns) - (x->ns > y->ns);
}

struct rb_profile_row *rb_profile_rows(const struct rb_profile *profile,
                                       const struct rb_profile_speed *speed, size_t *ret_n)
{
    const Rb__Program *program = profile->program;
    struct rb_profile_row *rows = rb_alloc(RB_OP_COUNT * sizeof *rows);
    size_t n = 0;

    for (size_t i = 0; i < program->n_instructions; i++) {
        struct rb_profile_row *row = &rows[program->instructions[i]->operator_];

        row->name = rb_op_info(program->instructions[i]->operator_)->name;
        row->calls++;
        row->ns += rb_profile_ns(profile, i);
        row->flops += rb_work_flops(program, i);
        row->bytes += rb_work_bytes(program, i);
        row->floor += floor_of(program, i, speed);
    }
    for (size_t op = 0; op < RB_OP_COUNT; op++)
        if (rows[op].calls)
            rows[n++] = rows[op];
    qsort(rows, n, sizeof *rows, by_time);
    *ret_n = n;
    return rows;
}

static int by_loss(const void *a, const void *b)
{
    const struct rb_profile_loss *x = a, *y = b;

    if (x->lost != y->lost)
        return x->lost < y->lost ? 1 : -1;
    return (x->instruction > y->instruction) - (x->instruction < y->instruction);
}

struct rb_profile_loss *rb_profile_losses(const struct rb_profile *profile,
                                          const struct rb_profile_speed *speed, uint32_t executions,
                                          size_t *ret_n)
{
    const Rb__Program *program = profile->program;
    struct rb_profile_loss *losses = rb_alloc((program->n_instructions + 1) * sizeof *losses);
    size_t n = 0;

    for (size_t i = 0; i < program->n_instructions; i++) {
        double ns = rb_profile_ns(profile, i);
        double lost = ns - executions * floor_of(program, i, speed);

        if (lost > 0)
            losses[n++] = (struct rb_profile_loss){i, ns, lost};
    }
    qsort(losses, n, sizeof *losses, by_loss);
    *ret_n = n;
    return losses;
}
