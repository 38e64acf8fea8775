/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct rb_tensor_type absent = {RB_NONE, 0, {0}};

const struct rb_attribute *rb_call_attribute(const struct rb_call *call, const char *key)
{
    for (int i = 0; i < call->n_attributes; i++)
        if (strcmp(call->attributes[i].key, key) == 0)
            return &call->attributes[i];
    return NULL;
}

int64_t rb_call_int(const struct rb_call *call, const char *key, int64_t otherwise)
{
    const struct rb_attribute *attribute = rb_call_attribute(call, key);

    return attribute && attribute->n_ints > 0 ? attribute->ints[0] : otherwise;
}

float rb_call_float(const struct rb_call *call, const char *key, float otherwise)
{
    const struct rb_attribute *attribute = rb_call_attribute(call, key);

    return attribute && attribute->n_floats > 0 ? attribute->floats[0] : otherwise;
}

const struct rb_tensor_type *rb_call_in(const struct rb_call *call, int i)
{
    return i < call->n_in ? &call->in[i] : &absent;
}

const struct rb_tensor_type *rb_call_out(const struct rb_call *call, int i)
{
    return i < call->n_out ? &call->out[i] : &absent;
}

int rb_call_refuse(const struct rb_call *call, int err, struct rb_why *why, const char *format, ...)
{
    const struct rb_op_info *info = rb_op_info(call->op);
    char types[256] = "", text[200], one[RB_TENSOR_TEXT];
    size_t used = 0;
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    for (int i = 0; i < call->n_in && i < 4 && used < sizeof(types); i++)
        used += (size_t)snprintf(types + used, sizeof(types) - used, "%s%s", i ? ", " : "",
                                 rb_tensor_text(&call->in[i], one));
    return rb_why_set(why, err, "%s(%s): %s", info ? info->name : "?", types, text);
}

bool rb_call_type_valid(const struct rb_tensor_type *type)
{
    int64_t bytes = (int64_t)rb_dtype_size(type->dtype);

    if (bytes == 0 || type->rank < 0 || type->rank > RB_MAX_RANK)
        return false;
    /* A size of zero must not hide that the others overflow: they are multiplied as at least 1. */
    for (int i = 0; i < type->rank; i++) {
        int64_t dim = type->dim[i];

        if (dim < 0 || dim > RB_CALL_MAX_BYTES)
            return false;
        if (__builtin_mul_overflow(bytes, dim > 0 ? dim : 1, &bytes) || bytes > RB_CALL_MAX_BYTES)
            return false;
    }
    return true;
}

/* Is `key` one of the words of `list`? */
static bool listed(const char *list, const char *key)
{
    size_t n = strlen(key);

    for (const char *word = list; *word;) {
        size_t size = strcspn(word, " ");

        if (size == n && n > 0 && strncmp(word, key, n) == 0)
            return true;
        word += size;
        word += strspn(word, " ");
    }
    return false;
}

static int check_types(const struct rb_call *call, const struct rb_tensor_type *types, int n,
                       const char *what, struct rb_why *why)
{
    for (int i = 0; i < n; i++)
        if (types[i].dtype != RB_NONE && !rb_call_type_valid(&types[i]))
            return rb_call_refuse(call, RB_EINVAL, why,
                                  "%s %d has a type or a size that no tensor may have", what, i);
    return 0;
}

int rb_call_check(const struct rb_call *call, struct rb_why *why)
{
    const struct rb_op_info *info = rb_op_info(call->op);
    int err;

    if (!info)
        return rb_why_set(why, RB_EUNSUPPORTED, "operator number %d is not known", (int)call->op);
    if (call->n_in < 0 || (info->inputs >= 0 && call->n_in > info->inputs))
        return rb_call_refuse(call, RB_EINVAL, why, "%d inputs, at most %d are known", call->n_in,
                              info->inputs);
    if (call->n_out < 1 || (info->outputs >= 0 && call->n_out > info->outputs))
        return rb_call_refuse(call, RB_EINVAL, why, "%d outputs, at most %d are known", call->n_out,
                              info->outputs);
    for (int i = 0; i < call->n_attributes; i++)
        if (!listed(info->attributes, call->attributes[i].key))
            return rb_call_refuse(call, RB_EUNSUPPORTED, why, "attribute '%.40s' is not known",
                                  call->attributes[i].key);
    err = check_types(call, call->in, call->n_in, "input", why);
    return err ? err : check_types(call, call->out, call->n_out, "output", why);
}

int rb_call_ints(const struct rb_call *call, const char *key, int n, int64_t otherwise,
                 int64_t *ret_ints, struct rb_why *why)
{
    const struct rb_attribute *attribute = rb_call_attribute(call, key);

    if (attribute && attribute->n_ints != n)
        return rb_call_refuse(call, RB_EINVAL, why, "attribute '%s' has %d numbers, %d are needed",
                              key, attribute->n_ints, n);
    for (int i = 0; i < n; i++)
        ret_ints[i] = attribute ? attribute->ints[i] : otherwise;
    return 0;
}

int rb_call_axis(const struct rb_call *call, const char *key, int rank, int *ret_axis,
                 struct rb_why *why)
{
    int64_t axis = rb_call_int(call, key, -1);

    if (axis < 0 || axis >= rank)
        return rb_call_refuse(call, RB_EINVAL, why, "attribute '%s' is %lld, the rank is %d", key,
                              (long long)axis, rank);
    *ret_axis = (int)axis;
    return 0;
}

/* `rounded`: what the first output may be, too. */
static int check_dtypes(const struct rb_call *call, enum rb_dtype dtype, enum rb_dtype rounded,
                        struct rb_why *why)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype != RB_NONE && call->in[i].dtype != dtype)
            return rb_call_refuse(call, RB_EUNSUPPORTED, why, "input %d must be %s", i,
                                  rb_dtype_text(dtype));
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i].dtype != RB_NONE && call->out[i].dtype != dtype &&
            (i > 0 || call->out[i].dtype != rounded))
            return rb_call_refuse(call, RB_EUNSUPPORTED, why, "output %d must be %s", i,
                                  rb_dtype_text(dtype));
    return 0;
}

int rb_call_only(const struct rb_call *call, enum rb_dtype dtype, struct rb_why *why)
{
    return check_dtypes(call, dtype, dtype, why);
}

int rb_call_rounded(const struct rb_call *call, struct rb_why *why)
{
    return check_dtypes(call, RB_F32, RB_BF16, why);
}

int rb_call_product(const struct rb_call *call, struct rb_why *why)
{
    enum rb_dtype factor = rb_call_in(call, 0)->dtype, product = rb_call_out(call, 0)->dtype;

    if (!rb_call_has_in(call, 0) || !rb_call_has_in(call, 1))
        return rb_call_refuse(call, RB_EINVAL, why, "two inputs are needed");
    if ((factor != RB_F32 && factor != RB_BF16) || call->in[1].dtype != factor)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why,
                              "the factors must both be float32 or both bfloat16");
    if (rb_call_has_in(call, 2) && call->in[2].dtype != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "the bias must be float32");
    if (product != RB_F32 && product != factor)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why,
                              "the output must be float32, or bfloat16 as the factors are");
    return 0;
}

struct rb_call_split rb_call_split_at(const struct rb_tensor_type *type, int axis)
{
    struct rb_call_split split = {1, 1, 1};

    for (int i = 0; i < type->rank; i++) {
        if (i < axis)
            split.outer *= type->dim[i];
        else if (i == axis)
            split.n = type->dim[i];
        else
            split.inner *= type->dim[i];
    }
    return split;
}
