/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"
#include "proto/blocked.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 8 };

/* Between element i of the plain tensor and its place in the blocked one. */
static int64_t place(const struct rb_tensor_type *plain, const struct rb_tensor_type *blocked,
                     int64_t i)
{
    int64_t index[RB_MAX_RANK];

    rb_reference_index(plain, i, index);
    index[plain->rank] = index[1] % RB_BLOCK;
    index[1] /= RB_BLOCK;
    return rb_reference_flat(blocked, index);
}

/* Copies of elements: to the plain tensor, or from it. */
static void turn(const struct rb_tensor_type *plain, const struct rb_tensor_type *blocked, char *to,
                 const char *from, bool to_plain)
{
    int64_t size = (int64_t)rb_dtype_size(plain->dtype);

    for (int64_t i = 0; i < rb_tensor_elements(plain); i++) {
        int64_t at = place(plain, blocked, i);

        memcpy(to + (to_plain ? i : at) * size, from + (to_plain ? at : i) * size, (size_t)size);
    }
}

static void *room(const struct rb_tensor_type *type)
{
    void *memory = calloc((size_t)rb_tensor_elements(type) + 1, sizeof(uint32_t));

    if (!memory)
        abort();
    return memory;
}

bool rb_reference_blocked(const struct rb_call *call, int spatial, rb_reference *reference,
                          const void *const *in, void *const *out, const struct rb_key *key)
{
    struct rb_tensor_type types[2][TENSORS];
    void *memory[2][TENSORS] = {{NULL}};
    struct rb_call plain = *call;
    bool any = false;

    for (int i = 0; i < call->n_in; i++) {
        types[0][i] = rb_blocked_plain(&call->in[i], spatial);
        memory[0][i] = (void *)(uintptr_t)in[i];
        if (!in[i] || !rb_blocked(&call->in[i], spatial))
            continue;
        any = true;
        memory[0][i] = room(&types[0][i]);
        turn(&types[0][i], &call->in[i], memory[0][i], in[i], true);
    }
    for (int i = 0; i < call->n_out; i++) {
        types[1][i] = rb_blocked_plain(&call->out[i], spatial);
        memory[1][i] = out[i];
        if (!out[i] || !rb_blocked(&call->out[i], spatial))
            continue;
        any = true;
        memory[1][i] = room(&types[1][i]);
    }
    if (!any)
        return false;
    plain.in = types[0];
    plain.out = types[1];
    reference(&plain, (const void *const *)memory[0], memory[1], key);
    for (int i = 0; i < call->n_in; i++)
        if (memory[0][i] != in[i])
            free(memory[0][i]);
    for (int i = 0; i < call->n_out; i++)
        if (memory[1][i] != out[i]) {
            turn(&types[1][i], &call->out[i], out[i], memory[1][i], false);
            free(memory[1][i]);
        }
    return true;
}
