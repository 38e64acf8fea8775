/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/npy.h"

#include "base/file.h"

#include <inttypes.h>

static const char *descr_of(enum rb_dtype dtype)
{
    switch (dtype) {
    case RB_F16:
        return "<f2";
    case RB_F32:
        return "<f4";
    case RB_F64:
        return "<f8";
    case RB_I8:
        return "|i1";
    case RB_I16:
        return "<i2";
    case RB_I32:
        return "<i4";
    case RB_I64:
        return "<i8";
    case RB_U8:
        return "|u1";
    case RB_U16:
        return "<u2";
    case RB_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

int rb_npy_header(const struct rb_tensor_type *type, struct rb_buffer *out, struct rb_why *why)
{
    const char *descr = descr_of(type->dtype);
    size_t start = out->size, size;

    if (!descr)
        return rb_why_set(why, RB_EUNSUPPORTED, "NumPy has no %s", rb_dtype_text(type->dtype));
    rb_buffer_add(out, "\x93NUMPY\1\0\0\0", 10);
    rb_buffer_format(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int axis = 0; axis < type->rank; axis++)
        rb_buffer_format(out, axis ? ", %" PRId64 : "%" PRId64, type->dim[axis]);
    rb_buffer_text(out, type->rank == 1 ? ",), }" : "), }");
    while ((out->size - start + 1) % 64)
        rb_buffer_text(out, " ");
    rb_buffer_text(out, "\n");
    size = out->size - start - 10;
    out->data[start + 8] = (char)(size & 0xff);
    out->data[start + 9] = (char)(size >> 8);
    return 0;
}

int rb_npy_write(const char *path, const struct rb_tensor_type *type, const void *data,
                 struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};
    int err = rb_npy_header(type, &file, why);

    if (err)
        return err;
    rb_buffer_add(&file, data, (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype));
    return rb_file_write(path, file.data, file.size, why);
}
