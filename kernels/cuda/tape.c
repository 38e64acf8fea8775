/* SPDX-License-Identifier: Apache-2.0 */
/* Tapes: what a GPU is told anew with each play lies in one block, read by the kernels that are
 * kept.  Everything else that they were given stays as it was. */
#include "base/arena.h"
#include "base/hash.h"
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct values {
    struct rb_cuda_key key;
    struct rb_cuda_sum sums[];
};

struct rb_cuda_tape {
    struct rb_tape base;
    struct rb_cuda *cuda;
    struct rb_gpu_tape *gpu;
    struct values *values; /* the host's, as they are sent */
    size_t room, n;        /* sums that there is room for, and that are kept */
    uint64_t moves;        /* as the device's when it was kept */
};

/* 2^exponent as two factors in a float's range, as on the CPU (kernels/cpu/fixed.c). */
static void split_power(int exponent, float *ret_first, float *ret_second)
{
    exponent = exponent > 252 ? 252 : exponent < -252 ? -252 : exponent;
    *ret_first = ldexpf(1.0f, exponent / 2);
    *ret_second = ldexpf(1.0f, exponent - exponent / 2);
}

struct rb_cuda_key rb_cuda_key_of(const struct rb_key *key)
{
    uint64_t k = rb_hash_mix(key->seed + rb_hash_mix(key->step));

    return (struct rb_cuda_key){(uint32_t)k, (uint32_t)(k >> 32), key->microbatch};
}

struct rb_cuda_sum rb_cuda_sum_of(struct rb_cuda *cuda, const struct rb_fixed *into)
{
    struct rb_cuda_sum sum = {
        .sum = rb_twins_gpu(cuda, into->sum),
        .largest = rb_twins_gpu(cuda, into->largest),
        .overflow = rb_twins_gpu(cuda, into->overflow),
        .weight = into->weight,
        .limit = into->limit,
        .fresh = into->fresh,
    };

    split_power(into->exponent, &sum.first, &sum.second);
    return sum;
}

const struct rb_cuda_key *rb_cuda_tape_key(struct rb_cuda *cuda)
{
    struct values *there = cuda->tape ? rb_gpu_tape_values(cuda->tape->gpu) : NULL;

    return there ? &there->key : NULL;
}

const struct rb_cuda_sum *rb_cuda_tape_sum(struct rb_cuda *cuda)
{
    struct values *there;

    if (!cuda->tape)
        return NULL;
    if (cuda->tape->n == cuda->tape->room) {
        rb_gpu_fail(cuda->gpu, "more sums than a tape was made for");
        return NULL;
    }
    there = rb_gpu_tape_values(cuda->tape->gpu);
    return &there->sums[cuda->tape->n++];
}

/* RUBATO_TAPES=0: none is kept, to compare what is played with what is asked for one by one. */
static bool is_wanted(void)
{
    const char *text = getenv("RUBATO_TAPES");

    return !text || strcmp(text, "0") != 0;
}

int rb_cuda_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                       struct rb_why *why)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct rb_cuda_tape *tape;
    size_t bytes = sizeof *tape->values + sums * sizeof *tape->values->sums;
    int err;

    if (!is_wanted())
        return rb_why_set(why, RB_EUNSUPPORTED, "tapes are not wanted");
    tape = rb_alloc(sizeof *tape);
    err = rb_gpu_tape_start(cuda->gpu, bytes, &tape->gpu, why);
    if (err) {
        free(tape);
        return err;
    }
    tape->base.ops = device->ops;
    tape->cuda = cuda;
    tape->values = rb_alloc(bytes);
    tape->room = sums;
    tape->moves = cuda->moves;
    cuda->tape = tape;
    *ret_tape = &tape->base;
    return 0;
}

int rb_cuda_tape_end(struct rb_tape *base, struct rb_why *why)
{
    struct rb_cuda_tape *tape = (struct rb_cuda_tape *)base;

    tape->cuda->tape = NULL;
    return rb_gpu_tape_end(tape->gpu, why);
}

bool rb_cuda_tape_play(struct rb_tape *base, const struct rb_key *key, const struct rb_fixed *sums,
                       size_t n_sums)
{
    struct rb_cuda_tape *tape = (struct rb_cuda_tape *)base;

    if (n_sums != tape->n || tape->moves != tape->cuda->moves)
        return false;
    tape->values->key = rb_cuda_key_of(key);
    for (size_t i = 0; i < n_sums; i++)
        tape->values->sums[i] = rb_cuda_sum_of(tape->cuda, &sums[i]);
    rb_gpu_tape_play(tape->gpu, tape->values);
    return true;
}

void rb_cuda_tape_free(struct rb_tape *base)
{
    struct rb_cuda_tape *tape = (struct rb_cuda_tape *)base;

    rb_gpu_tape_free(tape->gpu);
    free(tape->values);
    free(tape);
}
