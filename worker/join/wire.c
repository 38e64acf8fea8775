/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/wire.h"

#include "worker/tag.h"

#include <string.h>

enum {
    HEADER = 16,
    ANSWER,
    SUMS,
    WEIGHTS,
    PAYLOAD = 32
}; /* apart from the parts that an opening moves */

uint64_t rb_wire_header_tag(uint64_t n)
{
    return rb_tag(RB_TAG_COPY, 0, HEADER, n);
}

uint64_t rb_wire_answer_tag(uint64_t n)
{
    return rb_tag(RB_TAG_COPY, 0, ANSWER, n);
}

uint64_t rb_wire_payload_tag(const struct rb_wire *header)
{
    return rb_tag(RB_TAG_COPY, header->level, PAYLOAD + header->kind, header->index);
}

uint64_t rb_wire_sums_tag(int64_t level, size_t block)
{
    return rb_tag(RB_TAG_COPY, level, SUMS, block);
}

uint64_t rb_wire_weights_tag(int64_t level, size_t block)
{
    return rb_tag(RB_TAG_COPY, level, WEIGHTS, block);
}

/* ---- Blocks ---------------------------------------------------------------------------------*/

static size_t range_bytes(const Rb__Block *block)
{
    return (size_t)block->count * sizeof(float);
}

int rb_wire_block_pieces(const struct rb_state *state, const Rb__Block *block,
                         struct iovec ret_pieces[RB_STATE_PARTS])
{
    int n = 0;

    for (int part = 0; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            ret_pieces[n++] =
                (struct iovec){rb_state_part(state, part) + block->first, range_bytes(block)};
    return n;
}

size_t rb_wire_block_bytes(const struct rb_state *state, const Rb__Block *block)
{
    struct iovec pieces[RB_STATE_PARTS];

    return (size_t)rb_wire_block_pieces(state, block, pieces) * range_bytes(block);
}

size_t rb_wire_largest_bytes(const struct rb_model *model)
{
    size_t largest = 1;

    for (size_t b = 0; b < model->message->n_blocks; b++) {
        size_t bytes = rb_wire_block_bytes(&model->state, model->message->blocks[b]);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

void rb_wire_block_pack(const struct rb_state *state, const Rb__Block *block, void *bytes)
{
    struct iovec pieces[RB_STATE_PARTS];
    int n = rb_wire_block_pieces(state, block, pieces);
    uint8_t *at = bytes;

    rb_state_pull(state, (size_t)block->first, (size_t)block->count);
    for (int i = 0; i < n; at += pieces[i++].iov_len)
        memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
}

void rb_wire_block_unpack(const struct rb_state *state, const Rb__Block *block, const void *bytes)
{
    struct iovec pieces[RB_STATE_PARTS];
    int n = rb_wire_block_pieces(state, block, pieces);
    const uint8_t *at = bytes;

    for (int i = 0; i < n; at += pieces[i++].iov_len)
        memcpy(pieces[i].iov_base, at, pieces[i].iov_len);
    rb_state_push(state, (size_t)block->first, (size_t)block->count);
}

/* ---- Entries --------------------------------------------------------------------------------*/

struct terms {
    double lr;
    int64_t applied;
    float scale;
    uint32_t zero;
};

size_t rb_wire_entry_bytes(const struct rb_model *model)
{
    return sizeof(struct terms) + model->state.variables * sizeof(int32_t) +
           rb_state_counters_size(&model->state);
}

void rb_wire_entry_pack(const struct rb_model *model, const struct rb_update_terms *terms,
                        void *bytes)
{
    struct terms travelling = {0};
    uint8_t *at = bytes;

    if (terms)
        travelling = (struct terms){terms->lr, terms->applied, terms->scale, 0};
    memcpy(at, &travelling, sizeof travelling);
    at += sizeof travelling;
    for (size_t v = 0; v < model->state.variables; v++, at += sizeof(int32_t))
        memcpy(at, &model->exponents[v].exponent, sizeof(int32_t));
    rb_state_counters_pack(&model->state, at);
}

void rb_wire_entry_unpack(struct rb_model *model, const void *bytes,
                          struct rb_update_terms *ret_terms, void *ret_counters)
{
    struct terms travelling;
    const uint8_t *at = bytes;

    memcpy(&travelling, at, sizeof travelling);
    at += sizeof travelling;
    *ret_terms = (struct rb_update_terms){travelling.lr, travelling.applied, travelling.scale};
    for (size_t v = 0; v < model->state.variables; v++, at += sizeof(int32_t))
        memcpy(&model->exponents[v].exponent, at, sizeof(int32_t));
    memcpy(ret_counters, at, rb_state_counters_size(&model->state));
}
