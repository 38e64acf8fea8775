/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/state/state.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* How counters travel: three int64_t, then one of these a variable. */
struct travelling {
    double history;
    int32_t exponent;
    uint32_t known;
};

enum { COUNTERS = 3 * sizeof(int64_t) };

static void *get(struct rb_device *device, size_t bytes)
{
    void *memory;

    if (device)
        return rb_device_alloc(device, bytes);
    if (posix_memalign(&memory, 64, bytes ? bytes : 64))
        return NULL;
    return memset(memory, 0, bytes);
}

static void give(struct rb_device *device, void *memory)
{
    if (device && memory)
        rb_device_free(device, memory);
    else
        free(memory);
}

static bool has_part(const Rb__Optimizer *optimizer, enum rb_state_part part)
{
    switch (part) {
    case RB_STATE_W:
        return true;
    case RB_STATE_M:
        return optimizer->kind == RB__OPTIMIZER__KIND__ADAMW || optimizer->momentum != 0;
    default:
        return optimizer->kind == RB__OPTIMIZER__KIND__ADAMW;
    }
}

static float **part_of(struct rb_state *state, enum rb_state_part part)
{
    return part == RB_STATE_W ? &state->w : part == RB_STATE_M ? &state->m : &state->v;
}

int rb_state_open(const Rb__Model *model, struct rb_device *device, struct rb_state *ret_state,
                  struct rb_why *why)
{
    struct rb_state state = {
        .level = -1,
        .elements = (size_t)model->state_elements,
        .fixed_bytes = (size_t)model->fixed_bytes,
        .variables = model->n_variables,
        .blocks = model->n_blocks,
        .device = device,
    };
    bool short_of_memory = false;

    for (int part = 0; part < RB_STATE_PARTS; part++) {
        if (!has_part(model->optimizer, part))
            continue;
        *part_of(&state, part) = get(device, state.elements * sizeof(float));
        short_of_memory |= !*part_of(&state, part);
    }
    state.fixed = get(device, state.fixed_bytes);
    if (short_of_memory || !state.fixed) {
        rb_state_done(&state);
        return rb_why_set(why, RB_ENOMEM, "no memory for the state of %zu elements",
                          state.elements);
    }
    state.exponents = rb_alloc(state.variables * sizeof *state.exponents);
    state.held = rb_alloc(state.blocks + 1);
    state.window = rb_window_new();
    *ret_state = state;
    return 0;
}

void rb_state_done(struct rb_state *state)
{
    for (int part = 0; part < RB_STATE_PARTS; part++)
        give(state->device, *part_of(state, part));
    give(state->device, state->fixed);
    free(state->exponents);
    free(state->held);
    rb_window_free(state->window);
    *state = (struct rb_state){.level = -1};
}

/* ---- Who holds what -------------------------------------------------------------------------*/

bool rb_state_whole(const struct rb_state *state)
{
    for (size_t b = 0; b < state->blocks; b++)
        if (state->held[b] != RB_HELD)
            return false;
    return !state->torn;
}

void rb_state_hold_all(struct rb_state *state)
{
    memset(state->held, RB_HELD, state->blocks);
}

static void discard(struct rb_state *state, float *memory, size_t count)
{
    if (state->device)
        rb_device_discard(state->device, memory, count * sizeof *memory);
    else
        memset(memory, 0, count * sizeof *memory);
}

