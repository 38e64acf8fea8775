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

static struct rb_extremes start(int64_t x)
{
    return (struct rb_extremes){x, x, x, x};
}

/* As long as there is no second value, it is the first. */
static inline void note(struct rb_extremes *extremes, int64_t x)
{
    if (x < extremes->least) {
        extremes->second_least = extremes->least;
        extremes->least = x;
    } else if (x > extremes->least &&
               (x < extremes->second_least || extremes->second_least == extremes->least)) {
        extremes->second_least = x;
    }
    if (x > extremes->most) {
        extremes->second_most = extremes->most;
        extremes->most = x;
    } else if (x < extremes->most &&
               (x > extremes->second_most || extremes->second_most == extremes->most)) {
        extremes->second_most = x;
    }
}

#define X(name, type)                                                                              \
    TO(name, type, f32, float)                                                                     \
    TO(name, type, i64, int64_t)                                                                   \
                                                                                                   \
    static struct rb_extremes name##_extremes(const uint8_t *from, int64_t count)                  \
    {                                                                                              \
        struct rb_extremes extremes;                                                               \
        type first;                                                                                \
                                                                                                   \
        memcpy(&first, from, sizeof first);                                                        \
        extremes = start((int64_t)first);                                                          \
        for (int64_t i = 1; i < count; i++) {                                                      \
            type x;                                                                                \
                                                                                                   \
            memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);                                    \
            note(&extremes, (int64_t)x);                                                           \
        }                                                                                          \
        return extremes;                                                                           \
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

/* Whatever is not 0 is true. */
static struct rb_extremes b1_extremes(const uint8_t *from, int64_t count)
{
    struct rb_extremes extremes = start(from[0] != 0);

    for (int64_t i = 1; i < count; i++)
        note(&extremes, from[i] != 0);
    return extremes;
}

void rb_convert_unit(const uint8_t *from, int64_t count, void *to)
{
    float *out = to;

    for (int64_t i = 0; i < count; i++)
        out[i] = (float)from[i] / 255.0f;
}

struct rb_extremes rb_extremes_join(struct rb_extremes a, struct rb_extremes b)
{
    note(&a, b.least);
    note(&a, b.second_least);
    note(&a, b.second_most);
    note(&a, b.most);
    return a;
}

const struct rb_stored *rb_stored_find(const char *name)
{
    static const struct rb_stored table[] = {
#define X(name, type) {#name, sizeof(type), true, name##_to_f32, name##_to_i64, name##_extremes},
        INTEGER_MAP(X)
#undef X
#define X(name, type) {#name, sizeof(type), false, name##_to_f32, NULL, NULL},
            FLOAT_MAP(X)
#undef X
                {"f2", 2, false, f2_to_f32, NULL, NULL},
        {"b1", 1, true, b1_to_f32, b1_to_i64, b1_extremes},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}
