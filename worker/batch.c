/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/batch.h"

#include "data/order.h"

#include <string.h>

uint32_t rb_batch_count(int64_t global_batch, int64_t micro_batch)
{
    return (uint32_t)((global_batch + micro_batch - 1) / micro_batch);
}

struct rb_batch rb_batch_of(int64_t global_batch, int64_t micro_batch, int64_t step,
                            uint32_t microbatch)
{
    int64_t offset = (int64_t)microbatch * micro_batch;
    int64_t left = global_batch - offset;

    return (struct rb_batch){
        .first = (uint64_t)step * (uint64_t)global_batch + (uint64_t)offset,
        .samples = (uint32_t)(left < micro_batch ? left : micro_batch),
    };
}

static const Rb__Tensor *input_tensor(const Rb__Program *message, size_t slot)
{
    for (size_t i = 0; i < message->n_tensors; i++)
        if (message->tensors[i]->space == RB__TENSOR__SPACE__INPUT &&
            message->tensors[i]->offset == slot)
            return message->tensors[i];
    return NULL;
}

bool rb_batch_takes_floats(const Rb__Model *message)
{
    for (size_t p = 0; p < message->n_programs; p++) {
        const Rb__Program *program = message->programs[p];

        for (size_t i = 0; i < program->n_inputs; i++) {
            const Rb__Tensor *tensor = input_tensor(program, i);

            if (tensor && strcmp(program->inputs[i], "features") == 0)
                return tensor->dtype == RB_F32;
        }
    }
    return false;
}

/* Check one slot against the type of one sample: the slot has the batch axis in front, and the same
 * elements and dtype. */
static int slot_bytes(const Rb__Program *message, size_t slot, const struct rb_tensor_type *sample,
                      size_t *ret_bytes, struct rb_why *why)
{
    const Rb__Tensor *tensor = input_tensor(message, slot);
    uint64_t have = sample->dtype == RB_NONE ? 0 : (uint64_t)rb_tensor_elements(sample), need = 1;

    if (!tensor) {
        *ret_bytes = 0; /* nobody reads this slot */
        return 0;
    }
    for (size_t i = 0; i < tensor->n_dims; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(need, (uint64_t)tensor->dims[i], &need))
            return rb_why_set(why, RB_EINVAL, "program %s: input %s is too large", message->name,
                              message->inputs[slot]);
    if (sample->dtype == RB_NONE)
        return rb_why_set(why, RB_EINVAL, "the model wants %s, the data have none",
                          message->inputs[slot]);
    if (tensor->dtype != (int)sample->dtype || need != have * message->batch)
        return rb_why_set(
            why, RB_EINVAL,
            "the model wants %s of %llu x %s for %u samples, the data have %llu x %s a "
            "sample",
            message->inputs[slot], (unsigned long long)need,
            rb_dtype_text((enum rb_dtype)tensor->dtype), message->batch, (unsigned long long)have,
            rb_dtype_text(sample->dtype));
    *ret_bytes = (size_t)have * rb_dtype_size(sample->dtype);
    return 0;
}

/* The slot of that name, and the type of its samples; RB_NONE: the data have none. */
static struct rb_batch_slot *find_slot(struct rb_batch_slots *slots, const char *name,
                                       const struct rb_source_info *info,
                                       struct rb_tensor_type *ret_sample)
{
    const struct rb_source_input *input = rb_source_find_input(info, name);

    *ret_sample = (struct rb_tensor_type){.dtype = RB_NONE};
    if (input) {
        *ret_sample = input->type;
        return &slots->inputs[input - info->inputs];
    }
    if (strcmp(name, "features") == 0)
        *ret_sample = info->features;
    else if (strcmp(name, "targets") == 0)
        *ret_sample = info->targets;
    return strcmp(name, "targets") == 0 ? &slots->targets : &slots->features;
}

int rb_batch_slots(const Rb__Program *message, struct rb_program *program,
                   const struct rb_source_info *info, struct rb_batch_slots *ret_slots,
                   struct rb_why *why)
{
    struct rb_batch_slots slots = {0};

    for (size_t i = 0; i < message->n_inputs; i++) {
        struct rb_tensor_type sample;
        struct rb_batch_slot *slot = find_slot(&slots, message->inputs[i], info, &sample);
        size_t bytes = 0;
        int err = slot_bytes(message, i, &sample, &bytes, why);

        if (err)
            return err;
        if (bytes)
            *slot = (struct rb_batch_slot){rb_program_input(program, (int)i), bytes};
    }
    *ret_slots = slots;
    return 0;
}

static uint8_t *place_in(const struct rb_batch_slot *slot, uint32_t place)
{
    return slot->to ? slot->to + place * slot->bytes : NULL;
}

static void read_sample(const struct rb_batch_slots *slots, const struct rb_source *source,
                        uint64_t sample, uint32_t place)
{
    size_t n = rb_source_info(source)->n_inputs;

    rb_source_read(source, (int64_t)sample, place_in(&slots->features, place),
                   place_in(&slots->targets, place));
    for (size_t i = 0; i < n; i++)
        if (slots->inputs[i].to)
            rb_source_read_input(source, (int64_t)sample, i, place_in(&slots->inputs[i], place));
}

void rb_batch_fill(const struct rb_batch_slots *slots, const struct rb_source *source,
                   uint64_t seed, const struct rb_batch *batch)
{
    uint64_t samples = (uint64_t)rb_source_info(source)->samples;

    for (uint32_t j = 0; j < batch->samples; j++)
        read_sample(slots, source, rb_order_sample(seed, samples, batch->first + j), j);
}

void rb_batch_fill_plain(const struct rb_batch_slots *slots, const struct rb_source *source,
                         const struct rb_batch *batch)
{
    for (uint32_t j = 0; j < batch->samples; j++)
        read_sample(slots, source, batch->first + j, j);
}
