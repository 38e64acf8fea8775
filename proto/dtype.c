/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/dtype.h"

const char *rb_dtype_text(enum rb_dtype dtype)
{
    switch (dtype) {
#define X(number, name, text, size)                                                                \
    case RB_##name:                                                                                \
        return text;
        RB_DTYPE_MAP(X)
#undef X
    case RB_NONE:
        break;
    }
    return "?";
}

size_t rb_dtype_size(enum rb_dtype dtype)
{
    switch (dtype) {
#define X(number, name, text, size)                                                                \
    case RB_##name:                                                                                \
        return size;
        RB_DTYPE_MAP(X)
#undef X
    case RB_NONE:
        break;
    }
    return 0;
}
