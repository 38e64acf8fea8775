/* SPDX-License-Identifier: Apache-2.0 */
#include "data/convert.h"

#include "proto/dtype.h"

#include <string.h>

#define INTEGER_MAP(X)                                                                             \
    X(u1, uint8_t)                                                                                 \
    X(u2, uint16_t)                                                                                \
    X(u4, uint32_t)                                                                                \
    X(i1, int8_t)                                                                                  \
    X(i2, int16_t)                                                                                 \
    X(i4, int32_t)                                                                                 \
    X(i8, int64_t)

#define FLOAT_MAP(X)                                                                               \
    X(f4, float)                                                                                   \
    X(f8, double)

#define TO(name, type, slot, result)                                                               \
    static void name##_to_##slot(const uint8_t *from, int64_t count, void *to)                     \
    {                                                                                              \
        result *out = to;                                                                          \
                                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type x;                                                                                \
                                                                                                   \
            memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);                                    \
            out[i] = (result)x;                                                                    \
        }                                                                                          \
    }

#define X(name, type)                                                                              \
    TO(name, type, f32, float)                                                                     \
    TO(name, type, i64, int64_t)                                                                   \
                                                                                                   \
    static int64_t name##_largest(const uint8_t *from, int64_t count)                              \
    {                                                                                              \
        type most;                                                                                 \
                                                                                                   \
        memcpy(&most, from, sizeof most);                                                          \
        for (int64_t i = 1; i < count; i++) {                                                      \
            type x;                                                                                \
                                                                                                   \
            memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);                                    \
            most = x > most ? x : most;                                                            \
        }                                                                                          \
        return (int64_t)most;                                                                      \
    }
INTEGER_MAP(X)
#undef X

#define X(name, type) TO(name, type, f32, float)
FLOAT_MAP(X)
#undef X

static void f2_to_f32(const uint8_t *from, int64_t count, void *to)
{
    float *out = to;

    for (int64_t i = 0; i < count; i++) {
        uint16_t half;

        memcpy(&half, from + 2 * i, sizeof half);
        out[i] = rb_dtype_half(half);
    }
}

static void b1_to_f32(const uint8_t *from, int64_t count, void *to)
{
    float *out = to;

    for (int64_t i = 0; i < count; i++)
        out[i] = from[i] ? 1.0f : 0.0f;
}

static void b1_to_i64(const uint8_t *from, int64_t count, void *to)
{
    int64_t *out = to;

    for (int64_t i = 0; i < count; i++)
        out[i] = from[i] != 0;
}

static int64_t b1_largest(const uint8_t *from, int64_t count)
{
    return u1_largest(from, count) != 0;
}

void rb_convert_unit(const uint8_t *from, int64_t count, void *to)
{
    float *out = to;

    for (int64_t i = 0; i < count; i++)
        out[i] = (float)from[i] / 255.0f;
}

const struct rb_stored *rb_stored_find(const char *name)
{
    static const struct rb_stored table[] = {
#define X(name, type) {#name, sizeof(type), true, name##_to_f32, name##_to_i64, name##_largest},
        INTEGER_MAP(X)
#undef X
#define X(name, type) {#name, sizeof(type), false, name##_to_f32, NULL, NULL},
            FLOAT_MAP(X)
#undef X
                {"f2", 2, false, f2_to_f32, NULL, NULL},
        {"b1", 1, true, b1_to_f32, b1_to_i64, b1_largest},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}
