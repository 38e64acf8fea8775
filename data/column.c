/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column.h"

int rb_column_shape(struct rb_column *column, const char *path, const int64_t *axes, int n_axes,
                    uint64_t bytes, struct rb_why *why)
{
    struct rb_tensor_type type = {.rank = n_axes - 1};
    int64_t count = 1, total;

    if (n_axes < 1)
        return rb_why_set(why, RB_EINVAL,
                          "%s holds a single number; expected an array whose first axis counts "
                          "samples",
                          path);
    if (type.rank > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s has %d axes; expected at most %d", path, n_axes,
                          RB_MAX_RANK + 1);
    for (int i = 1; i < n_axes; i++) {
        type.dim[i - 1] = axes[i];
        if (axes[i] < 0 || __builtin_mul_overflow(count, axes[i], &count))
            return rb_why_set(why, RB_EINVAL, "%s: its header asks for a sample of 2^63 elements",
                              path);
    }
    if (axes[0] == 0 || count == 0)
        return rb_why_set(why, RB_EINVAL, "%s holds %lld samples of %lld elements; expected some",
                          path, (long long)axes[0], (long long)count);
    if (axes[0] < 0 || __builtin_mul_overflow(axes[0], count, &total) ||
        __builtin_mul_overflow(total, (int64_t)column->stored->size, &total))
        return rb_why_set(why, RB_EINVAL, "%s: its header asks for 2^63 bytes", path);
    if ((uint64_t)total != bytes)
        return rb_why_set(why, RB_EINVAL,
                          "%s is damaged: %llu bytes after the header, expected %lld (%lld samples "
                          "of %lld elements of %zu bytes)",
                          path, (unsigned long long)bytes, (long long)total, (long long)axes[0],
                          (long long)count, column->stored->size);
    column->samples = axes[0];
    column->count = column->stride = count;
    column->elements = axes[0] * count;
    column->type = type;
    return 0;
}

int rb_column_sequence(struct rb_column *column, const char *path, int64_t seq_len,
                       struct rb_why *why)
{
    if (seq_len < 1)
        return rb_why_set(why, RB_EINVAL,
                          "%s is a sequence: it needs seqLen, the number of elements in a sample; "
                          "found %lld",
                          path, (long long)seq_len);
    if (column->elements - 1 < seq_len)
        return rb_why_set(why, RB_EINVAL,
                          "%s has %lld elements; expected one sample of seqLen %lld and the "
                          "element after it",
                          path, (long long)column->elements, (long long)seq_len);
    column->samples = (column->elements - 1) / seq_len;
    column->count = column->stride = seq_len;
    column->type = (struct rb_tensor_type){.dtype = RB_I64, .rank = 1, .dim = {seq_len}};
    column->convert = column->stored->to_i64;
    return 0;
}