void rb_state_clear_moments(struct rb_state *state)
{
    for (int part = RB_STATE_M; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            discard(state, rb_state_part(state, part), state->elements);
}

static void drop_moments(struct rb_state *state, const Rb__Block *first, const Rb__Block *last)
{
    for (int part = RB_STATE_M; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            discard(state, rb_state_part(state, part) + first->first,
                    (size_t)(last->first + last->count - first->first));
}

/* Neighbouring blocks are given back together, so that whole pages are. */
void rb_state_hold(struct rb_state *state, const Rb__Model *model, const uint8_t *holds)
{
    for (size_t b = 0, end; b < state->blocks; b = end) {
        end = b + 1;
        if (holds[b] || !state->held[b])
            continue;
        while (end < state->blocks && !holds[end] && state->held[end])
            end++;
        drop_moments(state, model->blocks[b], model->blocks[end - 1]);
    }
    memcpy(state->held, holds, state->blocks);
}

float *rb_state_part(const struct rb_state *state, enum rb_state_part part)
{
    return part == RB_STATE_W ? state->w : part == RB_STATE_M ? state->m : state->v;
}

void rb_state_pull(const struct rb_state *state, size_t first, size_t count)
{
    for (int part = 0; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            rb_device_pull(state->device, rb_state_part(state, part) + first,
                           count * sizeof(float));
}

void rb_state_push(const struct rb_state *state, size_t first, size_t count)
{
    for (int part = 0; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            rb_device_push(state->device, rb_state_part(state, part) + first,
                           count * sizeof(float));
}

void rb_state_copy_counters(struct rb_state *to, const struct rb_state *from)
{
    to->level = from->level;
    to->applied = from->applied;
    to->not_finite = from->not_finite;
    memcpy(to->exponents, from->exponents, from->variables * sizeof *from->exponents);
}

static void copy_range(struct rb_state *to, const struct rb_state *from, enum rb_state_part part,
                       size_t first, size_t count)
{
    float *there = rb_state_part(to, part), *here = rb_state_part(from, part);

    if (!here)
        return;
    rb_device_pull(from->device, here + first, count * sizeof *here);
    memcpy(there + first, here + first, count * sizeof *here);
    rb_device_push(to->device, there + first, count * sizeof *there);
}

void rb_state_copy_block(struct rb_state *to, const struct rb_state *from, const Rb__Block *block,
                         bool held)
{
    for (int part = 0; part < (held ? RB_STATE_PARTS : RB_STATE_M); part++)
        copy_range(to, from, part, (size_t)block->first, (size_t)block->count);
}

void rb_state_copy(struct rb_state *to, const struct rb_state *from, const Rb__Model *model)
{
    rb_state_copy_counters(to, from);
    for (size_t b = 0; b < from->blocks; b++)
        rb_state_copy_block(to, from, model->blocks[b], from->held[b]);
    memcpy(to->fixed, from->fixed, from->fixed_bytes);
    rb_device_push(to->device, to->fixed, to->fixed_bytes);
    memcpy(to->held, from->held, from->blocks);
    to->torn = from->torn;
}

size_t rb_state_counters_size(const struct rb_state *state)
{
    return COUNTERS + state->variables * sizeof(struct travelling);
}

void rb_state_counters_pack(const struct rb_state *state, void *bytes)
{
    int64_t counters[3] = {state->level, state->applied, state->not_finite};
    uint8_t *at = bytes;

    memcpy(at, counters, COUNTERS);
    at += COUNTERS;
    for (size_t v = 0; v < state->variables; v++, at += sizeof(struct travelling)) {
        const struct rb_exponent *exponent = &state->exponents[v];
        struct travelling one = {exponent->history, exponent->exponent, exponent->known};

        memcpy(at, &one, sizeof one);
    }
}

void rb_state_counters_unpack(struct rb_state *state, const void *bytes)
{
    const uint8_t *at = bytes;
    int64_t counters[3];

    memcpy(counters, at, COUNTERS);
    at += COUNTERS;
    state->level = counters[0];
    state->applied = counters[1];
    state->not_finite = counters[2];
    for (size_t v = 0; v < state->variables; v++, at += sizeof(struct travelling)) {
        struct travelling one;

        memcpy(&one, at, sizeof one);
        state->exponents[v] = (struct rb_exponent){one.history, one.exponent, one.known != 0};
    }
}

uint64_t rb_state_agreement(const struct rb_state *state)
{
    size_t size = rb_state_counters_size(state);
    RB_CLEANUP(rb_freep) void *bytes = rb_alloc(size);

    rb_state_counters_pack(state, bytes);
    return rb_hash64(bytes, size);
}

static uint64_t hash_moments(const struct rb_state *state, const Rb__Block *block)
{
    uint64_t hashes[RB_STATE_PARTS] = {1};

    rb_state_pull(state, (size_t)block->first, (size_t)block->count);
    for (int part = RB_STATE_M; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            hashes[part] = rb_hash64(rb_state_part(state, part) + block->first,
                                     (size_t)block->count * sizeof(float));
    return rb_hash64(hashes, sizeof hashes);
}

void rb_state_hashes(const struct rb_state *state, const Rb__Model *model, uint64_t *ret_hashes)
{
    uint64_t common[3];

    rb_device_pull(state->device, state->w, state->elements * sizeof *state->w);
    common[0] = rb_hash64(state->w, state->elements * sizeof *state->w);
    common[1] = rb_hash64(state->fixed, state->fixed_bytes);
    common[2] = rb_state_agreement(state);

    ret_hashes[0] = rb_hash64(common, sizeof common);
    for (size_t b = 0; b < state->blocks; b++)
        ret_hashes[1 + b] = state->held[b] ? hash_moments(state, model->blocks[b]) : 0;
}
